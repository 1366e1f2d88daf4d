"""The engine as a child process: output, end, group, orphans; and the drain."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from speculative_worker import engine as engines
from speculative_worker.drain import drain
from speculative_worker.engine import EngineEnded


async def start(script: str) -> engines.Engine:
    return await engines.start(
        [sys.executable, "-S", "-c", script], environment=os.environ, now=time.time()
    )


@pytest.mark.parametrize(
    ("method", "inherited", "expected"),
    [
        pytest.param("NGram", {"A": "b"}, {"A": "b", "NUMBA_NUM_THREADS": "1"}, id="one thread"),
        pytest.param("NGram", {"NUMBA_NUM_THREADS": "2"}, {"NUMBA_NUM_THREADS": "2"}, id="said"),
        pytest.param("DraftModel", {"A": "b"}, {"A": "b"}, id="nothing is looked up"),
    ],
)
def test_the_engine_gets_no_threads_that_only_poll(method, inherited, expected):
    assert engines.environment_for(method, inherited) == expected


async def test_output_passes_through_and_its_tail_is_kept(capsys):
    engine = await start("for i in range(500): print('line', i)\nraise SystemExit(7)")
    assert await engine.wait() == 7
    assert engine.tail.splitlines() == [f"line {number}" for number in range(100, 500)]
    assert capsys.readouterr().out.splitlines()[0] == "line 0"


async def test_a_line_longer_than_the_buffer_is_no_error():
    engine = await start("print('x' * 300_000)\nprint('end')")
    assert await engine.wait() == 0
    assert engine.tail.endswith("end")
    assert engine.tail.count("x") == 300_000


async def test_an_end_cuts_short_what_was_asked_of_the_engine():
    engine = await start("pass")
    with pytest.raises(EngineEnded):
        await engine.while_alive(asyncio.create_task(asyncio.Event().wait()))
    assert not engine.is_alive


async def test_an_engine_that_ignores_sigterm_is_killed():
    engine = await start(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\n"
        "time.sleep(600)"
    )
    while "deaf" not in engine.tail:  # noqa: ASYNC110 (nothing sets an event)
        await asyncio.sleep(0.01)
    assert await engine.stop(within_seconds=0.1) == -9


async def test_helpers_of_the_engine_go_with_it():
    engine = await start(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)"
    )
    await asyncio.wait_for(engine.wait(), 30)
    assert has_ended(int(engine.tail))


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or a zombie that waits for whoever inherited it."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
    return False


def test_orphans_are_reaped_and_the_engine_is_left_to_its_waiter():
    script = (
        "import os, subprocess, sys, time\n"
        "from speculative_worker.engine import reap_orphans\n"
        "for _ in range(3): os.posix_spawnp('true', ['true'], os.environ)\n"
        "engine = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "reaped = 0\n"
        "while reaped < 3: reaped += reap_orphans(keep=engine.pid)\n"
        "engine.stdin.close()\n"
        "os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)\n"
        "assert reap_orphans(keep=engine.pid) == 0\n"
        "assert engine.wait() == 0\n"
        "print(reaped)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize(
    "name, text, kills",
    [
        ("memory.events", "low 0\noom 2\noom_kill 2\n", 2),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("other", "oom_kill 5\n", 0),
    ],
)
def test_kills_by_the_kernel_are_counted(tmp_path, name, text, kills):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert engines.out_of_memory_kills(tmp_path) == kills


class EngineWithLoad:
    """Answers with these loads in turn, the last one for ever."""

    def __init__(self, *loads: int) -> None:
        self.loads = list(loads)
        self.looks = 0

    async def running(self) -> int:
        self.looks += 1
        return self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]


async def drained(engine: EngineWithLoad, *, drain_seconds: float, hopeless: bool = False) -> bool:
    return await drain(
        engine.running,
        follow_seconds=0,
        drain_seconds=drain_seconds,
        look_seconds=0.01,
        is_hopeless=lambda: hopeless,
    )


async def test_drain_waits_until_the_engine_was_idle_twice_in_a_row():
    engine = EngineWithLoad(2, 0, 1, 0, 0)
    assert await drained(engine, drain_seconds=10) is True
    assert engine.looks == 5


async def test_drain_gives_up_when_its_time_is_over():
    assert await drained(EngineWithLoad(1), drain_seconds=0.05) is False


async def test_drain_does_not_wait_for_a_stalled_engine():
    assert await drained(EngineWithLoad(1), drain_seconds=600, hopeless=True) is False
