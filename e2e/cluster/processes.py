"""Start and end the cluster's own processes by recorded pid.

A record is written before a process starts and again with its pid and start
time after. A pid whose start time (field 22 of /proc/PID/stat) differs was
reused by someone else and is never signalled. Where the starter died between
the two writes, the process is found by its exact command line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .commands import tail
from .settings import ClusterError


@dataclass(frozen=True, slots=True)
class Recorded:
    """One process that we started."""

    name: str
    argv: tuple[str, ...]
    pid: int
    """0: the record was written, the process not yet known."""
    start_ticks: int
    """Clock ticks after boot, so a pid together with it is unique."""


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks; None for none or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold blanks and parentheses itself.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def command_line(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process, empty where it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode(errors="replace") for part in raw.split(b"\0")[:-1])


def all_pids() -> list[int]:
    """Return the pids there are now."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _write(folder: Path, record: Recorded) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{record.name}.new"
    temporary.write_text(json.dumps(asdict(record)), encoding="utf-8")
    temporary.replace(folder / f"{record.name}.json")


def recorded(folder: Path) -> list[Recorded]:
    """Return every record in a folder, by name."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            found.append(Recorded(**{**value, "argv": tuple(value["argv"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise ClusterError(f"{path} is not a process record: {error}; remove it") from error
    return found


def live_pid(record: Recorded) -> int | None:
    """Return the pid of a recorded process while it runs."""
    if record.pid:
        return record.pid if start_ticks(record.pid) == record.start_ticks else None
    for pid in all_pids():
        if command_line(pid) == record.argv and start_ticks(pid) is not None:
            return pid
    return None


def require_live(folder: Path, name: str, log: Path) -> None:
    """Check a program while waiting for what it does.

    Raises:
        ClusterError: it ended; with the end of its log.
    """
    live = (live_pid(record) for record in recorded(folder) if record.name == name)
    if not any(live):
        raise ClusterError(f"{name} ended; end of {log}:\n{tail(log)}")


FIRST = -10
"""Niceness of the control plane and the kubelet: engines that take every core must not make the
API server miss leases. Not for containerd: every container would inherit it."""


def start(
    folder: Path, *, name: str, argv: Sequence[str], log: Path, niceness: int = 0
) -> Recorded:
    """Start a process of its own session, recorded.

    Raises:
        ClusterError: the program is missing.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    _write(folder, Recorded(name=name, argv=tuple(argv), pid=0, start_ticks=0))
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        streams = ((nothing.fileno(), 0), (output.fileno(), 1), (output.fileno(), 2))
        if shutil.which(argv[0]) is None:
            raise ClusterError(f"{argv[0]} is missing")
        # `nice` becomes the program, with all its threads; without the right it only warns.
        command = ["nice", "-n", str(niceness), *argv] if niceness else list(argv)
        try:
            # Not subprocess: it warns where a process outlives the object that started it.
            pid = os.posix_spawnp(
                command[0],
                command,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in streams],
                setsid=True,
            )
        except FileNotFoundError as error:
            raise ClusterError(f"{command[0]} is missing") from error
    ticks = start_ticks(pid)
    record = Recorded(name=name, argv=tuple(argv), pid=pid, start_ticks=ticks or -1)
    _write(folder, record)
    return record


def _signal(pid: int, ticks: int, number: int) -> None:
    if start_ticks(pid) == ticks:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def end(pids: Iterable[int], *, patience_seconds: float) -> None:
    """End processes: TERM, then KILL after a while; returns when they are gone.

    Raises:
        ClusterError: one survives KILL for 10 seconds.
    """
    waited = {pid: ticks for pid in pids if (ticks := start_ticks(pid)) is not None}
    for number, patience in ((signal.SIGTERM, patience_seconds), (signal.SIGKILL, 10.0)):
        for pid, ticks in waited.items():
            _signal(pid, ticks, number)
        deadline = time.monotonic() + patience
        while waited and time.monotonic() < deadline:
            for pid in waited:
                _reap(pid)
            waited = {pid: ticks for pid, ticks in waited.items() if start_ticks(pid) == ticks}
            time.sleep(0.02)
        if not waited:
            return
    raise ClusterError(f"processes {sorted(waited)} do not end")


def _reap(pid: int) -> None:
    """Collect a child of this process that ended; others are their parent's."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def end_recorded(folder: Path, *, names: Sequence[str], patience_seconds: float) -> None:
    """End recorded processes together and forget them."""
    records = [record for record in recorded(folder) if record.name in names]
    pids = [pid for record in records if (pid := live_pid(record)) is not None]
    end(pids, patience_seconds=patience_seconds)
    for record in records:
        (folder / f"{record.name}.json").unlink(missing_ok=True)
