"""What a cluster can leave on a machine, read from the machine itself.

`observe` is what the test compares before and after; `sweep` ends and removes
what is ours by name: our containerd's shims, our control group, mounts inside
our folder.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import dataclass, fields
from pathlib import Path

from .commands import output_of, succeeds
from .network import parse_tables
from .node import cgroup_hierarchies, cgroup_names
from .processes import all_pids, command_line, end, start_ticks
from .settings import ClusterError, Settings

_SOCKETS = Path("/run/containerd/s")
"""Fixed in containerd 1.6, whatever its state folder."""
_EXIT_SECONDS = 20.0
"""For a killed process to give its memory back and leave its control group."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything on the machine that a cluster may add to."""

    processes: frozenset[str]
    """Command lines that name our folder or our programs."""
    mounts: frozenset[str]
    links: frozenset[str]
    namespaces: frozenset[str]
    """Named network namespaces."""
    rules: frozenset[str]
    """Rules and own chains of iptables and ip6tables."""
    control_groups: frozenset[str]
    sockets: frozenset[str]
    """Of containerd's shims."""


def _decoded(path: str) -> str:
    """Return a path of mountinfo with its octal escapes resolved."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)


def mount_points() -> list[str]:
    """Return the mount points of this process's namespace, oldest first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [_decoded(line.split()[4]) for line in lines]


def our_processes(settings: Settings) -> dict[int, str]:
    """Return processes whose program or arguments lie in our folder, or in our group."""
    marks = (f"{settings.cluster}/", f"{settings.binaries}/kube", f"{settings.containerd_socket}")
    found = {}
    for pid in all_pids():
        text = " ".join(command_line(pid))
        if pid != os.getpid() and any(mark in text for mark in marks):
            found[pid] = text[:200]
    for pid in grouped_pids(settings):
        found.setdefault(pid, " ".join(command_line(pid))[:200])
    return {pid: text for pid, text in found.items() if start_ticks(pid) is not None}


def our_groups(settings: Settings) -> list[Path]:
    """Return our control groups, children before parents."""
    groups: list[Path] = []
    for hierarchy in cgroup_hierarchies():
        for name in cgroup_names(settings):
            for folder, _, _ in os.walk(hierarchy / name, topdown=False):
                groups.append(Path(folder))
    return groups


def grouped_pids(settings: Settings) -> set[int]:
    """Return the pids in our control groups: pods, whoever their parent is."""
    found: set[int] = set()
    for group in our_groups(settings):
        try:
            text = (group / "cgroup.procs").read_text(encoding="utf-8")
        except OSError:
            continue
        found.update(int(word) for word in text.split())
    return found


def _shims(settings: Settings) -> list[int]:
    address = str(settings.containerd_socket)
    return [
        pid
        for pid in all_pids()
        if (argv := command_line(pid)) and "containerd-shim" in argv[0] and address in argv
    ]


def observe(settings: Settings) -> Observed:
    """Look at the machine."""
    rules: set[str] = set()
    for program in ("iptables", "ip6tables"):
        tables = parse_tables(output_of([f"{program}-save"]))
        rules |= {f"{program} {table} {chain}" for table, chain in tables.chains}
        rules |= {f"{program} {rule.table} {rule.text}" for rule in tables.rules}
    links = output_of(["ip", "-o", "link"]).splitlines()
    return Observed(
        processes=frozenset(our_processes(settings).values()),
        mounts=frozenset(mount_points()),
        links=frozenset(line.split(": ")[1].split("@")[0] for line in links),
        namespaces=frozenset(output_of(["ip", "netns", "list"]).split("\n")) - {""},
        rules=frozenset(rules),
        control_groups=frozenset(str(group) for group in our_groups(settings)),
        sockets=frozenset(str(path) for path in _SOCKETS.glob("*")),
    )


def left_over(before: Observed, after: Observed) -> list[str]:
    """Return what is there after and was not before, a line each."""
    found = []
    for field in fields(Observed):
        new = getattr(after, field.name) - getattr(before, field.name)
        found += [f"{field.name}: {entry}" for entry in sorted(new)]
    return found


def sweep_pods(settings: Settings) -> None:
    """End every shim and pod process; containerd and kubelet must have ended before."""
    # Shims first: each would report and clean up for a containerd that is gone.
    end(_shims(settings), patience_seconds=0.0)
    end(grouped_pids(settings), patience_seconds=0.0)


def sweep_sockets(settings: Settings) -> None:
    """Remove the shims' sockets, which lie outside of our folder; while their bundles are there."""
    for bundle in settings.containerd_state.glob("io.containerd.runtime.v2.task/*/*/address"):
        address = bundle.read_text(encoding="utf-8").removeprefix("unix://")
        if address.startswith(str(_SOCKETS)):
            Path(address).unlink(missing_ok=True)


def sweep_mounts(settings: Settings) -> None:
    """Unmount everything inside our folder, newest first.

    Raises:
        ClusterError: a mount stays, for example held by someone's shell or a running build.
    """
    for point in reversed(mount_points()):
        if not point.startswith(f"{settings.home}/") or succeeds(["umount", point]):
            continue
        # The pods' processes are gone, so a lazy unmount of theirs lets nothing live on.
        ours = point.startswith(f"{settings.cluster}/")
        if not ours or not succeeds(["umount", "--lazy", point]):
            raise ClusterError(f"cannot unmount {point}; see who holds it: fuser -vm {point}")


def sweep_groups(settings: Settings) -> None:
    """Remove our control groups.

    Raises:
        ClusterError: a process is still in one.
    """
    deadline = time.monotonic() + _EXIT_SECONDS
    for group in our_groups(settings):
        while True:
            try:
                group.rmdir()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise ClusterError(f"cannot remove control group {group}: {error}") from error
                # A killed engine is in its group until its memory is given back.
                time.sleep(0.1)


def sweep_files(settings: Settings) -> None:
    """Remove the state of the cluster; caches, images and models stay."""
    shutil.rmtree(settings.cluster, ignore_errors=False)
    _remove_dangling(Path("/var/log/containers"))


def _remove_dangling(folder: Path) -> None:
    """Remove the links that the kubelet keeps at a fixed place, once their logs are gone."""
    if not folder.is_dir():
        return
    for link in folder.iterdir():
        if link.is_symlink() and not link.exists():
            link.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
