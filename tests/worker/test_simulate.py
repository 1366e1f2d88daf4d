"""The simulated engine: API, counters, chance and time."""

import asyncio
import random

import aiohttp
import pytest
from tests.worker.a_worker import a_worker
from tests.worker.an_engine import an_engine

from speculative_worker.simulate.drafting import by_position, drafting
from speculative_worker.simulate.plan import BadPlan, StepTime, plan_from


@pytest.mark.parametrize("tokens, percent", [(1, 40), (4, 70), (8, 20), (5, 0), (5, 100)])
def test_the_share_of_accepted_tokens_is_the_one_asked_for(tokens, percent):
    draft = drafting(tokens=tokens, acceptance_percent=percent)
    chance = random.Random(7)
    accepted = sum(draft.accepted(tokens, chance) for _ in range(20_000))
    assert accepted / (20_000 * tokens) == pytest.approx(percent / 100, abs=0.01)


def test_acceptance_by_position_is_the_one_asked_for_and_the_last_goes_on():
    draft, chance = by_position([90, 50]), random.Random(7)
    runs = [draft.accepted(3, chance) for _ in range(20_000)]
    shares = [sum(run > position for run in runs) / len(runs) for position in range(3)]
    assert shares == pytest.approx([0.9, 0.45, 0.225], abs=0.01)


async def test_positions_of_the_metrics_follow():
    async with an_engine({"acceptancePercentByPosition": [100, 0]}) as engine:
        await engine.complete(max_tokens=100)
        found = await engine.reading()
        assert found.accepted_tokens == found.drafts == 50
        assert positions(await engine.metrics()) == [50, 0, 0, 0]


