"""What autoscalers see and say: the scale subresource, the condition, and no canary revived."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import (
    a_deployment,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)

from speculative_api.conditions import ConditionType
from speculative_api.v1alpha1 import Condition
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import AutoscalerView, Snapshot

FIRST, SECOND = some_words(4), some_words(5)
SCALING = {
    "minReplicas": 1,
    "maxReplicas": 9,
    "metrics": [{"name": "RequestsWaiting", "targetPerPod": 4}],
}


def a_world(replicas: int, *, canary: bool = False, pods: int | None = None) -> Snapshot:
    present = replicas if pods is None else pods
    return a_snapshot(
        a_spec(k=5 if canary else 4, replicas=replicas, autoscaling=SCALING),
        status=a_status(
            stable=FIRST,
            canary=SECOND if canary else None,
            canaryFields={"step": 0, "weight": 50, "weightObservedAt": stamp(9)} if canary else {},
        ),
        revisions=[a_record(FIRST), a_record(SECOND, number=2)],
        deployments=[a_deployment(FIRST, replicas=replicas)],
        pods=[
            *(a_pod(FIRST, number=i) for i in range(present)),
            *(a_pod(SECOND, number=i) for i in range(2 if canary else 0)),
        ],
    )


def condition(snapshot: Snapshot) -> Condition | None:
    found = decide(snapshot).status.conditions
    return next((c for c in found if c.type == ConditionType.AUTOSCALING_ACTIVE), None)


@pytest.mark.parametrize("total", [1, 2, 6, 9])
def test_an_aborted_canary_stays_at_zero_whatever_the_total_does(total: int) -> None:
    """argo-rollouts#941: once per scale event the dead canary came back."""
    failed = {"hash": SECOND.hash, "reason": "AcceptanceWorse", "at": stamp(60)}
    base = a_world(4)
    snapshot = a_snapshot(
        a_spec(k=5, replicas=total, autoscaling=SCALING),
        status=a_status(stable=FIRST, failedRevisions=[failed]),
        revisions=base.revisions.values(),
        deployments=[*base.deployments.values(), a_deployment(SECOND, replicas=0)],
        # The new pods of stable load for a long time.
        pods=base.pods,
    )
    decision = decide(snapshot)
    assert not decision.transition
    pods = {scale.hash: scale.replicas for scale in decision.scales}
    assert pods == {FIRST.hash: total, SECOND.hash: 0}
    assert [(s.hash, s.weight) for s in decision.shares] == [(FIRST.hash, 100)]


def test_the_total_goes_to_stable_and_its_share_to_the_canary() -> None:
    pods = {s.track: s.replicas for s in decide(a_world(6, canary=True)).scales}
    assert pods["stable"] == 6
    assert pods["canary"] == 3


@pytest.mark.parametrize(
    "replicas, pods, canary, shown",
    [
        pytest.param(4, 4, False, 4, id="all there"),
        pytest.param(4, 1, False, 1, id="some are still missing"),
        pytest.param(4, 4, True, 4, id="a canary's pods come on top and do not creep in"),
        pytest.param(4, 6, False, 4, id="some are still leaving"),
    ],
)
def test_shown_replicas_are_those_asked_for(
    replicas: int, pods: int, canary: bool, shown: int
) -> None:
    assert decide(a_world(replicas, canary=canary, pods=pods)).status.replicas == shown


@pytest.mark.parametrize("snapshot", [a_snapshot(), a_world(1), a_world(2, canary=True)])
def test_the_selector_is_never_empty_and_names_the_resource(snapshot: Snapshot) -> None:
    """Equal specs have equal hashes: without the name two resources would share pods."""
    assert decide(snapshot).status.selector.startswith("speculative.dev/name=chat,")


@pytest.mark.parametrize(
    "view, state, reason, words",
    [
        (None, "Unknown", "AutoscalerStarting", "1 to 9 pods"),
        (AutoscalerView(None), "Unknown", "AutoscalerStarting", "Nothing said yet"),
        (AutoscalerView(True, "ValidMetricFound: x"), "True", "Autoscaling", "ValidMetricFound"),
        (
            AutoscalerView(False, "FailedGetExternalMetric: no"),
            "False",
            "AutoscalerBlind",
            "FailedGetExternalMetric: no",
        ),
    ],
)
def test_the_condition_is_the_autoscalers_own_word(
    view: AutoscalerView | None, state: str, reason: str, words: str
) -> None:
    snapshot = a_world(3)
    found = condition(_with(snapshot, autoscaler=view))
    assert found is not None
    assert (found.status, found.reason) == (state, reason)
    assert words in found.message
    scales = {s.track: s.replicas for s in decide(_with(snapshot, autoscaler=view)).scales}
    assert scales == {"stable": 3}, "replicas stay as they are"


def test_no_condition_without_autoscaling() -> None:
    assert condition(a_snapshot()) is None


def _with(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return replace(snapshot, **changes)
