"""Processes of one pod as this machine sees them, for kill tests on the local node.

Only pods that a test made are asked for, by their UID.
"""

import os
import signal
from pathlib import Path


def pids_of(pod_uid: str, *words: str) -> list[int]:
    """Pids whose control group is the pod's and whose command line has all words."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            groups = (folder / "cgroup").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # ended while we looked
        if f"pod{pod_uid}" in groups and all(word in command for word in words):
            found.append(int(folder.name))
    return found


def kill(pod_uid: str, *words: str) -> int:
    """kill -9 of the one process that fits; returns its pid.

    Raises:
        AssertionError: when not exactly one fits.
    """
    pids = pids_of(pod_uid, *words)
    assert len(pids) == 1, f"{words} in pod {pod_uid}: {pids}"
    os.kill(pids[0], signal.SIGKILL)
    return pids[0]
