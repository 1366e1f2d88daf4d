"""The doorbell rings once per request that wakes, whatever an agent answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web
from tests.builders import a_gateway

from speculative_api.gateway import Activity
from speculative_operator.metrics.doorbell import Doorbell
from speculative_operator.snapshot import GatewayPod

KEY = ("llm", "chat")


@dataclass
class Agent:
    """Answers `/wake` with what it is given, in order; then with nothing."""

    answers: list[web.Response] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    async def wake(self, request: web.Request) -> web.Response:
        self.asked.append(request.query["seen"])
        self.members.append(request.query.get("member", ""))
        self.heard.set()
        if self.answers:
            return self.answers.pop(0)
        await asyncio.sleep(60)
        raise AssertionError("nobody waits so long")


@asynccontextmanager
async def an_agent(*answers: web.Response) -> AsyncIterator[Agent]:
    agent = Agent(list(answers))
    application = web.Application()
    application.router.add_get("/wake", agent.wake)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        agent.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        yield agent
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_doorbell(
    agent: Agent,
) -> AsyncIterator[tuple[Doorbell, asyncio.Queue[tuple[str, str]]]]:
    rung: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    bell = Doorbell(rung.put_nowait, port=agent.port, pause_seconds=0.001)
    try:
        yield bell, rung
    finally:
        await bell.close()


def at(seen: float | None) -> GatewayPod:
    pod = replace(a_gateway(), address="127.0.0.1")
    assert pod.state is not None
    activity = Activity(since=1, requested_at=seen)
    return replace(pod, state=pod.state.model_copy(update={"activity": activity}))


def asked_at(moment: float) -> web.Response:
    return web.json_response({"since": 1, "requestedAt": moment})


async def until_asked(agent: Agent, times: int) -> None:
    async with asyncio.timeout(10):
        while len(agent.asked) < times:
            agent.heard.clear()
            await agent.heard.wait()


async def test_a_request_rings_once_and_the_next_question_knows_of_it() -> None:
    async with an_agent(asked_at(7.25)) as agent, a_doorbell(agent) as (bell, rung):
        bell.listen(KEY, [at(None)])
        assert await asyncio.wait_for(rung.get(), 10) == KEY
        await until_asked(agent, 2)
        assert agent.asked == ["", "7.25"]
        assert rung.empty()


async def test_at_a_shared_gateway_a_member_s_own_requests_are_asked_for() -> None:
    async with an_agent() as agent, a_doorbell(agent) as (bell, _):
        bell.listen(KEY, [at(None)], shared=True)
        await until_asked(agent, 1)
        bell.listen(KEY, [at(None)])
        await until_asked(agent, 2)
        assert agent.members == ["chat", ""]


async def test_listening_again_asks_no_second_question() -> None:
    async with an_agent() as agent, a_doorbell(agent) as (bell, _):
        for _ in range(3):
            bell.listen(KEY, [at(5.5)])
        await until_asked(agent, 1)
        assert agent.asked == ["5.5"]


async def test_bad_answers_ring_nothing_and_end_nothing() -> None:
    bad = [
        web.Response(status=204),
        web.Response(status=404),
        web.Response(status=302, headers={"location": "/elsewhere"}),
        web.Response(text="not json"),
        web.json_response({"since": "NaN", "requestedAt": -4}),
        web.Response(text="[" * 100_000),
        asked_at(9.0),
    ]
    async with an_agent(*bad) as agent, a_doorbell(agent) as (bell, rung):
        bell.listen(KEY, [at(5.0)])
        assert await asyncio.wait_for(rung.get(), 10) == KEY
        assert agent.asked[: len(bad)] == ["5.0"] * len(bad)
        assert rung.empty()


async def test_who_is_not_released_is_not_listened_at() -> None:
    async with an_agent() as agent, a_doorbell(agent) as (bell, _):
        bell.listen(KEY, [at(None)])
        await until_asked(agent, 1)
        bell.listen(KEY, [])
        bell.listen(KEY, [at(3.0)])
        await until_asked(agent, 2)
        assert agent.asked == ["", "3.0"]
