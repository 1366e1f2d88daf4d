"""Prometheus as the source of every engine's figures: whole pages, or none; a few questions."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import NOW, a_pod, a_snapshot, some_words
from tests.metrics.test_prometheus import FakePrometheus, a_client

from speculative_api.v1alpha1 import Analysis
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.pages import (
    BUCKETS,
    FromPrometheus,
    Pages,
    bounds_of,
    counters_query,
    digests_of,
    histograms_query,
    unknown_pod,
)
from speculative_operator.metrics.source import Target

PLACE = ("llm", "chat")
POD = "chat-6f9d000000-a"
TARGET = Target("uid-a", "10.0.0.1", "worker", "NGram", 4, POD)
COUNTS = {
    "vllm:request_success_total": "40",
    "vllm:generation_tokens_total": "3e+03",
    "vllm:spec_decode_num_drafts_total": "1000",
    "vllm:spec_decode_num_draft_tokens_total": "4000",
    "vllm:spec_decode_num_accepted_tokens_total": "2000",
    "vllm:num_requests_running": "3",
    "vllm:num_requests_waiting": "0",
}
TTFT = "vllm:time_to_first_token_seconds_bucket"


def series(name: str, value: Any, pod: str = POD, **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, "pod": pod, **labels}, "value": [1.7e9, value]}


def vector(*listed: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "vector", "result": list(listed)}}


def counters(pod: str = POD, engine: str = "0", **changes: str | None) -> list[dict[str, Any]]:
    """What an engine counts; a change of None takes a series away."""
    found = COUNTS | {f"vllm:{name}": value for name, value in changes.items()}
    return [series(k, v, pod, engine=engine) for k, v in found.items() if v is not None]


def an_analysis(address: str = "http://p", *metrics: dict[str, Any]) -> Analysis:
    listed = list(metrics) or [{"name": "AcceptanceLength"}]
    server = {"address": address, "timeoutSeconds": 1}
    return Analysis.model_validate(
        {"metrics": listed, "source": "Prometheus", "prometheus": server}
    )


def read(*answers: dict[str, Any], pods: dict[str, Target] | None = None) -> Any:
    bodies = [(200, json.dumps(answer).encode()) for answer in answers]
    return digests_of(bodies, pods or {POD: TARGET}, at=50.0)


def test_a_whole_page_is_a_digest() -> None:
    digest = read(vector(*counters()))["uid-a"]
    assert (digest.requests_finished, digest.generated_tokens) == (40, 3000)
    assert (digest.accepted_tokens, digest.drafts) == (2000, 1000)
    assert (digest.method, digest.num_speculative_tokens, digest.ready) == ("NGram", 4, True)
    assert (digest.sampled_at, digest.engine_started_at) == (50.0, 0.0)


def test_engines_behind_one_page_are_summed() -> None:
    found = read(vector(*counters(), *counters(engine="1")))["uid-a"]
    assert (found.generated_tokens, found.running) == (6000, 6)


NONE = {
    "nothing": [],
    "another pod": counters("chat-6f9d000000-b"),
    "half a page: one engine lacks a counter": [
        *counters(),
        *counters(engine="1", spec_decode_num_accepted_tokens_total=None),
    ],
    "NaN in one of two engines": [
        *counters(),
        *counters(engine="1", generation_tokens_total="NaN"),
    ],
    "no tokens": counters(generation_tokens_total=None),
    "NaN tokens": counters(generation_tokens_total="NaN"),
    "infinite": counters(generation_tokens_total="+Inf"),
    "more than can be": counters(generation_tokens_total="1e300"),
    "text": counters(generation_tokens_total="many"),
    "no gauge": counters(num_requests_running=None),
    "lines in a label": counters(engine='0"} 1\nvllm:generation_tokens_total 9'),
    "lines in a value": counters(generation_tokens_total="1\nvllm:num_requests_running 1"),
}


@pytest.mark.parametrize("listed", NONE.values(), ids=NONE.keys())
def test_what_is_not_whole_is_nothing(listed: list[dict[str, Any]]) -> None:
    assert read(vector(*listed)) == {}


def test_accepted_tokens_that_are_not_there_stay_absent() -> None:
    lacking = counters(spec_decode_num_accepted_tokens_total=None)
    assert read(vector(*lacking))["uid-a"].accepted_tokens is None
    nan = counters(spec_decode_num_accepted_tokens_total="NaN")
    assert read(vector(*nan))["uid-a"].accepted_tokens is None


NO_ANSWER: dict[str, tuple[int, Any]] = {
    "500": (500, vector(*counters())),
    "302": (302, ""),
    "html": (200, "<html>"),
    "empty": (200, ""),
    "a list": (200, []),
    "an error": (200, {"status": "error", "errorType": "timeout"}),
    "a matrix": (200, {"status": "success", "data": {"resultType": "matrix", "result": []}}),
    "no data": (200, {"status": "success"}),
    "result no list": (200, {"status": "success", "data": {"resultType": "vector", "result": 3}}),
    "series no map": (200, vector("x")),  # type: ignore[arg-type]
    "value no pair": (200, vector({"metric": {}, "value": "7"})),
    "value a number": (200, vector(series("vllm:x", 7))),
    "labels no text": (200, vector({"metric": {"pod": 7}, "value": [1, "7"]})),
    "nested": (200, "[" * 100_000),
}


@pytest.mark.parametrize(("status", "answer"), NO_ANSWER.values(), ids=NO_ANSWER.keys())
def test_what_prometheus_would_not_say_is_no_answer(status: int, answer: Any) -> None:
    body = answer if isinstance(answer, str) else json.dumps(answer)
    for reader in (
        lambda: digests_of([(status, body.encode())], {POD: TARGET}, at=1.0),
        lambda: bounds_of(status, body.encode()),
    ):
        with pytest.raises(NotReadable):
            reader()


_ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "data", "resultType", "result", "metric", "value", "pod"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(_ANY)
def test_no_answer_breaks_a_look(answer: Any) -> None:
    for whole in (answer, vector(answer), vector({"metric": answer, "value": [1, answer]})):
        body = json.dumps(whole).encode()
        try:
            assert digests_of([(200, body)], {POD: TARGET}, at=1.0) == {}
        except NotReadable:
            continue


def test_how_many_questions_does_not_depend_on_pods() -> None:
    asked = counters_query(PLACE)
    assert 'namespace="llm",pod=~"chat-[0-9a-f]{10}-.+"' in asked
    assert len(asked) < 1500


TTFT_CHECK = {"name": "TimeToFirstToken", "thresholdMilliseconds": 500}


def test_only_buckets_from_the_threshold_on_are_asked_for() -> None:
    bounds = {TTFT: ["0.1", "0.5", "1.0", "2.5", "+Inf"]}
    text = histograms_query(PLACE, an_analysis("http://p", TTFT_CHECK), bounds)
    (found,) = re.findall(r'le=~"([^"]*)"', text)
    assert sorted(found.split("|")) == [r"0\\.5", r"1\\.0", r"2\\.5", r"\\+Inf"]
    many = {TTFT: [str(n) for n in range(100)] + ["+Inf"]}
    text = histograms_query(PLACE, an_analysis("http://p", TTFT_CHECK), many)
    assert len(re.findall(r'le=~"([^"]*)"', text)[0].split("|")) == BUCKETS + 1
    assert histograms_query(PLACE, an_analysis(), bounds) == ""
    assert histograms_query(PLACE, an_analysis("http://p", TTFT_CHECK), {}) == ""


def test_slow_ones_are_those_above_the_bound() -> None:
    buckets = [series(TTFT, n, le=le) for le, n in (("0.5", "90"), ("1", "95"), ("+Inf", "100"))]
    digest = read(vector(*counters()), vector(*buckets))["uid-a"]
    assert digest.ttft.slow(0.5) == 10
    assert digest.ttft.count == 100


class Asking:
    """Questions to a fake whose answer depends on the kind of question."""

    def __init__(self, pages: Pages, fake: FakePrometheus, analysis: Analysis) -> None:
        self.pages, self.fake, self.analysis = pages, fake, analysis

    async def look(self) -> Any:
        self.pages.ask(PLACE, self.analysis, [TARGET])
        await self.pages.answered()
        return self.pages.digest(PLACE, "uid-a")


async def test_two_more_questions_where_a_latency_is_judged() -> None:
    fake, now = FakePrometheus(), [100.0]

    async def answer(request: web.Request) -> web.Response:
        text = str((await request.post())["query"])
        listed = counters()
        if text.startswith("group by"):
            listed = [series(TTFT, "1", le=le) for le in ("0.5", "+Inf")]
        elif "_bucket" in text:
            listed = [series(TTFT, n, le=le) for le, n in (("0.5", "90"), ("+Inf", "100"))]
        return web.json_response(vector(*listed))

    fake.handler = answer
    async with a_client(fake) as (queries, address), Pages(queries, clock=lambda: now[0]) as pages:
        digest = await Asking(pages, fake, an_analysis(address, TTFT_CHECK)).look()
        assert digest.ttft.slow(0.5) == 10
        assert len(fake.asked) == 3
        plain = Asking(pages, fake, an_analysis(address))
        assert await plain.look() is not None
        assert len(fake.asked) == 3, "asked again before 15 s are over"
        now[0] += 15
        await plain.look()
        assert len(fake.asked) == 4


async def test_answers_age_and_a_new_one_counts_again() -> None:
    fake, now = FakePrometheus(), [100.0]
    fake.answer = vector(*counters())
    async with a_client(fake) as (queries, address), Pages(queries, clock=lambda: now[0]) as pages:
        asking = Asking(pages, fake, an_analysis(address))
        assert pages.problem(PLACE) == "Prometheus has not been asked yet"
        assert await asking.look() is not None
        assert pages.problem(PLACE) == ""
        fake.status = 503
        now[0] += 30
        assert await asking.look() is not None
        assert pages.problem(PLACE) == "Prometheus answered 503"
        now[0] += 31
        assert await asking.look() is None
        fake.status = 200
        now[0] += 30
        assert await asking.look() is not None
        assert pages.problem(PLACE) == ""
        fake.answer = vector()
        now[0] += 30
        assert await asking.look() is None
        assert pages.problem(PLACE) == "Prometheus knows no engine of these pods"


async def test_a_server_that_hangs_delays_nothing() -> None:
    fake = FakePrometheus()
    asked = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    fake.handler = never
    async with a_client(fake) as (queries, address), Pages(queries) as pages:
        pages.ask(PLACE, an_analysis(address), [TARGET])
        await asked.wait()
        pages.ask(PLACE, an_analysis(address), [TARGET])
        assert pages.digest(PLACE, "uid-a") is None


class Recording:
    """A source that notes whom it is asked about."""

    def __init__(self) -> None:
        self.asked: list[Target] = []

    async def ask(self, targets: Any) -> None:
        self.asked += targets

    def digest(self, uid: str) -> None:
        raise AssertionError("workers are not asked")

    def state(self, uid: str) -> None:
        return None

    def silent_seconds(self, uid: str) -> float:
        return 7.0


async def test_gateways_are_asked_themselves_and_workers_are_not() -> None:
    fake, gateway = FakePrometheus(), Target("g", "10.0.0.2", "gateway")
    fake.answer = vector(*counters())
    async with a_client(fake) as (queries, address), Pages(queries) as pages:
        inner = Recording()
        source = FromPrometheus(inner, pages, PLACE, an_analysis(address))
        await source.ask([TARGET, gateway])
        await pages.answered()
        assert inner.asked == [gateway]
        assert source.digest("uid-a") is not None
        assert source.silent_seconds("g") == 7.0


def test_a_pod_without_figures_is_named_once_it_has_served_for_a_while() -> None:
    words = some_words(4)
    old = a_pod(words, ready_at=NOW.timestamp() - 600)
    new = a_pod(words, number=1, ready_at=NOW.timestamp() - 60)
    assert unknown_pod(a_snapshot(pods=[new]), words.hash) == ""
    assert unknown_pod(a_snapshot(pods=[old]), "another") == ""
    assert unknown_pod(a_snapshot(pods=[replace(old, terminating=True)]), words.hash) == ""
    assert old.name in unknown_pod(a_snapshot(pods=[new, old]), words.hash)
