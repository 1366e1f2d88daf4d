"""Start a cluster, run a pod, end it one way or another, and print what is left over.

Run by test_leftovers.py in network and mount namespaces of its own, so that it
meets no other cluster and a failure leaves nothing on the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from e2e.cluster import local
from e2e.cluster.commands import output_of, wait_until
from e2e.cluster.control_plane import kubectl, processes_folder
from e2e.cluster.leftovers import left_over, observe, our_processes
from e2e.cluster.node import PAUSE_IMAGE
from e2e.cluster.processes import live_pid, recorded
from e2e.cluster.settings import Settings, current_settings

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "holds", "namespace": "default"},
    "spec": {
        "containers": [
            {
                "name": "holds",
                "image": PAUSE_IMAGE,
                "imagePullPolicy": "Never",
                "ports": [{"containerPort": 80, "hostPort": 8099}],
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
            }
        ],
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
    },
}


def run_pod(settings: Settings) -> None:
    """Run a pod that has an address, a port of the host, and a memory volume."""
    account = ("get", "serviceaccount", "default", "-o", "name", "--ignore-not-found")
    wait_until(
        lambda: output_of(kubectl(settings, *account)) != "",
        label="default service account",
        seconds=30,
        why_not=lambda: "the controller manager does not make it",
    )
    output_of(kubectl(settings, "apply", "-f", "-"), input_text=json.dumps(POD))
    output_of(kubectl(settings, "wait", "pod/holds", "--for=condition=Ready", "--timeout=60s"))


def kill(settings: Settings, *names: str) -> None:
    """Kill programs of the cluster as a crash would."""
    for record in recorded(processes_folder(settings)):
        pid = live_pid(record)
        if record.name in names and pid is not None:
            os.kill(pid, signal.SIGKILL)


def interrupt_a_start(settings: Settings) -> None:
    """Kill a start, as a power button would, when it has begun with the control plane."""
    start = [sys.executable, "-m", "e2e.cluster", "up"]
    with subprocess.Popen(start, stdout=subprocess.DEVNULL) as process:
        wait_until(
            (processes_folder(settings) / "etcd.json").exists,
            label="half a cluster",
            seconds=60,
            why_not=lambda: "etcd was not started",
        )
        process.kill()


def main(how: str) -> None:
    """Print, as JSON, what is left and what ran meanwhile."""
    settings = current_settings()
    before = observe(settings)
    if how == "interrupted start":
        interrupt_a_start(settings)
    local.up(settings)
    run_pod(settings)
    during = left_over(before, observe(settings))
    running = len(our_processes(settings))
    if how == "crash":
        kill(settings, "kubelet", "containerd", "etcd")
    if how == "heal":
        kill(settings, "etcd", "kubelet")
        local.up(settings)
        run_pod(settings)
    local.down(settings)
    left = left_over(before, observe(settings))
    print(json.dumps({"during": during, "running": running, "left": left}))


if __name__ == "__main__":
    main(sys.argv[1])
