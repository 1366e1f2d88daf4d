"""Ending the cluster's processes never touches a process that is not ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import processes
from e2e.cluster.settings import ClusterError

WAITING = [sys.executable, "-c", "import sys; sys.stdin.read()"]
IGNORING_TERM = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); signal.pause()",
]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that someone else started."""
    with subprocess.Popen(WAITING, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def record_of(folder: Path, name: str) -> dict[str, object]:
    value: dict[str, object] = json.loads((folder / f"{name}.json").read_text())
    return value


def test_a_started_process_is_found_and_ended(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import signal; signal.pause()"]
    started = processes.start(tmp_path, name="one", argv=argv, log=tmp_path / "log")
    assert processes.live_pid(processes.recorded(tmp_path)[0]) == started.pid

    processes.end_recorded(tmp_path, names=["one"], patience_seconds=5)

    assert processes.start_ticks(started.pid) is None
    assert processes.recorded(tmp_path) == []


def test_a_process_that_ignores_term_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(IGNORING_TERM, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        processes.end([process.pid], patience_seconds=0.1)
        assert processes.start_ticks(process.pid) is None


def test_a_reused_pid_is_never_ended(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    ticks = processes.start_ticks(bystander.pid)
    assert ticks is not None
    record = {"name": "one", "argv": WAITING, "pid": bystander.pid, "start_ticks": ticks - 1}
    (tmp_path / "one.json").write_text(json.dumps(record))

    processes.end_recorded(tmp_path, names=["one"], patience_seconds=0.1)

    assert bystander.poll() is None
    assert processes.recorded(tmp_path) == []


def test_a_process_whose_starter_died_before_recording_its_pid_is_found(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import signal; signal.pause()", str(tmp_path)]
    started = processes.start(tmp_path, name="one", argv=argv, log=tmp_path / "log")
    record = record_of(tmp_path, "one") | {"pid": 0, "start_ticks": 0}
    (tmp_path / "one.json").write_text(json.dumps(record))
    # The child has the interpreter's command line only once it runs the program.
    while processes.command_line(started.pid) != tuple(argv):
        assert processes.start_ticks(started.pid) is not None

    assert processes.live_pid(processes.recorded(tmp_path)[0]) == started.pid

    processes.end_recorded(tmp_path, names=["one"], patience_seconds=5)
    assert processes.start_ticks(started.pid) is None


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(ClusterError, match=r"one\.json is not a process record"):
        processes.recorded(tmp_path)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="/no/such/program is missing"):
        processes.start(tmp_path, name="one", argv=["/no/such/program"], log=tmp_path / "log")
