"""The engine as a child process: output, exit, signals, orphans.

The engine runs in a process group of its own, without a shell. Its output
passes through to ours line by line, and its tail is kept for classification.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

_TAIL_LINES: Final = 400
_LINE_BYTES: Final = 65536
_Result = TypeVar("_Result")


class EngineEnded(Exception):
    """The engine's process ended while something was asked of it."""


class Engine:
    """One engine process, from its start to its end."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        output: asyncio.StreamReader,
        started_at: float,
        observer: Callable[[str], None] | None = None,
    ) -> None:
        self._process = process
        self._output = output
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._observer = observer
        self._pump = asyncio.create_task(self._forward())
        self._exit = asyncio.create_task(self._wait())
        self.started_at = started_at
        """Unix seconds."""

    @property
    def pid(self) -> int:
        """Process id, and the id of its process group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self._exit.done()

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        return "\n".join(self._tail)

    async def wait(self) -> int:
        """Waits for the end; the exit code, negative for a signal."""
        return await asyncio.shield(self._exit)

    async def while_alive(self, work: asyncio.Task[_Result]) -> _Result:
        """The result of `work`, unless the engine ends first.

        Raises `EngineEnded` then, after cancelling `work`.
        """
        try:
            await asyncio.wait({work, self._exit}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
        finally:
            if not work.done():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work
        raise EngineEnded

    async def stop(self, *, within_seconds: float) -> int:
        """Ends the engine: SIGTERM, and SIGKILL to its whole group if it stays.

        Returns the exit code.
        """
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), within_seconds)
        self.kill()
        return await self.wait()

    def kill(self) -> None:
        """Sends SIGKILL to the whole group, helpers that outlived the engine included."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Only the leader: engines stop their own helpers in order.
        with contextlib.suppress(ProcessLookupError):
            if self.is_alive:
                self._process.send_signal(number)

    async def _wait(self) -> int:
        code = await self._process.wait()
        # Helpers may hold the pipe and the GPU; nothing of the group may stay.
        self.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._pump), 2)
        return code

    async def _forward(self) -> None:
        while line := await _next_line(self._output):
            text = line.decode(errors="replace").rstrip("\n")
            self._tail.append(text)
            if self._observer is not None:
                self._observer(text)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


def environment_for(method: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The engine's environment: the inherited one, and what it lacks for a speculation method.

    vLLM looks n-grams up on one thread (0.18 to 0.32, `v1/spec_decode/ngram_proposer.py`), but
    the library that compiles this starts one for each processor, and those that have nothing to
    do poll: a third of a core of two (0.32.0).
    """
    return {"NUMBA_NUM_THREADS": "1", **inherited} if method == "NGram" else dict(inherited)


async def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    now: float,
    observer: Callable[[str], None] | None = None,
) -> Engine:
    """Starts the engine; `now` is the Unix time noted as its start.

    Args:
        observer: sees every line of its output.

    Raises `OSError` when the program cannot be run.
    """
    # A pipe of our own: asyncio's `wait` would wait for the end of a pipe it made, and a helper
    # that outlives the engine holds it open.
    read_end, write_end = os.pipe()
    try:
        output = await _reader(read_end)
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(write_end)
    return Engine(process, output=output, started_at=now, observer=observer)


async def _reader(read_end: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    return reader


async def _next_line(stream: asyncio.StreamReader) -> bytes:
    """One line; a longer one than the buffer in pieces; empty at the end."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(max(1, error.consumed))


def reap_orphans(*, keep: int) -> int:
    """Reaps ended children other than `keep`; returns how many.

    As PID 1 the worker inherits the engine's orphans. `keep` is the engine
    itself, whose exit status belongs to asyncio. Looking with WNOWAIT takes
    no status away; the engine's own pending status ends the look, and the
    next SIGCHLD continues it.
    """
    reaped = 0
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return reaped
        if found is None or found.si_pid == keep:
            return reaped
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.si_pid, os.WNOHANG)
            reaped += 1


def out_of_memory_kills(root: Path = Path("/sys/fs/cgroup")) -> int:
    """How often the kernel killed a process of this container for memory; 0 if unknown.

    Source: `memory.events` (cgroup v2) or `memory/memory.oom_control` (v1),
    field `oom_kill`.
    """
    for name in ("memory.events", "memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in (root / name).read_text().splitlines():
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0
