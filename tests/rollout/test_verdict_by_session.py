"""A verdict over sticky sessions says what its bound assumes."""

import pytest
from tests.builders import a_digest, a_pod, a_snapshot, a_spec, a_status, some_words

from speculative_operator.rollout.remarks import remarks
from speculative_operator.rollout.sessions import BY_SESSION, offset
from speculative_operator.rollout.transition import VerdictOutcome, verdict
from speculative_operator.snapshot import Snapshot, WorkerPod

STABLE, CANARY = some_words(4), some_words(6)


@pytest.mark.parametrize(
    ("gateway", "outcome", "said"),
    [
        ({"sessionAffinityHeader": "x-session-id"}, "Promoted", True),
        ({"sessionAffinityHeader": "x-session-id"}, "RolledBack", True),
        ({"sessionAffinityHeader": "x-session-id"}, "GuardPassed", True),
        ({"sessionAffinityHeader": "x-session-id"}, "Aborted", False),
        ({}, "Promoted", False),
    ],
    ids=["promoted", "rolled back", "guard passed", "a person's word", "not sticky"],
)
def test_what_a_verdict_assumes(
    gateway: dict[str, object], outcome: VerdictOutcome, said: bool
) -> None:
    snapshot = a_snapshot(a_spec(gateway=gateway))
    found = verdict(snapshot, "a" * 10, outcome=outcome, reason="R", message="41 percent" * 500)
    assert (BY_SESSION in found.message) == said
    assert len(found.message) <= 4000


def pod(number: int, accepted: int, *, steps: int = 2000, ready: bool = True) -> WorkerPod:
    digest = a_digest(STABLE, generated_tokens=steps + accepted, accepted_tokens=accepted)
    return a_pod(STABLE, number=number, ready=ready, digest=digest)


def sticky(*pods: WorkerPod) -> Snapshot:
    spec = a_spec(gateway={"sessionAffinityHeader": "x-session-id"})
    status = a_status(stable=STABLE, canary=CANARY, canaryFields={"step": 1})
    return a_snapshot(spec, status=status, pods=pods)


def test_a_verdict_shows_how_far_two_pods_of_stable_differ_as_it_is() -> None:
    snapshot = sticky(pod(0, 3000), pod(1, 3300), pod(2, 100))
    found = verdict(snapshot, CANARY.hash, outcome="Promoted", reason="R", message="fine")
    assert "differ by 10.0 percent as it is: 1.50 (chat-" in found.message
    assert "and 1.65 (chat-" in found.message
    assert any("differ by 10.0 percent" in said for said in remarks(snapshot))


UNKNOWN = {
    "one pod": [pod(0, 3000)],
    "too few steps": [pod(0, 3000), pod(1, 3000, steps=900)],
    "not ready": [pod(0, 3000), pod(1, 3000, ready=False)],
    "no figures": [pod(0, 3000), a_pod(STABLE, number=1)],
    "nothing accepted": [pod(0, 0), pod(1, 3000)],
}


@pytest.mark.parametrize("pods", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_is_not_known_is_said(pods: list[WorkerPod]) -> None:
    assert offset(sticky(*pods)).startswith("No offset between two pods of stable is known")


def test_under_guard_the_old_revision_is_the_control() -> None:
    guard = {"revision": 1, "hash": STABLE.hash, "startedAt": "2026-01-02T03:00:00Z", "weight": 5}
    spec = a_spec(gateway={"sessionAffinityHeader": "x-session-id"})
    status = a_status(stable=CANARY, guard=guard)
    snapshot = a_snapshot(spec, status=status, pods=[pod(0, 3000), pod(1, 3300)])
    assert "differ by 10.0 percent" in offset(snapshot)


def test_without_stickiness_nothing_is_said_of_it() -> None:
    status = a_status(stable=STABLE, canary=CANARY, canaryFields={"step": 1})
    assert remarks(a_snapshot(a_spec(), status=status, pods=[pod(0, 3000), pod(1, 3300)])) == []
