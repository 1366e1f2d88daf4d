"""The local cluster as a whole: up, down, status."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from . import control_plane, node
from .binaries import build_programs, helm, programs
from .commands import output_of, say, wait_until
from .control_plane import api_is_ready, kubectl, processes_folder, start_control_plane
from .leftovers import sweep_files, sweep_groups, sweep_mounts, sweep_pods, sweep_sockets
from .network import start_network, stop_network
from .node import containerctl, node_is_ready, start_containerd, start_node
from .prerequisites import (
    CLUSTER_GIBIBYTES,
    CLUSTER_PACKAGES,
    install_packages,
    require_programs,
    require_root,
    require_space,
)
from .processes import end_recorded, live_pid, recorded
from .settings import NODE_NAME, Settings
from .store import load_pause

PATIENCE_SECONDS = 10.0
"""How long a program gets between TERM and KILL; etcd and containerd need under 2 s."""


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold the lock that lets one `up`, `down` or image load run at a time.

    Waits for another one to end.

    Raises:
        ClusterError: it has not ended after an hour.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    with (settings.home / "lock").open("w") as file:

        def locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_until(
            locked,
            label="another cluster command is running; waiting for its end",
            seconds=3600,
            why_not=lambda: f"see who holds it: fuser -v {settings.home / 'lock'}",
        )
        yield


def dead_parts(settings: Settings) -> list[str]:
    """Return the names of the cluster's programs that do not run."""
    wanted = {*control_plane.NAMES, *node.NAMES}
    records = recorded(processes_folder(settings))
    return sorted(wanted - {record.name for record in records if live_pid(record) is not None})


def is_healthy(settings: Settings) -> bool:
    """Whether every program runs, the API server answers, and the node is Ready."""
    return not dead_parts(settings) and api_is_ready(settings) and node_is_ready(settings)


def prepare(settings: Settings) -> None:
    """Install and build what the cluster needs; quick where it is all there.

    Raises:
        ClusterError: the machine cannot carry the cluster.
    """
    require_root()
    require_programs(["go"])
    missing = [program for program in programs() if not (settings.binaries / program.name).exists()]
    if missing:
        require_space(settings, gibibytes=CLUSTER_GIBIBYTES, purpose="Kubernetes' programs")
    install_packages(settings, CLUSTER_PACKAGES)
    build_programs(settings, programs())
    if shutil.which("helm") is None:
        build_programs(settings, (helm(),))


def up(settings: Settings) -> None:
    """Bring the cluster to a Ready node; does nothing where it is.

    A cluster that is not whole, because a start was interrupted or a program
    died, is ended first: what is in between is unknown.

    Raises:
        ClusterError: a part does not start; the message says which, with its log.
    """
    prepare(settings)
    started = time.monotonic()
    if is_healthy(settings):
        say(f"cluster is up; KUBECONFIG={settings.kubeconfig}")
        return
    if settings.cluster.exists():
        say(f"clearing what an earlier start left; not running: {', '.join(dead_parts(settings))}")
        down(settings)
    settings.cluster.mkdir(mode=0o700)
    start_network(settings)
    start_containerd(settings)
    _forget_containers(settings)
    load_pause(settings)
    start_control_plane(settings)
    start_node(settings)
    say(
        f"node {NODE_NAME} is Ready {time.monotonic() - started:.1f} s after the start;"
        f" KUBECONFIG={settings.kubeconfig}"
    )


def _forget_containers(settings: Settings) -> None:
    """Remove containers of an earlier start that containerd still knows.

    containerd's own kubelet interface reads them once, at its start, so it is
    started again where there were any.
    """
    names = output_of(containerctl(settings, "containers", "ls", "-q")).split()
    if not names:
        return
    output_of(containerctl(settings, "containers", "rm", *names))
    end_recorded(
        processes_folder(settings), names=["containerd"], patience_seconds=PATIENCE_SECONDS
    )
    start_containerd(settings)


def down(settings: Settings, *, purge: bool = False) -> None:
    """End the cluster and remove what it left on the machine.

    Programs and images stay in their caches; `purge` removes the node's images
    too.

    Raises:
        ClusterError: something of ours cannot be removed; the message names it.
    """
    require_root()
    started = time.monotonic()
    folder = processes_folder(settings)
    # The kubelet first, else it would start again what is ended here.
    for names in (node.NAMES, control_plane.NAMES):
        end_recorded(folder, names=names, patience_seconds=PATIENCE_SECONDS)
    sweep_pods(settings)
    sweep_sockets(settings)
    sweep_mounts(settings)
    sweep_groups(settings)
    if settings.cluster.exists():
        stop_network(settings)
        sweep_files(settings)
    if purge:
        shutil.rmtree(settings.containerd_root, ignore_errors=True)
    say(f"cluster is down, {time.monotonic() - started:.1f} s; caches stay in {settings.home}")


def status(settings: Settings) -> bool:
    """Print the state of each program and of the node; return whether all is well."""
    records = {record.name: record for record in recorded(processes_folder(settings))}
    for name in (*reversed(control_plane.NAMES), *reversed(node.NAMES)):
        pid = live_pid(records[name]) if name in records else None
        say(f"{name:20} {f'running, pid {pid}' if pid else 'not running'}")
    if not api_is_ready(settings):
        say("API server: does not answer; start with: make cluster-up")
        return False
    say(output_of(kubectl(settings, "get", "nodes,pods", "-A", "-o", "wide")))
    return node_is_ready(settings)
