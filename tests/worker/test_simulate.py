"""The simulated engine: API, counters, chance and faults."""

import contextlib
import random

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.worker.a_worker import a_config

from speculative_worker.digest import reading
from speculative_worker.simulate.drafting import drafting
from speculative_worker.simulate.generation import Batch
from speculative_worker.simulate.server import SimulatedEngine


@contextlib.asynccontextmanager
async def an_engine(simulation=None, seed=1, **changes):
    config = a_config({"tokensPerSecond": 100_000} | (simulation or {}), **changes)
    batch = Batch(
        config,
        tokens_per_second=config.simulation.tokens_per_second,
        acceptance_percent=config.simulation.acceptance_percent,
        stall_after_seconds=config.simulation.stall_after_seconds,
        chance=random.Random(seed),
    )
    engine = SimulatedEngine(config, config.simulation, batch)
    server = TestServer(engine.application(), handler_cancellation=True)
    async with TestClient(server) as client:
        yield client, batch


async def complete(client, **body):
    async with client.post("/v1/completions", json={"prompt": "a", **body}) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("tokens, percent", [(1, 40), (4, 70), (8, 20), (5, 0), (5, 100)])
def test_the_share_of_accepted_tokens_is_the_one_asked_for(tokens, percent):
    draft = drafting(tokens=tokens, acceptance_percent=percent)
    chance = random.Random(7)
    accepted = sum(draft.accepted(chance) for _ in range(20_000))
    assert accepted / (20_000 * tokens) == pytest.approx(percent / 100, abs=0.01)


async def test_counters_add_up_and_have_the_engine_s_names():
    async with an_engine() as (client, _):
        assert (await complete(client, max_tokens=200))[0] == 200
        text = await (await client.get("/metrics")).text()
        found = reading(text)
        assert found.generated_tokens == 200
        assert found.drafts + found.accepted_tokens == 200
        assert found.draft_tokens == 4 * found.drafts
        assert found.requests_finished == 1
        assert (found.running, found.waiting) == (0, 0)
        assert found.time_to_first_token_seconds.count == 1
        assert found.inter_token_seconds.count == found.drafts - 1
        assert found.request_seconds.count == 1
        assert found.request_seconds.sum >= found.time_to_first_token_seconds.sum
        per_token = found.output_token_seconds
        assert per_token.source == "vllm:request_time_per_output_token_seconds"
        assert per_token.count == 1
        assert per_token.sum < found.inter_token_seconds.sum
        positions = [
            int(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total")
        ]
        assert len(positions) == 4
        assert sum(positions) == found.accepted_tokens
        assert positions == sorted(positions, reverse=True)


async def test_without_speculation_there_are_no_draft_counters():
    async with an_engine(speculation={"method": "None"}) as (client, _):
        await complete(client, max_tokens=20)
        text = await (await client.get("/metrics")).text()
        assert "spec_decode" not in text
        assert reading(text).generated_tokens == 20


@pytest.mark.parametrize(
    "body, status",
    [
        pytest.param({"model": "other"}, 404, id="another model"),
        pytest.param({"max_tokens": 64}, 400, id="longer than the context"),
        pytest.param({"max_tokens": 0}, 400, id="no token asked for"),
        pytest.param({"prompt": None}, 400, id="no prompt"),
        pytest.param({"prompt": [1] * 60, "max_tokens": 4}, 200, id="token ids, just fitting"),
        pytest.param({"prompt": [1] * 61, "max_tokens": 4}, 400, id="token ids, one too many"),
    ],
)
async def test_requests_that_a_real_engine_refuses(body, status):
    async with an_engine(maxModelLen=64) as (client, _):
        assert (await complete(client, **body))[0] == status


async def test_a_body_that_is_no_json_is_refused():
    async with (
        an_engine() as (client, _),
        client.post("/v1/chat/completions", data=b"{") as answer,
    ):
        assert answer.status == 400


@pytest.mark.parametrize("percent, low, high", [(0, 0, 0), (30, 30, 90), (100, 200, 200)])
async def test_the_share_of_errors_is_the_one_asked_for(percent, low, high):
    async with an_engine({"errorPercent": percent}) as (client, _):
        statuses = [(await complete(client, max_tokens=1))[0] for _ in range(200)]
        assert low <= statuses.count(500) <= high
        assert statuses.count(200) + statuses.count(500) == 200


async def test_more_requests_than_places_wait():
    async with an_engine({"tokensPerSecond": 1}, maxNumSeqs=2) as (client, _):
        answers = [
            await client.post("/v1/completions", json={"prompt": "a", "stream": True})
            for _ in range(3)
        ]
        found = reading(await (await client.get("/metrics")).text())
        while found.running < 2 or found.waiting < 1:
            found = reading(await (await client.get("/metrics")).text())
        assert (found.running, found.waiting) == (2, 1)
        for answer in answers:
            answer.close()


async def test_a_client_that_leaves_counts_as_an_abort_and_frees_its_place():
    async with an_engine({"tokensPerSecond": 1}) as (client, batch):
        with pytest.raises(TimeoutError):
            await client.post(
                "/v1/completions", json={"prompt": "a"}, timeout=aiohttp.ClientTimeout(total=0.2)
            )
        found = reading(await (await client.get("/metrics")).text())
        while found.running:
            found = reading(await (await client.get("/metrics")).text())
        assert batch.metrics.finished["abort"] == 1


async def test_a_chat_without_max_tokens_ends_by_itself():
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with an_engine() as (client, _), client.post("/v1/chat/completions", json=body) as answer:
        found = await answer.json()
        assert found["object"] == "chat.completion"
        assert found["choices"][0]["finish_reason"] == "stop"
        words = found["choices"][0]["message"]["content"].split()
        assert len(words) == found["usage"]["completion_tokens"] == 64
