"""Groups that end are made anew, and remembered."""

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

from speculative_api.conditions import Reason
from speculative_api.labels import RETRY
from speculative_api.worker import Termination
from speculative_operator.decision import Scale
from speculative_operator.rollout.decide import decide
from speculative_operator.rollout.groups import KEPT, group_ended
from speculative_operator.scaling.removal import shrinking
from speculative_operator.snapshot import Snapshot, WorkerPod

STABLE, CANARY = some_words(4), some_words(6)


def an_end(reason: str = "EngineCrashed", *, retryable: bool = True) -> Termination:
    return Termination(reason=reason, retryable=retryable, detail="NCCL error\nand more")


def a_leader(*, number: int = 0, **fields: Any) -> WorkerPod:
    pod = a_pod(CANARY, ready=False, number=number, **fields)
    return replace(pod, is_group=True)


def failures(*ages: float, reason: str = "EngineCrashed", retryable: bool = True) -> dict[str, Any]:
    return {
        "groupFailures": [
            {
                "hash": CANARY.hash,
                "uid": f"gone-{index}",
                "reason": reason,
                "retryable": retryable,
                "message": "NCCL error",
                "at": stamp(age),
            }
            for index, age in enumerate(ages)
        ]
    }


def a_trial(*pods: WorkerPod, **status: Any) -> Snapshot:
    return a_snapshot(
        a_spec(k=6),
        status=a_status(stable=STABLE, canary=CANARY, **status),
        revisions=[a_record(STABLE), a_record(CANARY, number=2)],
        pods=[a_pod(STABLE), *pods],
    )


def noted(snapshot: Snapshot) -> list[str]:
    return [entry.uid for entry in decide(snapshot).status.group_failures]


def test_a_group_that_ended_is_noted_once() -> None:
    pod = a_leader(termination=an_end(), restarts=1, terminating=True)
    found = decide(a_trial(pod))
    (event,) = found.events
    assert (event.reason, event.type) == ("GroupRecreated", "Warning")
    assert "EngineCrashed: NCCL error" in event.message
    assert "and more" not in event.message
    (entry,) = found.status.group_failures
    assert (entry.uid, entry.hash, entry.message) == (pod.uid, CANARY.hash, "NCCL error\nand more")
    again = replace(a_trial(pod), status=found.status)
    assert decide(again).status.group_failures == [entry]


@pytest.mark.parametrize(
    ("pod", "is_noted"),
    [
        (a_leader(termination=an_end()), True),
        (a_leader(termination=an_end(), terminating=True, restarts=1), True),
        (a_leader(termination=an_end(), terminating=True), False),
        (a_leader(restarts=1), False),
        (a_pod(CANARY, ready=False, termination=an_end(), restarts=1), False),
    ],
    ids=["ended", "ended and deleted", "deleted, then killed", "no word", "a pod of its own"],
)
def test_which_ends_are_those_of_groups(pod: WorkerPod, is_noted: bool) -> None:
    assert (noted(a_trial(pod)) == [pod.uid]) is is_noted


def test_the_list_is_bounded_and_forgets_after_an_hour() -> None:
    pod = a_leader(termination=an_end(), restarts=1)
    old = a_trial(pod, **failures(*[10] * KEPT))
    assert len(noted(old)) == KEPT
    assert noted(a_trial(pod, **failures(4000, 10))) == ["gone-1", pod.uid]


def test_groups_that_crash_again_and_again_fail_the_canary() -> None:
    assert decide(a_trial(a_leader(), **failures(30, 20))).status.canary is not None
    found = decide(a_trial(a_leader(), **failures(30, 20, 10))).status
    assert [entry.reason for entry in found.failed_revisions] == [Reason.CANARY_UNHEALTHY]
    assert found.verdict is not None
    assert "3 container restarts (limit 3); NCCL error" in found.verdict.message


def test_what_was_before_this_trial_does_not_count() -> None:
    snapshot = a_trial(a_leader(), **failures(90, 80, 70))
    assert snapshot.crashes(CANARY.hash) == 0
    assert decide(snapshot).status.failed_revisions == []


