"""When the next look is due: soon while an Envoy is to leave a revision, seldom otherwise."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders import NOW, a_gateway, a_pod, a_snapshot, a_spec, a_status, some_words

from speculative_api.conditions import ConditionType
from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.rollout.decide import (
    BUSY_SECONDS,
    IDLE_SECONDS,
    SOONEST_SECONDS,
    STARTING_SECONDS,
    decide,
)
from speculative_operator.rollout.times import stamp

STABLE, OLD = some_words(4), some_words(6)


@pytest.mark.parametrize(
    ("seconds_ago", "expected"),
    [(0.0, SOONEST_SECONDS), (0.4, 0.1), (2.0, 0.5), (60.0, BUSY_SECONDS)],
    ids=["just now", "moments", "seconds", "long"],
)
def test_a_removal_is_looked_after_at_once_and_then_less_often(
    seconds_ago: float, expected: float
) -> None:
    since = stamp(NOW - timedelta(seconds=seconds_ago))
    status = a_status(stable=STABLE, retiring=[{"hash": OLD.hash, "since": since}])
    weights = {STABLE.hash: 50, OLD.hash: 50}
    snapshot = a_snapshot(
        a_spec(k=4), status=status, pods=[a_pod(STABLE), a_pod(OLD)], gateways=[a_gateway(weights)]
    )
    assert decide(snapshot).next_look_seconds == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds_ago", "expected"),
    [(0.0, STARTING_SECONDS), (60.0, STARTING_SECONDS), (240.0, 20.0), (7200.0, IDLE_SECONDS)],
    ids=["just now", "a minute", "minutes", "hours"],
)
def test_who_waits_long_for_its_first_pods_is_looked_at_less_often(
    seconds_ago: float, expected: float
) -> None:
    status = a_start(seconds_ago)
    snapshot = a_snapshot(a_spec(k=4), status=status, pods=[a_pod(STABLE, ready=False)])
    assert decide(snapshot).next_look_seconds == expected


def test_while_there_is_no_pod_to_be_asked_only_an_event_brings_news() -> None:
    unscheduled = replace(a_pod(STABLE, ready=False), address="")
    for pods in ([], [unscheduled]):
        snapshot = a_snapshot(a_spec(k=4), status=a_start(0.0), pods=pods)
        assert decide(snapshot).next_look_seconds == IDLE_SECONDS


@pytest.mark.parametrize(
    ("error", "expected"),
    [("Envoy does not use what was written", STARTING_SECONDS), ("", IDLE_SECONDS)],
)
def test_what_a_gateway_complains_of_is_asked_for_again_soon(error: str, expected: float) -> None:
    gateway = a_gateway({STABLE.hash: 100}, sequence=0, error=error)
    status = a_status(stable=STABLE)
    snapshot = a_snapshot(a_spec(k=4), status=status, pods=[a_pod(STABLE)], gateways=[gateway])
    assert decide(snapshot).next_look_seconds == expected


def a_start(seconds_ago: float) -> SpeculativeDeploymentStatus:
    """A first revision whose pods have been awaited for so long."""
    condition = {
        "type": ConditionType.AVAILABLE,
        "status": "False",
        "reason": "Starting",
        "lastTransitionTime": stamp(NOW - timedelta(seconds=seconds_ago)),
    }
    return a_status(stable=STABLE, available=False, conditions=[condition])
