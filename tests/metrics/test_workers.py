"""Pods are asked at once, in time, and believed only as far as their answers can be read."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from aiohttp import web

from speculative_operator.metrics.source import Target, state_key
from speculative_operator.metrics.workers import Scraper

DIGEST = {"ready": True, "engineStartedAt": 1.0, "sampledAt": 2.0, "method": "NGram"}
STATE = {"envoyStartedAt": 1.0, "sampledAt": 2.0, "sequence": 3}

AT_ONCE = {"worker": 0.0, "gateway": 0.0}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pod:
    """A pod whose answer the test chooses; counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: Answer = self.digest
        self.asked = 0
        self.together = 0
        self.most_together = 0

    async def digest(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(DIGEST if request.path == "/digest" else STATE)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            return await self.answer(request)
        finally:
            self.together -= 1


@asynccontextmanager
async def a_scraper(pod: Pod, *, timeout: float = 1.0) -> AsyncIterator[tuple[Scraper, list[str]]]:
    application = web.Application()
    application.router.add_get("/{path:.*}", pod.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    failures: list[str] = []
    try:
        async with Scraper(
            timeout_seconds=timeout, worker_port=port, agent_port=port, on_failure=failures.append
        ) as scraper:
            yield scraper, failures
    finally:
        await runner.cleanup()


def worker(uid: str = "w", address: str = "127.0.0.1") -> Target:
    return Target(uid, address, "worker")


async def test_worker_and_agent_are_read_each_at_its_place() -> None:
    async with a_scraper(Pod()) as (scraper, failures):
        await scraper.ask([worker(), Target("g", "127.0.0.1", "gateway")])
        digest, state = scraper.digest("w"), scraper.state("g")
        assert digest is not None
        assert digest.engine_started_at == 1.0
        assert state is not None
        assert state.sequence == 3
        assert not failures
        assert scraper.silent_seconds("w") < 10


async def test_of_a_shared_gateway_each_members_part_is_asked_for() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        sequence = {"chat": 5, "code": 6}[request.query["member"]]
        return web.json_response(STATE | {"sequence": sequence})

    pod = Pod()
    pod.answer = answer
    asked = {name: state_key("g", name) for name in ("chat", "code")}
    async with a_scraper(pod) as (scraper, failures):
        await scraper.ask(
            Target(uid, "127.0.0.1", "gateway", member=name) for name, uid in asked.items()
        )
        found = {name: scraper.state(uid) for name, uid in asked.items()}
        assert {name: state and state.sequence for name, state in found.items()} == {
            "chat": 5,
            "code": 6,
        }
        assert not failures


@pytest.mark.parametrize(
    ("role", "changes"),
    [
        ("worker", '"generatedTokens": 1000000000000000000000000000000'),
        ("worker", '"acceptedTokens": -1'),
        ("worker", '"requestsFinished": "many"'),
        ("worker", '"engineStartedAt": NaN'),
        ("worker", '"sampledAt": Infinity'),
        ("gateway", '"sequence": 1000000000000000000000000000000'),
        ("gateway", '"envoyStartedAt": NaN'),
        ("gateway", '"clusters": [{"hash": "x", "weight": 101, "endpoints": 1, "active": 0}]'),
        ("gateway", '"clusters": [{"hash": "x", "weight": 5, "endpoints": 1, "active": -9}]'),
        (
            "gateway",
            '"clusters": [{"hash": "x", "weight": 5, "endpoints": 1, "active": 0, '
            '"responses": {"2xx": 1000000000000000000000000000000}}]',
        ),
    ],
)
async def test_a_figure_that_can_not_be_true_is_no_answer(
    role: Literal["worker", "gateway"], changes: str
) -> None:
    pod = Pod()

    async def answer(request: web.Request) -> web.StreamResponse:
        good = json.dumps(DIGEST if request.path == "/digest" else STATE)
        return web.Response(text=f"{good[:-1]}, {changes}}}", content_type="application/json")

    pod.answer = answer
    async with a_scraper(pod) as (scraper, failures):
        await scraper.ask([Target("p", "127.0.0.1", role)])
        assert failures == [role]
        assert (scraper.digest("p"), scraper.state("p")) == (None, None)


async def test_a_new_pod_is_asked_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # 8400.1 - (8400.1 - 0.3) is less than 0.3: the clock of a machine that is up for hours.
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 8400.1)
    async with a_scraper(Pod()) as (scraper, _):
        await scraper.ask([worker()])
        assert scraper.digest("w") is not None


async def test_all_are_asked_at_the_same_time() -> None:
    pod = Pod()
    everyone = asyncio.Event()

    async def together(request: web.Request) -> web.StreamResponse:
        if pod.together == 10:
            everyone.set()
        await everyone.wait()
        return await pod.digest(request)

    pod.answer = together
    async with a_scraper(pod, timeout=5) as (scraper, failures):
        await scraper.ask([worker(str(number)) for number in range(10)])
        assert pod.most_together == 10
        assert not failures


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(64):
        await response.write(b" " * 8192)
    return response


async def text(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>not a digest</html>")


async def negative(_: web.Request) -> web.StreamResponse:
    return web.json_response(DIGEST | {"generatedTokens": -1})


async def forwarding(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://169.254.169.254/secrets")


async def failing(_: web.Request) -> web.StreamResponse:
    return web.json_response(DIGEST, status=503)


@pytest.mark.parametrize("answer", [hang, endless, text, negative, forwarding, failing])
async def test_hostile_answer_is_no_answer_and_the_last_one_stays(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speculative_operator.metrics.workers.SHORTEST_INTERVAL", AT_ONCE)
    pod = Pod()
    async with a_scraper(pod) as (scraper, failures):
        await scraper.ask([worker()])
        pod.answer = answer
        await scraper.ask([worker()])
        assert failures == ["worker"]
        assert scraper.digest("w") is not None


async def test_pod_that_never_answered_is_silent_since_it_was_first_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("speculative_operator.metrics.workers.SHORTEST_INTERVAL", AT_ONCE)
    pod = Pod()
    pod.answer = hang
    async with a_scraper(pod, timeout=0.05) as (scraper, failures):
        await scraper.ask([worker()])
        await scraper.ask([worker()])
        assert len(failures) == 2
        assert scraper.digest("w") is None
        assert scraper.silent_seconds("w") >= 0.1
        assert scraper.silent_seconds("unknown") == 0.0


async def test_burst_of_passes_asks_a_pod_once() -> None:
    pod = Pod()
    async with a_scraper(pod) as (scraper, _):
        for _ in range(5):
            await scraper.ask([worker()])
        assert pod.asked == 1


async def test_old_digest_no_longer_counts_and_gone_pods_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("speculative_operator.metrics.workers.DIGEST_AGE", 0.0)
    monkeypatch.setattr("speculative_operator.metrics.workers.FORGOTTEN_AFTER", 0.0)
    async with a_scraper(Pod()) as (scraper, _):
        await scraper.ask([worker()])
        assert scraper.digest("w") is None
        await scraper.ask([worker("other")])
        assert scraper.silent_seconds("w") == 0.0
