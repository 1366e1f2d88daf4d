"""What an autoscaler is told: sums, means, rates by acceptance, and when it is told nothing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import NOW, a_digest, a_pod, some_words

from speculative_api.v1alpha1 import ScalingMetric, ScalingMetricName
from speculative_operator.scaling.signals import (
    LONGEST_WINDOW_SECONDS,
    Sample,
    Unmeasured,
    acceptance_length,
    guarded,
    kept,
    value,
)
from speculative_operator.snapshot import WorkerPod

WORDS = some_words()
AT = NOW.timestamp()
NAMES = list(ScalingMetricName)[:4]


def pods(*figures: dict[str, Any] | None, **more: Any) -> list[WorkerPod]:
    return [
        a_pod(WORDS, number=i, digest=None if f is None else a_digest(WORDS, **f), **more)
        for i, f in enumerate(figures)
    ]


def samples(number: int, *points: tuple[float, int, int | None]) -> dict[str, list[Sample]]:
    uid = a_pod(WORDS, number=number).uid
    return {uid: [Sample(AT + at, AT - 600, made, taken) for at, made, taken in points]}


@pytest.mark.parametrize(
    "name, expected",
    [("RequestsWaiting", 7), ("RequestsRunning", 5), ("KvCacheUsage", 60)],
)
def test_requests_add_up_and_shares_are_a_mean(name: str, expected: float) -> None:
    seen = pods(
        {"waiting": 3, "running": 4, "kv_cache_usage": 0.9},
        {"waiting": 4, "running": 1, "kv_cache_usage": 0.3},
    )
    assert value(ScalingMetricName(name), seen, {}) == pytest.approx(expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "seen, why",
    [
        pytest.param([], "no pod is ready", id="no pod"),
        pytest.param(pods({}, ready=False), "no pod is ready", id="none ready"),
        pytest.param(pods({"waiting": 9}, None), "1 of 2 ready pods do not answer", id="silent"),
    ],
)
def test_what_is_not_known_is_no_value(
    name: ScalingMetricName, seen: list[WorkerPod], why: str
) -> None:
    found = value(name, seen, {})
    assert isinstance(found, Unmeasured)
    assert why in found.why


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_does_not_report_is_no_zero(name: ScalingMetricName) -> None:
    assert isinstance(value(name, pods({}), {}), Unmeasured)


def test_pods_that_load_or_leave_do_not_count() -> None:
    seen = [
        *pods({"waiting": 3}),
        a_pod(WORDS, number=1, ready=False),
        a_pod(WORDS, number=2, terminating=True),
    ]
    assert value(ScalingMetricName.REQUESTS_WAITING, seen, {}) == 3


@pytest.mark.parametrize(
    "points, expected",
    [
        # 1000 tokens in 10 s.
        pytest.param([(-10, 0, 0), (0, 1000, 0)], 100, id="no draft is accepted"),
        pytest.param([(-10, 0, 0), (0, 1000, 600)], 40, id="2.5 tokens per step"),
        pytest.param([(-10, 0, 0), (0, 1000, 200)], 80, id="the same tokens, worse drafts"),
        pytest.param([(-10, 0, None), (0, 1000, None)], 100, id="unknown counts as 1"),
        pytest.param([(-10, 5, 1), (0, 5, 1)], 0, id="idle"),
        pytest.param([(-10, 0, 0), (0, 1000, 1000)], 100, id="impossible counts as 1"),
    ],
)
def test_the_same_tokens_count_more_when_drafts_are_worse(
    points: list[tuple[float, int, int | None]], expected: float
) -> None:
    found = value(ScalingMetricName.TOKENS_PER_SECOND, pods({}), samples(0, *points))
    assert found == pytest.approx(expected)


def test_a_new_pod_adds_nothing_until_its_second_look() -> None:
    seen = samples(0, (-10, 0, 0), (0, 1000, 0)) | samples(1, (0, 70_000, 0))
    assert value(ScalingMetricName.TOKENS_PER_SECOND, pods({}, {}), seen) == pytest.approx(100)


@pytest.mark.parametrize("points", [[], [(0, 1, 1)], [(-1, 0, 0), (0, 1000, 0)]])
def test_a_rate_needs_two_looks_some_seconds_apart(points: list[Any]) -> None:
    found = value(ScalingMetricName.TOKENS_PER_SECOND, pods({}), samples(0, *points))
    assert found == Unmeasured("a rate needs two looks")


def test_samples_of_a_former_engine_and_old_ones_go() -> None:
    new = Sample(AT, AT - 100, 50, 5)
    before = [
        Sample(AT - LONGEST_WINDOW_SECONDS - 1, AT - 100, 1, 0),
        replace(new, at=AT - 20, engine_started_at=AT - 900),
        replace(new, at=AT - 10, generated=60),
        replace(new, at=AT - 5, generated=40),
        new,
    ]
    assert kept(before, new) == (before[3], new)


COUNTS = st.integers(0, 2**53)


@settings(deadline=None)
@given(COUNTS, COUNTS)
def test_acceptance_length_is_at_least_one(generated: int, accepted: int) -> None:
    assert acceptance_length(generated, accepted) >= 1


WAITING = ScalingMetric(name=ScalingMetricName.REQUESTS_WAITING, target_per_pod=4)
KV = ScalingMetric(name=ScalingMetricName.KV_CACHE_USAGE, target_percent=80)


def asked_by_the_controller(found: float, metric: ScalingMetric, current: int) -> int:
    """The controller's arithmetic (kubernetes/pkg/controller/podautoscaler)."""
    target = metric.target_per_pod
    if target is not None:
        return max(1, -(-int(found) // target))
    return max(1, round(found / (metric.target_percent or 1) * current))


@pytest.mark.parametrize("metric", [WAITING, KV], ids=lambda m: m.name)
def test_a_storm_of_looks_asks_for_no_more_than_the_first_until_pods_are_ready(
    metric: ScalingMetric,
) -> None:
    """H17: ready 2, 16 waiting, target 4, 300 s to load, a look each 15 s."""
    waiting, asked = 16.0, 2
    first = asked_by_the_controller(
        guarded(waiting * 10, metric, asked=asked, loading=False), metric, asked
    )
    asked = first
    for look in range(20):
        grown = waiting * (10 + look)
        told = guarded(grown, metric, asked=asked, loading=True)
        assert asked_by_the_controller(told, metric, asked) <= first
    told = guarded(waiting * 100, metric, asked=asked, loading=False)
    assert asked_by_the_controller(told, metric, asked) > first


def test_fewer_may_be_asked_for_while_pods_load() -> None:
    assert guarded(3.0, WAITING, asked=4, loading=True) == 3.0
