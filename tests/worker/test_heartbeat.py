"""Heartbeats: sent to an idle engine only, not counted, and a stall when they get no answer."""

import asyncio
import contextlib

import pytest
from tests.worker.a_worker import a_worker

from speculative_api.engine_metrics import reading
from speculative_worker import heartbeat as beats
from speculative_worker.engine_client import EngineSilent
from speculative_worker.heartbeat import Heartbeat


class Engine:
    """An engine that counts its requests; stands in for `EngineClient`."""

    def __init__(self, *, busy=False, answers=True, status=200, others=0):
        self.finished = 10
        self.asked = []
        self._busy, self._answers, self._status, self._others = busy, answers, status, others

    async def fresh_sample(self):
        if self._busy:
            self.finished += 1
        return reading(
            f"vllm:request_success_total {self.finished}\n"
            f"vllm:prompt_tokens_total {10 * self.finished}\n"
            f"vllm:generation_tokens_total {100 * self.finished}\n"
            "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
            f'vllm:time_to_first_token_seconds_bucket{{le="1.0"}} {self.finished}\n'
            f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {self.finished}\n'
            f"vllm:time_to_first_token_seconds_sum {self.finished}\n"
            f"vllm:time_to_first_token_seconds_count {self.finished}\n"
        )

    async def load(self):
        return (await self.fresh_sample()).loads

    async def complete(self, request):
        self.asked.append(request)
        if not self._answers:
            raise EngineSilent("nobody")
        self.finished += 1 + self._others
        return self._status, ""


async def beaten(engine, times=1):
    """Runs until so many looks have passed; the heartbeat and what it said of silence."""
    heartbeat = Heartbeat(engine, model="chat", period_seconds=0.001)
    said = []
    running = asyncio.create_task(heartbeat.run(said.append))
    async with asyncio.timeout(10):
        while len(engine.asked) < times or len(said) < times:  # noqa: ASYNC110 (nothing sets one)
            await asyncio.sleep(0.001)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return heartbeat, said


async def test_what_the_engine_counts_for_it_is_taken_out():
    engine = Engine()
    heartbeat, said = await beaten(engine, times=3)
    found = heartbeat.without(await engine.fresh_sample())
    # The last beat may be cut short by the test's end.
    assert found.requests_finished in (10, 11)
    assert found.generated_tokens == 100 * found.requests_finished
    assert found.time_to_first_token_seconds.count == found.requests_finished
    assert engine.asked[0]["max_tokens"] == 1
    assert set(said) == {None}


async def test_counters_never_fall():
    engine = Engine()
    heartbeat = Heartbeat(engine, model="chat", period_seconds=0.001)
    running = asyncio.create_task(heartbeat.run(lambda _: None))
    seen = []
    async with asyncio.timeout(10):
        while len(engine.asked) < 5:
            seen.append(heartbeat.without(await engine.fresh_sample()).requests_finished)
            await asyncio.sleep(0)
    running.cancel()
    assert seen == sorted(seen)


async def test_a_busy_engine_is_left_alone():
    engine = Engine(busy=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await Heartbeat(engine, model="chat", period_seconds=0.001).run(lambda _: None)
    assert engine.asked == []


async def test_a_users_request_at_the_same_time_stays_counted():
    engine = Engine(others=1)
    heartbeat, _ = await beaten(engine)
    found = heartbeat.without(await engine.fresh_sample())
    assert found.requests_finished == engine.finished


async def test_no_answer_is_a_stall_with_its_rule():
    _, said = await beaten(Engine(answers=False))
    assert "the heartbeat of an idle engine got no answer" in said[0]


async def test_an_engine_that_hangs_is_a_stall(monkeypatch):
    monkeypatch.setattr(beats, "ANSWER_SECONDS", 0.01)
    engine = Engine()

    async def never(request):
        engine.asked.append(request)
        await asyncio.Event().wait()

    engine.complete = never
    _, said = await beaten(engine)
    assert "TimeoutError" in said[0]


async def test_an_error_is_a_stall():
    _, said = await beaten(Engine(status=500))
    assert "answered with 500" in said[0]


async def test_a_silence_is_asked_again_soon_and_ended_by_an_answer(monkeypatch):
    monkeypatch.setattr(beats, "AGAIN_SECONDS", 0.001)
    engine = Engine(status=503)
    said = []

    def silent(rule):
        said.append(rule)
        engine._status = 200

    heartbeat = Heartbeat(engine, model="chat", period_seconds=0.2)
    running = asyncio.create_task(heartbeat.run(silent))
    async with asyncio.timeout(10):
        while len(said) < 2:  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0.001)
    running.cancel()
    assert "answered with 503" in said[0]
    assert said[1] is None
    # Two looks of its period before the first beat, and none before the second.
    assert len(engine.asked) == 2


async def test_a_silence_ends_with_a_users_token_too(monkeypatch):
    monkeypatch.setattr(beats, "AGAIN_SECONDS", 0.001)
    engine = Engine(status=500)
    said = []

    def silent(rule):
        said.append(rule)
        engine._busy = True

    heartbeat = Heartbeat(engine, model="chat", period_seconds=0.001)
    running = asyncio.create_task(heartbeat.run(silent))
    async with asyncio.timeout(10):
        while len(said) < 2:  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0.001)
    running.cancel()
    assert said[1] is None
    assert len(engine.asked) == 1


@pytest.mark.slow
async def test_a_worker_beats_and_does_not_count_it(tmp_path):
    async with a_worker(tmp_path, heartbeatSeconds=1) as worker:
        await worker.until("/readyz", 200)
        async with asyncio.timeout(30):
            while await finished(worker) < 5:  # noqa: ASYNC110 (nothing sets an event)
                await asyncio.sleep(0.1)
        await worker.digest_when(lambda found: found["requestsFinished"] == 3)


async def finished(worker) -> int:
    async with worker.session.get(worker.engine_url + "/metrics") as answer:
        return reading(await answer.text()).requests_finished or 0
