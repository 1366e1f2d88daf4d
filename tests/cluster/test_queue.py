"""One pass per key at a time, next looks, backoff, nothing remembered of the gone (H30)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.cluster.waiting import until

from speculative_operator.cluster.queue import Queue
from speculative_operator.cluster.resources import Key
from speculative_operator.errors import Conflict, Unavailable

CHAT: Key = ("llm", "chat")


class Passes:
    """A pass that does as told and counts."""

    def __init__(self, *answers: float | Exception | None) -> None:
        self.answers = list(answers)
        self.keys: list[Key] = []
        self.at: list[float] = []
        self.running = 0
        self.most = 0
        self.block: asyncio.Event | None = None

    async def __call__(self, key: Key) -> float | None:
        self.keys.append(key)
        self.at.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.block is not None:
                await self.block.wait()
        finally:
            self.running -= 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def running(passes: Passes, **settings: Any) -> AsyncIterator[Queue]:
    queue = Queue(passes, settle=0.001, **settings)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_burst_of_changes_makes_one_pass() -> None:
    passes = Passes()
    async with running(passes) as queue:
        for _ in range(50):
            queue.wake(CHAT)
        await until(lambda: passes.keys and not len(queue))
        assert passes.keys == [CHAT]


async def test_change_during_a_pass_makes_one_more_after_it() -> None:
    passes = Passes()
    passes.block = asyncio.Event()
    async with running(passes) as queue:
        queue.wake(CHAT)
        await until(lambda: passes.running)
        queue.wake(CHAT)
        queue.wake(CHAT)
        passes.block.set()
        await until(lambda: len(passes.keys) == 2 and not len(queue))
        assert passes.most == 1


async def test_keys_run_side_by_side_up_to_the_number_of_workers() -> None:
    passes = Passes()
    passes.block = asyncio.Event()
    async with running(passes, workers=3) as queue:
        for number in range(5):
            queue.wake(("llm", str(number)))
        await until(lambda: passes.running == 3)
        passes.block.set()
        await until(lambda: len(passes.keys) == 5)
        assert passes.most == 3


async def test_next_look_comes_without_any_event() -> None:
    passes = Passes(0.05, None)
    async with running(passes) as queue:
        queue.wake(CHAT)
        await until(lambda: len(passes.keys) == 2)
        assert passes.at[1] - passes.at[0] >= 0.05


async def test_a_persons_word_comes_before_looks_that_are_due_but_not_before_those_that_wait() -> (
    None
):
    passes = Passes()
    queue = Queue(passes, settle=0.0, workers=1)
    queue._schedule(("llm", "waits"), -5.0)
    for name in ("a", "b", "c"):
        queue.wake(("llm", name))
    queue.wake(("llm", "aborted"), True)
    task = asyncio.create_task(queue.run())
    await until(lambda: len(passes.keys) == 5)
    task.cancel()
    assert [name for _, name in passes.keys] == ["waits", "aborted", "a", "b", "c"]


async def test_a_persons_word_waits_for_no_pass_of_others() -> None:
    """All of those may be waiting for pods that do not answer."""
    passes = Passes()
    passes.block = asyncio.Event()
    async with running(passes, workers=2) as queue:
        for number in range(4):
            queue.wake(("llm", str(number)))
        await until(lambda: passes.running == 2)
        queue.wake(CHAT, True)
        await until(lambda: passes.keys[-1] == CHAT)
        assert passes.running == 3
        # nor is one in two lanes at once
        queue.wake(CHAT, True)
        passes.block.set()
        await until(lambda: passes.keys.count(CHAT) == 2 and not len(queue))
        assert sorted(passes.keys).count(("llm", "3")) == 1


async def test_a_persons_word_waits_for_no_burst_also_during_a_pass() -> None:
    passes = Passes()
    passes.block = asyncio.Event()
    queue = Queue(passes, settle=60.0)
    task = asyncio.create_task(queue.run())
    queue.wake(CHAT, True)
    await until(lambda: passes.running)
    queue.wake(CHAT, True)
    queue.wake(CHAT)
    passes.block.set()
    await until(lambda: len(passes.keys) == 2)
    task.cancel()


async def test_gone_key_is_forgotten() -> None:
    passes = Passes()
    async with running(passes) as queue:
        for number in range(500):
            queue.wake(("llm", str(number)))
        await until(lambda: len(passes.keys) == 500 and not len(queue))
        assert not queue._due
        assert not queue._failures
        assert not queue._heap
        assert not queue._dirty


async def test_a_conflict_is_looked_at_again_at_once_and_then_ever_later() -> None:
    """Somebody wrote during the pass, perhaps an abort."""
    passes = Passes(*[Conflict("409", 409)] * 4, None)
    async with running(passes, first_backoff=30) as queue:
        queue.wake(CHAT)
        await until(lambda: len(passes.keys) == 5)
        waits = [b - a for a, b in zip(passes.at, passes.at[1:], strict=False)]
        least = [0.01, 0.02, 0.04, 0.08]
        assert all(wait >= bound for wait, bound in zip(waits, least, strict=True)), waits


async def test_failures_wait_longer_each_time_and_events_do_not_shorten_it() -> None:
    passes = Passes(*[Unavailable("503")] * 5, None)
    async with running(passes, first_backoff=0.02, longest_backoff=0.08) as queue:
        queue.wake(CHAT)
        loop = asyncio.get_running_loop()
        limit = loop.time() + 5
        while len(passes.keys) < 6 and loop.time() < limit:
            queue.wake(CHAT)
            await asyncio.sleep(0.001)
        waits = [b - a for a, b in zip(passes.at, passes.at[1:], strict=False)]
        least = [0.02, 0.04, 0.08, 0.08, 0.08]
        assert all(wait >= floor for wait, floor in zip(waits, least, strict=True))


async def test_fix_by_a_person_is_handled_at_once() -> None:
    passes = Passes(RuntimeError("a bug"), None)
    async with running(passes, first_backoff=60) as queue:
        queue.wake(CHAT)
        await until(lambda: len(passes.keys) == 1 and not passes.running)
        queue.wake(CHAT)
        queue.wake(CHAT, True)
        await until(lambda: len(passes.keys) == 2)


async def test_failure_of_one_object_stops_no_other() -> None:
    passes = Passes(RuntimeError("a bug"), Conflict("409"), None, None, None)
    async with running(passes, workers=1, first_backoff=0.01) as queue:
        for number in range(3):
            queue.wake(("llm", str(number)))
        await until(lambda: len(passes.keys) == 5)
        assert sorted(set(passes.keys)) == [("llm", "0"), ("llm", "1"), ("llm", "2")]


async def test_hastened_key_comes_before_those_that_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = Passes()
    queue = Queue(passes, settle=0.0, workers=1)
    for number in range(3):
        queue.wake(("llm", str(number)))
    # The lists of a start took longer than any fixed lead.
    clock = asyncio.get_running_loop().time
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock() + 60)
    queue.hasten(("llm", "2"))
    task = asyncio.create_task(queue.run())
    try:
        await until(lambda: len(passes.keys) == 3)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert [name for _, name in passes.keys] == ["2", "0", "1"]


async def test_passes_that_wait_for_nothing_leave_a_turn_to_everybody_else() -> None:
    done: list[Key] = []
    seen_by_others: list[int] = []

    async def work(key: Key) -> None:
        done.append(key)

    queue = Queue(work, workers=2, settle=0.0)
    for number in range(100):
        queue.wake(("llm", f"r{number}"))
    task = asyncio.create_task(queue.run())
    while len(done) < 100:
        await asyncio.sleep(0)
        seen_by_others.append(len(done))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(set(seen_by_others)) > 40
