"""The warm-up: what is sent, what is repeated, what ends it."""

import contextlib

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.worker.a_worker import a_config

from speculative_worker.engine_client import EngineClient
from speculative_worker.errors import WorkerFailure
from speculative_worker.warmup import warm_up, warmup_request


@contextlib.asynccontextmanager
async def an_engine_that_answers(*statuses):
    """Answers with these statuses in turn, then with 200; keeps the bodies."""
    bodies = []
    left = list(statuses)

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.Response(status=left.pop(0) if left else 200, text="because")

    application = web.Application()
    application.router.add_post("/v1/completions", answer)
    async with (
        TestServer(application) as server,
        EngineClient(str(server.make_url("")).rstrip("/")) as client,
    ):
        yield client, bodies


async def test_sends_as_many_as_asked_for_exactly_as_long():
    async with an_engine_that_answers() as (client, bodies):
        await warm_up(client, a_config(warmup={"requests": 4, "promptTokens": 100}))
        assert len(bodies) == 4
        assert [len(body["prompt"]) for body in bodies] == [100] * 4
        assert bodies[0]["model"] == "chat"


async def test_none_is_sent_when_switched_off():
    async with an_engine_that_answers() as (client, bodies):
        await warm_up(client, a_config(warmup={"requests": 0}))
        assert bodies == []


async def test_a_failed_request_is_repeated():
    async with an_engine_that_answers(500, 503) as (client, bodies):
        await warm_up(client, a_config(warmup={"requests": 1}))
        assert len(bodies) == 3


@pytest.mark.parametrize("statuses", [(400,), (200, 200, 422)])
async def test_a_request_that_the_engine_calls_wrong_fails_the_worker(statuses):
    async with an_engine_that_answers(*statuses) as (client, _):
        with pytest.raises(WorkerFailure, match="because") as caught:
            await warm_up(client, a_config(warmup={"requests": 4}))
        assert (caught.value.reason, caught.value.retryable) == ("InvalidArguments", False)


@pytest.mark.parametrize("max_model_len", [16, 32, 100, 4096])
def test_prompt_and_answer_fit_the_context(max_model_len):
    request = warmup_request(
        a_config(maxModelLen=max_model_len, warmup={"promptTokens": 128, "outputTokens": 64})
    )
    assert len(request["prompt"]) + request["max_tokens"] <= max_model_len
    assert request["max_tokens"] >= 1
