"""The local cluster leaves nothing on the machine, however it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster import local
from e2e.cluster.settings import current_settings

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NAMESPACES = ("unshare", "--net", "--mount", "--propagation", "private")
REPOSITORY = Path(__file__).resolve().parents[2]


def outcome(home: Path, how: str) -> dict[str, Any]:
    """Run the driver in namespaces of its own, with the programs that are built already."""
    settings = current_settings()
    local.prepare(settings)
    (home / "bin").symlink_to(settings.binaries)
    driver = [sys.executable, "-m", "tests.cluster_tool.leftovers_driver", how]
    done = subprocess.run(
        [*NAMESPACES, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *driver],
        cwd=REPOSITORY,
        env={**os.environ, "SPECULATIVE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("how", ["down", "crash", "heal", "interrupted start"])
def test_a_cluster_that_ended_leaves_nothing_behind(how: str) -> None:
    # Not pytest's folder: its path is too long for containerd's sockets.
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        found = outcome(Path(folder), how)
    kinds = {entry.split(":")[0] for entry in found["during"]}
    assert kinds >= {"processes", "mounts", "links", "rules", "control_groups"}
    assert found["running"] >= 9, "seven programs, a shim and a pod's processes"
    assert found["left"] == []