def test_a_hub_that_is_away_is_no_crash() -> None:
    snapshot = a_trial(a_leader(), **failures(30, 20, 10, reason="HubUnreachable"))
    assert snapshot.crashes(CANARY.hash) == 0
    late = {"startedAt": stamp(4000), "stepStartedAt": stamp(4000)}
    gone = a_trial(a_leader(), canaryFields=late, **failures(30, 20, 10, reason="HubUnreachable"))
    parked = decide(gone).status.parked
    assert parked is not None
    assert parked.reason == "HubUnreachable"


def test_a_live_group_is_counted_by_its_restarts_alone() -> None:
    pod = a_leader(restarts=2, termination=an_end())
    noted_already = decide(a_trial(pod)).status
    snapshot = replace(a_trial(pod), status=noted_already)
    assert snapshot.crashes(CANARY.hash) == 2


def test_an_end_that_no_retry_cures_fails_the_canary_though_its_pod_is_gone() -> None:
    found = decide(a_trial(a_leader(), **failures(10, reason="ModelNotFound", retryable=False)))
    assert [entry.reason for entry in found.status.failed_revisions] == ["ModelNotFound"]


def test_the_first_revision_fails_likewise_and_retry_forgets() -> None:
    gone = failures(10, reason="ModelNotFound", retryable=False)
    status = a_status(stable=CANARY, available=False, **gone)
    snapshot = a_snapshot(a_spec(k=6), status=status, pods=[a_leader()])
    failed = decide(snapshot).status
    assert [entry.reason for entry in failed.failed_revisions] == ["ModelNotFound"]
    again = replace(snapshot, status=failed, annotations={RETRY: f"{CANARY.hash}@1"})
    retried = decide(again).status
    assert (retried.failed_revisions, retried.group_failures) == ([], [])


def test_why_nothing_is_ready_is_said_though_the_pods_are_new() -> None:
    snapshot = a_trial(a_leader(), **failures(10))
    assert snapshot.waiting_reason(CANARY.hash) == "EngineCrashed: NCCL error"


def test_nothing_is_noted_without_groups() -> None:
    from speculative_operator.decision import Assessment

    assert group_ended(a_trial(a_pod(CANARY)), Assessment()) is None


def test_a_restart_whose_groups_end_stalls() -> None:
    restart = {"hash": CANARY.hash, "at": stamp(60), "stamp": stamp(60)}
    gone = failures(30, 20, 10)
    status = a_status(stable=CANARY, restart=restart, **gone)
    snapshot = a_snapshot(a_spec(k=6), status=status, pods=[a_leader(), a_leader(number=1)])
    found = decide(snapshot).status.restart
    assert found is not None
    assert found.outcome == "Stalled"
    assert "a group ended: EngineCrashed" in found.message


GROUPED = {"target": {"model": "file:///m", "tensorParallelSize": 2, "nodesPerReplica": 2}}


def without_the_kind(**fields: Any) -> Snapshot:
    snapshot = a_snapshot(a_spec(**GROUPED), **fields)
    return replace(snapshot, missing_kinds=frozenset({"LeaderWorkerSet"}))


def test_without_the_kind_nothing_begins() -> None:
    found = decide(without_the_kind()).status
    accepted = found.conditions[0]
    assert found.stable is None
    assert (accepted.status, accepted.reason) == ("False", Reason.KIND_MISSING)
    assert "target.nodesPerReplica 2 needs the kind LeaderWorkerSet" in accepted.message
    kept = decide(without_the_kind(status=a_status(stable=STABLE), pods=[a_pod(STABLE)])).status
    assert kept.canary is None
    assert kept.stable is not None


def test_a_set_that_shrinks_is_asked_for_no_costs() -> None:
    deployment = a_deployment(CANARY, replicas=3)
    for is_groups, expected in ((False, frozenset({CANARY.hash})), (True, frozenset[str]())):
        view = replace(deployment, is_groups=is_groups)
        snapshot = a_snapshot(deployments=[view])
        assert shrinking(snapshot, [Scale(CANARY.hash, "stable", 2)]) == expected


def test_a_group_that_ran_out_of_memory_is_taken_out_at_once() -> None:
    found = decide(a_trial(a_leader(), **failures(10, reason="GpuMemory"))).status
    assert [entry.reason for entry in found.failed_revisions] == ["GpuMemory"]
