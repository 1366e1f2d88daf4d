"""What the worker asks of an engine's metrics: names of series where the engine takes them."""

import asyncio
import contextlib

import pytest
from tests.worker.an_engine import an_engine

from speculative_api.engine_metrics import LOAD_SERIES, SERIES, Load
from speculative_worker import engine_client
from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.http_server import HttpServer, Response

PAGE = (
    'vllm:num_requests_running{engine="0"} 3\n'
    'vllm:num_requests_waiting{engine="0"} 2\n'
    'vllm:generation_tokens_total{engine="0"} 7\n'
    'vllm:prompt_tokens_total{engine="0"} 5\n'
)
LOAD = {"0": Load(running=3, waiting=2, generated=7)}


@contextlib.asynccontextmanager
async def asking(named, whole=PAGE):
    """A client, and the paths that it asked; `named` answers those that come with names."""
    asked = []

    async def answer(request):
        asked.append(request.path)
        return named if request.path == "/metrics/" else Response(body=whole.encode())

    server = HttpServer(answer)
    port = await server.start("127.0.0.1", 0)
    try:
        async with EngineClient(f"http://127.0.0.1:{port}") as client:
            yield client, asked
    finally:
        await server.close()


async def test_only_the_series_that_are_read_are_asked_for():
    async with an_engine() as engine, EngineClient(str(engine.client._base_url)) as client:
        await engine.complete(max_tokens=4)
        pages = []
        get = client._get

        async def kept(path):
            pages.append((path, await get(path)))
            return pages[-1][1]

        client._get = kept
        assert await client.fresh_sample() == await engine.reading()
        assert await client.load() == (await engine.reading()).loads
    names = [{line.partition("{")[0] for line in text.splitlines()} for _, (_, text) in pages]
    assert names[0] <= SERIES
    assert "vllm:e2e_request_latency_seconds_bucket" in names[0]
    assert names[1] == LOAD_SERIES & names[0]


@pytest.mark.parametrize(
    "named",
    [
        Response(status=404),
        Response(status=307, headers={"Location": "/metrics"}),
        Response(body=b""),
        Response(body=b"<html>502</html>"),
    ],
    ids=["no such path", "redirected", "multiprocess registry", "something else"],
)
async def test_an_engine_that_takes_no_names_is_asked_for_all_of_it(named):
    async with asking(named) as (client, asked):
        assert await client.load() == LOAD
        assert (await client.fresh_sample()).prompt_tokens == 5
    assert asked == ["/metrics/", "/metrics", "/metrics"]


async def test_an_engine_that_answers_names_with_the_whole_page_is_asked_once():
    async with asking(Response(body=PAGE.encode())) as (client, asked):
        assert await client.load() == LOAD
        assert await client.load() == LOAD
    assert asked == ["/metrics/", "/metrics/"]


async def test_an_engine_that_says_nothing_yet_is_asked_by_name_again():
    async with asking(Response(), whole="") as (client, asked):
        assert await client.load() == await client.load() == {}
    assert asked == ["/metrics/", "/metrics"] * 2


async def test_an_engine_without_any_page_is_silent():
    async with asking(Response(status=503), whole="") as (client, _):
        client._takes_names = True
        assert await client.load() == {}
    async with EngineClient("http://127.0.0.1:1") as client:
        with pytest.raises(EngineSilent):
            await client.load()


@contextlib.asynccontextmanager
async def slow(monkeypatch):
    """A client, and the event without which its engine's page does not come."""
    monkeypatch.setattr(engine_client, "ANSWER_SECONDS", 0.05)
    comes, asked = asyncio.Event(), []

    async def answer(request):
        asked.append(request.path)
        await comes.wait()
        return Response(body=PAGE.encode())

    server = HttpServer(answer)
    port = await server.start("127.0.0.1", 0)
    try:
        async with EngineClient(f"http://127.0.0.1:{port}") as client:
            yield client, comes, asked
    finally:
        comes.set()
        await server.close()


async def test_a_page_that_does_not_come_holds_nobody_up(monkeypatch):
    async with slow(monkeypatch) as (client, comes, asked):
        async with asyncio.timeout(2):
            looks = [client.sample() for _ in range(8)]
            found = await asyncio.gather(*looks, return_exceptions=True)
        assert {type(each) for each in found} == {EngineSilent}
        assert len(asked) == 1
        comes.set()
        reading, _ = await client.sample()
        assert (reading.running, len(asked)) == (3, 1)


async def test_a_look_at_a_slow_engine_is_given_the_one_before(monkeypatch):
    async with slow(monkeypatch) as (client, comes, _):
        comes.set()
        first = await client.sample()
        comes.clear()
        monkeypatch.setattr(engine_client, "_CACHE_SECONDS", 0.0)
        assert await client.sample() == first
        monkeypatch.setattr(engine_client, "OLD_SECONDS", 0.0)
        with pytest.raises(EngineSilent):
            await client.sample()
