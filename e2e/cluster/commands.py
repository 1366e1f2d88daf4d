"""Run other programs, and tell the person waiting what happens and for how long.

Output of a long command goes to a log file; its tail is in the error. On a
terminal one line is rewritten, in a log a line appears now and then.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .settings import ClusterError

LOG_LINE_EVERY_SECONDS = 15.0
"""How often a waiting line is printed where there is no terminal."""


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


class Waiting:
    """Shows that one thing is going on; made by `waiting`."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.started = time.monotonic()
        self.printed = self.started
        self.terminal = sys.stdout.isatty()

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.started

    def tick(self, detail: str = "") -> None:
        """Show progress; call as often as you like."""
        suffix = f": {detail}" if detail else ""
        if self.terminal:
            line = f"  {self.label} … {self.elapsed_seconds:.0f} s{suffix}"
            print(f"\r\x1b[K{line[:150]}", end="", flush=True)
        elif time.monotonic() - self.printed >= LOG_LINE_EVERY_SECONDS:
            self.printed = time.monotonic()
            say(f"  {self.label} … {self.elapsed_seconds:.0f} s{suffix}")


@contextmanager
def waiting(label: str, *, quiet_below_seconds: float = 2.0) -> Iterator[Waiting]:
    """Announce a thing that may take long, and say at its end how long it took."""
    shown = Waiting(label)
    if not shown.terminal and quiet_below_seconds == 0:
        say(f"  {label} …")
    try:
        yield shown
    except BaseException:
        if shown.terminal:
            print("\r\x1b[K", end="")
        say(f"  {label}: failed after {shown.elapsed_seconds:.1f} s")
        raise
    if shown.terminal:
        print("\r\x1b[K", end="", flush=True)
    if shown.elapsed_seconds >= quiet_below_seconds:
        say(f"  {shown.label}: {shown.elapsed_seconds:.1f} s")


def tail(path: Path, lines: int = 25) -> str:
    """Return the last lines of a text file, or say that there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"({path} does not exist)"
    return "\n".join(text.splitlines()[-lines:])


def run_logged(
    argv: Sequence[str],
    *,
    label: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> None:
    """Run a long command with its output in a log file.

    Raises:
        ClusterError: it failed or is missing; with the tail of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, waiting(label) as shown:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
            )
        except FileNotFoundError as error:
            raise ClusterError(f"{label}: {argv[0]} is not installed") from error
        try:
            while True:
                try:
                    status = process.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    shown.tick(last_line(log))
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if status != 0:
            raise ClusterError(f"{label}: exit status {status}; end of {log}:\n{tail(log)}")


def last_line(log: Path) -> str:
    """Return the last non-empty line of the last 2 KiB of a log."""
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 2048))
        lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    return next((line.strip()[:90] for line in reversed(lines) if line.strip()), "")


def output_of(argv: Sequence[str], *, input_text: str | None = None) -> str:
    """Run a short command and return what it prints.

    Raises:
        ClusterError: it failed or is missing; with what it said.
    """
    try:
        done = subprocess.run(argv, input=input_text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ClusterError(f"{argv[0]} is not installed") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise ClusterError(f"{' '.join(argv[:6])}: exit status {done.returncode}: {said}")
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Whether a short command exits with 0; False where it is missing."""
    try:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def wait_until(
    condition: Callable[[], bool],
    *,
    label: str,
    seconds: float,
    why_not: Callable[[], str],
) -> None:
    """Wait for a condition, looking ten times a second.

    Raises:
        ClusterError: it did not come true in time; with what `why_not` returns.
    """
    with waiting(label) as shown:
        while not condition():
            if shown.elapsed_seconds > seconds:
                raise ClusterError(f"{label}: not after {seconds:.0f} s.\n{why_not()}")
            shown.tick()
            time.sleep(0.1)
