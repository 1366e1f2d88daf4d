"""H18: a canary for which there is no room, no image or no hub is parked, and no failure."""

from dataclasses import replace

import pytest
from tests.builders import (
    a_deployment,
    a_gateway,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)
from tests.rollout.assessments import QUIET
from tests.rollout.cluster_world import ClusterWorld
from tests.rollout.test_scenarios import conditions

from speculative_api.labels import RETRY
from speculative_api.worker import Termination
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import WorkerPod

DEADLINE = 600


def fields(steps: list[dict[str, object]] | None = None) -> dict[str, object]:
    return {
        "replicas": 2,
        "rollout": {
            "steps": steps or [{"weight": 50}, {"pause": {"durationSeconds": 30}}],
            "guard": {"durationSeconds": 0},
            "progressDeadlineSeconds": DEADLINE,
        },
    }


def full() -> tuple[ClusterWorld, str, str]:
    """A cluster whose two GPUs are stable's, and a new revision."""
    world = ClusterWorld(a_spec(k=4, **fields()), gpus=2)
    world.until("StableReady")
    world.settle(5)
    assert world.status.stable is not None
    stable = world.status.stable.hash
    canary = world.change(a_spec(k=6, **fields()))
    world.with_assessment(QUIET)
    world.until("CanaryStarting")
    world.settle(3)
    return world, stable, canary


def test_it_has_a_name_and_a_deadline_from_the_beginning() -> None:
    world, _, _ = full()
    assert conditions(world)["Progressing"] == ("True", "CapacityBlocked")
    assert "Unschedulable: no GPU is free" in world.status.message
    assert "Taken out and parked at 2026-01-02T03:14:" in world.status.message


def test_at_the_deadline_it_is_taken_out_and_stable_is_untouched() -> None:
    world, stable, canary = full()
    pods = [pod.number for pod in world.things if pod.hash == stable]
    event = world.until("CapacityBlocked", looks=60, seconds=15)
    assert "no GPU is free" in event.message
    assert event.type == "Warning"
    world.settle(10)
    assert world.status.canary is None
    assert world.status.failed_revisions == []
    assert world.pods[canary] == []
    assert world.used == ((stable, 100),)
    assert [pod.number for pod in world.things] == pods
    assert conditions(world)["Progressing"] == ("False", "CapacityBlocked")
    assert "is tried again at" in world.status.message
    assert len([e for e in world.events if e.reason == "CapacityBlocked"]) == 1


def test_it_is_tried_again_by_itself_after_longer_and_longer() -> None:
    world, _, _ = full()
    waits = []
    for _ in range(6):
        world.until("CapacityBlocked", looks=200, seconds=15)
        parked_at = world.now
        world.until("CanaryStarting", looks=500, seconds=15)
        waits.append(round((world.now - parked_at).total_seconds() / 60))
    assert waits == [5, 10, 20, 40, 60, 60]
    assert world.status.parked is not None
    assert world.status.parked.attempts == 6


def test_room_that_comes_is_found_at_the_next_attempt() -> None:
    world, _, canary = full()
    world.until("CapacityBlocked", looks=60, seconds=15)
    world.gpus = 4
    world.until("Promoted", looks=300, seconds=15)
    assert world.status.stable is not None
    assert world.status.stable.hash == canary
    assert world.status.parked is None


def test_a_retry_tries_it_at_once() -> None:
    world, _, canary = full()
    world.until("CapacityBlocked", looks=60, seconds=15)
    world.settle(10)
    world.annotations[RETRY] = f"{canary}@1"
    world.until("CanaryStarting", looks=5)


def test_another_spec_does_not_wait() -> None:
    world, _, _ = full()
    world.until("CapacityBlocked", looks=60, seconds=15)
    world.gpus = 4
    third = world.change(a_spec(k=7, **fields()))
    world.until("CanaryStarting", looks=20)
    assert world.status.canary is not None
    assert world.status.canary.hash == third


