"""Catastrophes that no evidence is waited for: one look after they show, the revision is out."""

import pytest
from tests.builders import (
    a_digest,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)
from tests.rollout.assessments import ALL_FAILED, QUIET
from tests.rollout.test_scenarios import serving, trying

from speculative_api.worker import Termination
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import Snapshot, WorkerPod

STABLE, CANARY = some_words(4), some_words(6)
GPU_MEMORY = Termination(reason="GpuMemory", retryable=True, detail="CUDA out of memory")
HOST_MEMORY = Termination(reason="HostMemory", retryable=True, detail="exit code 137 OOMKilled")
CRASHED = Termination(reason="EngineCrashed", retryable=True, detail="signal 11")

POD = a_pod(CANARY)
CATASTROPHES = [
    pytest.param(
        a_pod(CANARY, ready=False, restarts=3, termination=CRASHED),
        QUIET,
        ("CanaryUnhealthy", "3 container restarts (limit 3); signal 11"),
        id="crash loop",
    ),
    pytest.param(
        a_pod(CANARY, restarts=1, termination=GPU_MEMORY),
        QUIET,
        ("GpuMemory", "ran out of memory, and no pod of stable did: CUDA out of memory"),
        id="GPU memory",
    ),
    pytest.param(
        a_pod(CANARY, restarts=1, termination=HOST_MEMORY),
        QUIET,
        ("HostMemory", "OOMKilled"),
        id="host memory",
    ),
    pytest.param(
        a_pod(CANARY, digest=a_digest(CANARY, stalled=True)),
        QUIET,
        ("CanaryUnhealthy", "requests wait and no token comes"),
        id="stalled",
    ),
    pytest.param(
        POD, ALL_FAILED, ("CanaryUnhealthy", "all of its last 10 requests failed"), id="all failed"
    ),
]


def judged(pod: WorkerPod, *stable: WorkerPod, guarded: bool) -> Snapshot:
    guard = {"revision": 1, "hash": STABLE.hash, "startedAt": stamp(5), "weight": 5}
    return a_snapshot(
        a_spec(k=6),
        status=a_status(stable=CANARY, guard=guard)
        if guarded
        else a_status(stable=STABLE, canary=CANARY),
        revisions=[a_record(STABLE), a_record(CANARY, number=2)],
        pods=[*stable, pod],
    )


@pytest.mark.parametrize("guarded", [False, True], ids=["canary", "promoted"])
@pytest.mark.parametrize(("pod", "assessment", "why"), CATASTROPHES)
def test_one_look_is_enough(pod, assessment, why, guarded) -> None:
    reason, words = why
    decision = decide(judged(pod, a_pod(STABLE), guarded=guarded), assessment)
    (failed,) = decision.status.failed_revisions
    assert failed.reason == reason
    assert words in failed.message
    assert {s.hash: s.weight for s in decision.shares}[STABLE.hash] == 100


@pytest.mark.parametrize("guarded", [False, True], ids=["canary", "promoted"])
@pytest.mark.parametrize(
    ("pod", "assessment", "stable"),
    [
        pytest.param(
            a_pod(CANARY, restarts=1, termination=HOST_MEMORY),
            QUIET,
            a_pod(STABLE, termination=GPU_MEMORY),
            id="stable's pods run out of memory as well",
        ),
        pytest.param(
            a_pod(CANARY, restarts=2, termination=CRASHED), QUIET, a_pod(STABLE), id="two restarts"
        ),
        pytest.param(POD, ALL_FAILED, a_pod(STABLE, ready=False), id="nobody could go on"),
        pytest.param(POD, QUIET, a_pod(STABLE), id="nothing"),
    ],
)
def test_what_is_no_catastrophe(pod, assessment, stable, guarded) -> None:
    assert decide(judged(pod, stable, guarded=guarded), assessment).status.failed_revisions == []


def test_a_world_goes_back_to_stable_when_its_canary_runs_out_of_memory() -> None:
    world, stable, canary = trying()
    world.ends[canary] = GPU_MEMORY
    event = world.until("RolledBack", looks=2)
    assert event.message.startswith("GpuMemory: ")
    world.settle()
    assert world.used == ((stable, 100),)


def test_a_first_revision_that_runs_out_of_memory_is_tried_again() -> None:
    world = serving()
    assert world.status.stable is not None
    world.ends[world.status.stable.hash] = HOST_MEMORY
    world.settle()
    assert world.status.failed_revisions == []
