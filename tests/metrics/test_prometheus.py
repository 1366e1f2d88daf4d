"""Bad sources are never a pass and never a failure, and delay no pass."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from speculative_api.v1alpha1 import Analysis, SecretKey
from speculative_operator.analysis.queried import Measurement
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.prometheus import LARGEST_ANSWER, Queries, filled, measurement

PLACE = ("llm", "chat")
WORDS = {"canary": "a01c000000", "stable": "6f9d000000", "name": "chat", "namespace": "llm"}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def vector(*values: str) -> dict[str, Any]:
    """What Prometheus says of an instant query; the shape is that of its API's documents."""
    result = [
        {"metric": {"__name__": "up", "pod": f"p-{index}"}, "value": [1435781451.781, value]}
        for index, value in enumerate(values)
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def scalar(value: str) -> dict[str, Any]:
    data = {"resultType": "scalar", "result": [1435781451.781, value]}
    return {"status": "success", "data": data, "warnings": ["w"], "infos": ["i"]}


REFUSED = {"status": "error", "errorType": "bad_data", "error": "1:5: parse error: unexpected end"}


class FakePrometheus:
    """`/api/v1/query` as Prometheus serves it, with an answer that the test chooses."""

    def __init__(self) -> None:
        self.answer: Any = vector("0.7")
        self.status = 200
        self.asked: list[tuple[str, str]] = []
        self.handler: Answer | None = None
        self.arrived = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        self.asked.append((str(form["query"]), request.headers.get("Authorization", "")))
        self.arrived.set()
        if self.handler is not None:
            return await self.handler(request)
        text = self.answer if isinstance(self.answer, str) else json.dumps(self.answer)
        return web.Response(text=text, status=self.status, content_type="application/json")


async def no_secret(namespace: str, wanted: SecretKey) -> str:
    raise NotReadable(f"Secret {wanted.name} does not exist in namespace {namespace}")


@asynccontextmanager
async def a_client(
    fake: FakePrometheus, read_secret: Callable[[str, SecretKey], Awaitable[str]] = no_secret
) -> AsyncIterator[tuple[Queries, str]]:
    application = web.Application()
    application.router.add_post("/prefix/api/v1/query", fake.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Queries(read_secret) as client:
            yield client, f"http://127.0.0.1:{runner.addresses[0][1]}/prefix/"
    finally:
        await runner.cleanup()


def an_analysis(address: str, *, query: str = "up", **server: Any) -> Analysis:
    return Analysis.model_validate(
        {
            "metrics": [{"name": "gpu", "prometheus": {"query": query, "min": "0.5"}}],
            "prometheus": {"address": address, "timeoutSeconds": 1, **server},
        }
    )


async def answered(client: Queries, analysis: Analysis) -> Measurement:
    """The first answer; the second look starts nothing new."""
    assert client.ask(PLACE, analysis, WORDS, at=7.0) == {}
    await client.answered()
    return client.ask(PLACE, analysis, WORDS, at=8.0)["gpu"]


@pytest.mark.parametrize("answer", [vector("0.7"), scalar("0.7")], ids=["vector", "scalar"])
async def test_a_number_is_a_number(answer: dict[str, Any]) -> None:
    fake = FakePrometheus()
    fake.answer = answer
    async with a_client(fake) as (client, address):
        assert await answered(client, an_analysis(address)) == Measurement(7.0, value=0.7)
    assert len(fake.asked) == 1


BAD = {
    "503": (503, "unavailable", "answered 503", True),
    "500 with a body": (500, vector("0.7"), "answered 500", True),
    "401": (401, "", "answered 401", True),
    "422": (422, {"status": "error", "errorType": "execution"}, "answered 422", True),
    "bad query": (400, REFUSED, "refuses the query: 1:5: parse error", True),
    "400 of something else": (400, {"error": "secret words"}, "answered 400", True),
    "empty body": (200, "", "not one of Prometheus", True),
    "key absent": (200, {"status": "success"}, "does not yield a number", False),
    "null": (200, "null", "not one of Prometheus", True),
    "list": (200, "[]", "not one of Prometheus", True),
    "html": (200, "<html>", "not one of Prometheus", True),
    "half an answer": (200, '{"status":"succ', "not one of Prometheus", True),
    "error with 200": (200, REFUSED, "not one of Prometheus", True),
    "NaN text": (200, vector("NaN"), "yields NaN", False),
    "bare NaN": (200, '{"status":"success","data":NaN}', "does not yield a number", False),
    "infinite": (200, vector("+Inf"), "yields +Inf", False),
    "a number that is no text": (
        200,
        {
            "status": "success",
            "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, 0.7]}]},
        },
        "yields",
        False,
    ),
    "a value of three": (
        200,
        {"status": "success", "data": {"resultType": "scalar", "result": [1, "0.7", "0.8"]}},
        "not one of Prometheus",
        True,
    ),
    "empty vector": (200, vector(), "found nothing", False),
    "several": (200, vector("0.7", "0.9", "0.1"), "3 series instead of one", False),
    "matrix": (
        200,
        {"status": "success", "data": {"resultType": "matrix", "result": []}},
        "does not yield a number",
        False,
    ),
    "string": (
        200,
        {"status": "success", "data": {"resultType": "string", "result": [1, "x"]}},
        "does not yield a number",
        False,
    ),
    "huge": (200, " " * (LARGEST_ANSWER + 1), "more than 65536 bytes", True),
    "deep": (200, "[" * 20_000, "not one of Prometheus", True),
}


@pytest.mark.parametrize("status, answer, words, away", BAD.values(), ids=BAD.keys())
async def test_a_bad_source_yields_no_number(
    status: int, answer: Any, words: str, away: bool
) -> None:
    fake = FakePrometheus()
    fake.status, fake.answer = status, answer
    async with a_client(fake) as (client, address):
        found = await answered(client, an_analysis(address))
    assert (found.value, found.is_away) == (None, away)
    assert words in found.problem
    assert "secret words" not in found.problem


async def hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def redirects(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://169.254.169.254/")


async def cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"status":')
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.parametrize(
    "handler, words",
    [
        pytest.param(hangs, "did not answer within 1 s", id="hangs"),
        pytest.param(redirects, "answered 302", id="redirect"),
        pytest.param(cut, "can not be reached", id="cut"),
    ],
)
async def test_a_slow_or_broken_source_yields_no_number(handler: Answer, words: str) -> None:
    fake = FakePrometheus()
    fake.handler = handler
    async with a_client(fake) as (client, address):
        found = await answered(client, an_analysis(address))
    assert (found.value, found.is_away) == (None, True)
    assert words in found.problem


async def test_nobody_there_yields_no_number() -> None:
    async with Queries(no_secret) as client:
        found = await answered(client, an_analysis("http://127.0.0.1:1"))
    assert (found.value, found.is_away) == (None, True)
    assert "can not be reached" in found.problem


async def test_a_source_that_hangs_delays_no_pass_and_is_asked_once() -> None:
    fake = FakePrometheus()
    fake.handler = hangs
    async with a_client(fake) as (client, address):
        analysis = an_analysis(address)
        for _ in range(20):
            assert client.ask(PLACE, analysis, WORDS, at=7.0) == {}
        await fake.arrived.wait()
        assert len(fake.asked) == 1


async def test_names_stand_in_the_query() -> None:
    fake = FakePrometheus()
    query = 'up{namespace="{{namespace}}",pod=~"{{name}}-{{canary}}-.*"} / up{x="{{stable}}"}'
    async with a_client(fake) as (client, address):
        await answered(client, an_analysis(address, query=query))
    expected = 'up{namespace="llm",pod=~"chat-a01c000000-.*"} / up{x="6f9d000000"}'
    assert fake.asked == [(expected, "")]


async def test_another_query_is_asked_at_once_and_the_old_answer_is_gone() -> None:
    fake = FakePrometheus()
    async with a_client(fake) as (client, address):
        await answered(client, an_analysis(address))
        fake.answer = vector("0.9")
        changed = an_analysis(address, query="down")
        assert (await answered(client, changed)).value == 0.9


async def test_a_token_is_sent_and_read_once_a_minute() -> None:
    read: list[tuple[str, str, str]] = []

    async def token(namespace: str, wanted: SecretKey) -> str:
        read.append((namespace, wanted.name, wanted.key))
        return "abc\n"

    fake = FakePrometheus()
    secret = {"bearerTokenSecret": {"name": "prometheus"}}
    async with a_client(fake, token) as (client, address):
        await answered(client, an_analysis(address, **secret))
        await answered(client, an_analysis(address, query="down", **secret))
    assert [authorization for _, authorization in fake.asked] == ["Bearer abc", "Bearer abc"]
    assert read == [("llm", "prometheus", "token")]


@pytest.mark.parametrize("text", ["", "a\r\nX-Evil: 1", "\u00e4"])
async def test_what_is_no_token_is_not_sent(text: str) -> None:
    async def token(namespace: str, wanted: SecretKey) -> str:
        del namespace, wanted
        return text

    fake = FakePrometheus()
    async with a_client(fake, token) as (client, address):
        found = await answered(client, an_analysis(address, bearerTokenSecret={"name": "p"}))
    assert found.is_away
    assert "holds no token" in found.problem
    assert fake.asked == []


async def test_a_secret_that_is_away_is_named() -> None:
    fake = FakePrometheus()
    async with a_client(fake) as (client, address):
        found = await answered(client, an_analysis(address, bearerTokenSecret={"name": "p"}))
    assert found.problem == "Secret p does not exist in namespace llm"
    assert fake.asked == []


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "data", "resultType", "result", "value", "vector"]),
            inner | st.sampled_from(["success", "vector", "scalar"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_answer_is_an_exception_and_every_number_is_finite(body: bytes) -> None:
    found = measurement(200, body, at=1.0)
    assert (found.value is None) == bool(found.problem)


def test_only_known_words_are_filled() -> None:
    assert filled("{{canary}} {{other}} {x}", WORDS) == "a01c000000 {{other}} {x}"