def positions(text):
    return [
        int(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total")
    ]


async def test_counters_add_up_and_have_the_engine_s_names():
    async with an_engine() as engine:
        assert (await engine.complete(max_tokens=200))[0] == 200
        text, found = await engine.metrics(), await engine.reading()
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
        assert len(positions(text)) == 4
        assert sum(positions(text)) == found.accepted_tokens
        assert positions(text) == sorted(positions(text), reverse=True)


async def test_the_first_generation_of_metric_names():
    async with an_engine({"metricNames": "V0"}) as engine:
        await engine.complete(max_tokens=200)
        text, found = await engine.metrics(), await engine.reading()
        assert found.drafts is None
        assert found.generated_tokens == 200
        assert found.draft_tokens > found.accepted_tokens > 0
        assert found.inter_token_seconds.source == "vllm:time_per_output_token_seconds"
        assert 'vllm:gpu_cache_usage_perc{model_name="chat"} 0.0' in text
        rate = found.accepted_tokens / found.draft_tokens
        assert f'vllm:spec_decode_draft_acceptance_rate{{model_name="chat"}} {rate}' in text
        for name in ("engine=", "per_pos", "num_drafts", "inter_token", "kv_cache_usage"):
            assert name not in text


@pytest.mark.parametrize("generation", ["V0", "V1"])
async def test_without_speculation_there_are_no_draft_counters(generation):
    speculation = {"method": "None"}
    async with an_engine({"metricNames": generation}, speculation=speculation) as engine:
        await engine.complete(max_tokens=20)
        assert "spec_decode" not in await engine.metrics()
        assert (await engine.reading()).generated_tokens == 20


async def test_the_same_prompt_has_the_same_answer_whatever_is_accepted():
    answers = []
    for percent in (0, 70, 100):
        async with an_engine({"acceptancePercent": percent}, seed=percent) as engine:
            answers.append((await engine.complete(max_tokens=40))[1]["choices"][0]["text"])
    assert answers[0] == answers[1] == answers[2]


async def test_token_ids_are_returned_and_are_those_of_the_text():
    async with an_engine() as engine:
        _, whole = await engine.complete(prompt=[5, 6, 7], max_tokens=30, return_token_ids=True)
        choice = whole["choices"][0]
        assert choice["prompt_token_ids"] == [5, 6, 7]
        assert len(choice["token_ids"]) == 30
        _, again = await engine.complete(
            prompt=[5, 6, 7, *choice["token_ids"][:10]], max_tokens=20, return_token_ids=True
        )
        assert again["choices"][0]["token_ids"] == choice["token_ids"][10:]
        # The text of an answer is tokenised to the ids it was made from.
        _, scored = await engine.complete(
            prompt=choice["text"], max_tokens=1, return_token_ids=True
        )
        assert scored["choices"][0]["prompt_token_ids"] == choice["token_ids"]


async def test_a_chat_returns_token_ids_beside_its_choices():
    async with an_engine() as engine:
        _, found = await engine.chat(max_tokens=5, return_token_ids=True, prompt_logprobs=0)
        assert len(found["choices"][0]["token_ids"]) == 5
        assert len(found["prompt_token_ids"]) == found["usage"]["prompt_tokens"]
        assert len(found["prompt_logprobs"]) == found["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_is_the_same_answer_in_pieces(path):
    messages = [{"role": "user", "content": "hi"}]
    chat = path.endswith("chat/completions")
    body = {"messages": messages} if chat else {"prompt": "hi"}
    body |= {"max_tokens": 33, "return_token_ids": True}
    async with an_engine() as engine:
        _, whole = await (engine.chat(**body) if chat else engine.complete(**body))
        *events, usage = await engine.events(path, **body, stream_options={"include_usage": True})
        assert usage["usage"] == whole["usage"]
        assert usage["choices"] == []
        choices = [event["choices"][0] for event in events]
        ids = [token for choice in choices for token in choice["token_ids"]]
        assert ids == whole["choices"][0]["token_ids"]
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1]["finish_reason"] == "length"
        if chat:
            text = "".join(choice["delta"]["content"] for choice in choices)
            assert text == whole["choices"][0]["message"]["content"]
            assert "prompt_token_ids" in events[0]
        else:
            assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
            assert "prompt_token_ids" in choices[0]


async def test_an_answer_scored_as_a_prompt_is_likely_and_a_changed_one_is_not():
    async with an_engine() as engine:
        _, found = await engine.complete(prompt=[1, 2, 3], max_tokens=6, return_token_ids=True)
        answer = found["choices"][0]["token_ids"]
        wrong = [*answer[:2], answer[2] + 1, *answer[3:]]
        for tokens, likely in ((answer, [True] * 6), (wrong, [True, True, False])):
            _, scored = await engine.complete(
                prompt=[1, 2, 3, *tokens], max_tokens=1, prompt_logprobs=1
            )
            entries = scored["choices"][0]["prompt_logprobs"]
            assert entries[0] is None
            assert len(entries) == 9
            ranks = [
                entry[str(token)]["rank"] for entry, token in zip(entries[3:], tokens, strict=True)
            ]
            assert [rank == 1 for rank in ranks][: len(likely)] == likely


@pytest.mark.parametrize(
    "body, status",
    [
        pytest.param({"model": "other"}, 404, id="another model"),
        pytest.param({"max_tokens": 64}, 400, id="longer than the context"),
        pytest.param({"max_tokens": 0}, 400, id="no token asked for"),
        pytest.param({"max_tokens": True}, 400, id="a truth for a number"),
        pytest.param({"prompt": None}, 400, id="no prompt"),
        pytest.param({"prompt": ["a", "b"]}, 400, id="several prompts"),
        pytest.param({"prompt": [1] * 60, "max_tokens": 4}, 200, id="token ids, just fitting"),
        pytest.param({"prompt": [1] * 61, "max_tokens": 4}, 400, id="token ids, one too many"),
        pytest.param({"prompt_logprobs": -2}, 400, id="a negative number of logprobs"),
        pytest.param({"prompt_logprobs": 1, "stream": True}, 400, id="logprobs in a stream"),
    ],
)
async def test_requests_that_a_real_engine_refuses(body, status):
    async with an_engine(maxModelLen=64) as engine:
        assert (await engine.complete(**body))[0] == status


@pytest.mark.parametrize("data", [b"{", b"[]", b"", b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_refused(data):
    async with (
        an_engine() as engine,
        engine.client.post("/v1/chat/completions", data=data) as answer,
    ):
        assert answer.status == 400


async def test_what_is_not_there_is_not_found():
    async with an_engine() as engine:
        for method, path in (("GET", "/v1/completions"), ("POST", "/metrics"), ("GET", "/x")):
            async with engine.client.request(method, path) as answer:
                assert answer.status == 404


@pytest.mark.parametrize("percent, low, high", [(0, 0, 0), (30, 30, 90), (100, 200, 200)])
async def test_the_share_of_errors_is_the_one_asked_for(percent, low, high):
    async with an_engine({"errorPercent": percent}) as engine:
        statuses = [(await engine.complete(max_tokens=1))[0] for _ in range(200)]
        assert low <= statuses.count(500) <= high
        assert statuses.count(200) + statuses.count(500) == 200


async def test_more_requests_than_places_wait():
    async with an_engine({"tokensPerSecond": 1}, maxNumSeqs=2) as engine:
        answers = [
            await engine.client.post("/v1/completions", json={"prompt": "a", "stream": True})
            for _ in range(3)
        ]
        found = await engine.reading()
        while found.running < 2 or found.waiting < 1:
            found = await engine.reading()
        assert (found.running, found.waiting) == (2, 1)
        for answer in answers:
            answer.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_counts_as_an_abort_and_frees_its_place(stream):
    async with an_engine({"tokensPerSecond": 1}) as engine:
        body = {"prompt": "a", "stream": stream}
        with pytest.raises(TimeoutError):
            async with engine.client.post(
                "/v1/completions", json=body, timeout=aiohttp.ClientTimeout(total=0.2)
            ) as answer:
                await answer.read()
        found = await engine.reading()
        while found.running:
            found = await engine.reading()
        assert engine.batch.metrics.finished["abort"] == 1


async def test_a_chat_without_max_tokens_ends_by_itself():
    async with an_engine() as engine:
        _, found = await engine.chat()
        assert found["object"] == "chat.completion"
        assert found["choices"][0]["finish_reason"] == "stop"
        words = found["choices"][0]["message"]["content"].split()
        assert len(words) == found["usage"]["completion_tokens"] == 64


def test_a_step_takes_longer_with_a_larger_batch_and_a_longer_draft():
    step = StepTime(base=0.02, draft=0.002, token=0.0002)
    assert step.seconds(batch=1, draft_tokens=0) == pytest.approx(0.0202)
    assert step.seconds(batch=10, draft_tokens=4) == pytest.approx(0.02 + 0.008 + 0.01)


async def test_a_stream_s_speed_follows_the_time_of_a_step():
    step = {"base": 0, "draft": 0, "token": 2000}
    simulation = {"stepMicroseconds": step, "acceptancePercent": 0}
    async with an_engine(simulation) as engine:
        await engine.complete(max_tokens=5)
        # Five tokens verified a step, 2 ms each, and one emitted.
        found = (await engine.reading()).request_seconds
        assert found.sum >= 5 * 5 * 0.002


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param('{"maxNumSeqs": 8}', id="no speculation"),
        pytest.param(
            '{"servedModelName": "a", "maxNumSeqs": 8, "speculation": {"method": "None"},'
            ' "simulation": {"faults": [{"kind": "Flood"}]}}',
            id="an unknown fault",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_is_said(text):
    with pytest.raises(BadPlan, match="cannot be read"):
        plan_from(text)


@pytest.mark.parametrize(
    ("sent", "said"),
    [("abc-1", "abc-1"), ("", "-"), ("a b", "-"), ("x" * 65, "-")],
    ids=["an id", "none", "not printable as one word", "too long"],
)
async def test_each_generation_is_said_once_with_the_request_s_id(capsys, sent, said):
    async with an_engine() as engine:
        headers = {"x-request-id": sent} if sent else {}
        body = {"prompt": "a", "max_tokens": 1}
        async with engine.client.post("/v1/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
    lines = [line for line in capsys.readouterr().out.splitlines() if "generation" in line]
    assert [line.split(" id=")[0] for line in lines] == [f"generation request={said}"]


STEP = {"base": 200, "draft": 100, "token": 100}


def adaptive(**words):
    return {"method": "NGram", "numSpeculativeTokens": 4, "adaptive": words}


async def test_a_schedule_sets_the_draft_length_by_batch_size():
    schedule = [
        {"upToBatchSize": 1, "numSpeculativeTokens": 2},
        {"upToBatchSize": 8, "numSpeculativeTokens": 0},
    ]
    speculation = adaptive(mode="BatchSize", schedule=schedule)
    async with an_engine(speculation=speculation) as engine:
        await engine.complete(max_tokens=50)
        alone = await engine.reading()
        assert alone.draft_tokens == 2 * alone.drafts > 0
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(engine.complete(max_tokens=50))
        together = await engine.reading()
        assert together.generated_tokens == 250
        # A few steps were alone, before the second came and after the third was done.
        assert together.drafts - alone.drafts < 50


@pytest.mark.slow
@pytest.mark.parametrize("percent, shrinks", [(0, True), (100, False)])
async def test_an_online_length_follows_acceptance_as_a_real_one(percent, shrinks):
    simulation = {"stepMicroseconds": STEP, "acceptancePercent": percent}
    async with an_engine(simulation, speculation=adaptive(mode="Online")) as engine:
        for _ in range(3):
            await engine.complete(max_tokens=300)
        before = await engine.reading()
        await engine.complete(max_tokens=300)
        after = await engine.reading()
        drafted = after.draft_tokens - before.draft_tokens
        steps = (after.generated_tokens - before.generated_tokens) - (
            after.accepted_tokens - before.accepted_tokens
        )
        assert (drafted / steps < 0.5) == shrinks
        assert (drafted / steps > 3) == (not shrinks)


@pytest.mark.slow
async def test_an_online_length_reaches_the_digest(tmp_path):
    simulation = {"stepMicroseconds": STEP, "acceptancePercent": 100}
    async with a_worker(
        tmp_path, simulation=simulation, speculation=adaptive(mode="Online")
    ) as worker:
        await worker.until("/readyz", 200)
        await (await worker.chat(max_tokens=600)).read()
        found = await worker.digest_when(lambda digest: digest["adaptive"]["tokens"] is not None)
        assert found["adaptive"]["mode"] == "Online"
        # On a busy machine steps take other times than asked, and another length may pay.
        assert 0 < found["adaptive"]["tokens"] <= 4
        assert found["adaptive"]["obeyed"] is True