def test_a_canary_that_can_not_grow_is_parked_too() -> None:
    steps: list[dict[str, object]] = [{"weight": 50}, {"pause": {"durationSeconds": 30}}]
    world = ClusterWorld(a_spec(k=4, **fields(steps)), gpus=3)
    world.until("StableReady")
    world.settle(5)
    world.change(a_spec(k=6, **fields(steps)))
    world.with_assessment(QUIET)
    world.until("CanaryWeightObserved")
    event = world.until("CapacityBlocked", looks=200, seconds=15)
    assert "1 of 2 pods ready" in event.message
    assert world.used[0][1] + world.used[1][1] == 100
    world.settle(10)
    assert len(world.used) == 1


WAITING = {
    "a taint": ("Unschedulable: 3 node(s) had untolerated taint {gpu: true}", "CapacityBlocked"),
    "a claim": ("Unschedulable: pod has unbound PersistentVolumeClaims", "CapacityBlocked"),
    "a gate": ("SchedulingGated: kueue", "CapacityBlocked"),
    "an image": ("ImagePullBackOff: Back-off pulling image", "ImageUnavailable"),
    "a registry": ("RegistryUnavailable: 503", "ImageUnavailable"),
    "no image's name": ("InvalidImageName: couldn't parse", ""),
    "a Secret": ('CreateContainerConfigError: secret "hf" not found', ""),
    "a volume": ("", ""),
}
REFUSED = {
    "a quota": ('FailedCreate: pods "c" is forbidden: exceeded quota: gpu', "CapacityBlocked"),
    "no ServiceAccount": ('FailedCreate: serviceaccount "x" not found', ""),
    "a LimitRange": ('FailedCreate: pods "c" is forbidden: maximum memory is 1Gi', ""),
    "a name with the word": ('FailedCreate: pods "quota-bot" is forbidden: maximum memory', ""),
}
LATE = {
    **{
        case: (a_pod(some_words(5), ready=False, waiting_reason=w), "", r)
        for case, (w, r) in WAITING.items()
    },
    **{case: (None, said, reason) for case, (said, reason) in REFUSED.items()},
}


@pytest.mark.parametrize(("pod", "failure", "parked"), LATE.values(), ids=LATE.keys())
def test_what_may_come_parks_and_what_is_wrong_fails(
    pod: WorkerPod | None, failure: str, parked: str
) -> None:
    old, new = some_words(4), some_words(5)
    fresh = {"step": -1, "startedAt": stamp(DEADLINE + 5)}
    snapshot = a_snapshot(
        a_spec(k=5, **fields()),
        status=a_status(stable=old, canary=new, canaryFields=fresh),
        revisions=[a_record(old), a_record(new)],
        deployments=[a_deployment(old, replicas=2), replace(a_deployment(new), failure=failure)],
        pods=[a_pod(old, number=0), a_pod(old, number=1), *([pod] if pod else [])],
        gateways=[a_gateway({old.hash: 100})],
    )
    status = decide(snapshot).status
    assert (status.parked.reason if status.parked else "") == parked
    failed = [entry.reason for entry in status.failed_revisions]
    assert failed == ([] if parked else ["ProgressDeadlineExceeded"])
    assert status.canary is None


@pytest.mark.parametrize("why", ["hub", "nothing"])
def test_a_hub_that_is_away_parks_and_a_slow_engine_fails(why: str) -> None:
    world = ClusterWorld(a_spec(k=4, **fields()))
    world.until("StableReady")
    world.settle(5)
    canary = world.change(a_spec(k=6, **fields()))
    if why == "hub":
        world.ends[canary] = Termination(
            reason="HubUnreachable", retryable=True, detail="no route to the hub\nlog"
        )
    else:
        world.unready.add(canary)
    reason = "HubUnreachable" if why == "hub" else "RolledBack"
    world.until(reason, looks=60, seconds=15)
    assert bool(world.status.failed_revisions) is (why == "nothing")
