"""H27: a verdict says up to which load per pod it holds."""

import pytest
from tests.builders import a_digest, a_pod, a_record, a_snapshot, a_spec, a_status, some_words
from tests.rollout.assessments import PROVEN

from speculative_operator.rollout.decide import decide
from speculative_operator.rollout.load import load_words
from speculative_operator.snapshot import Snapshot

STABLE, CANARY = some_words(4), some_words(6)
STEPS = [{"weight": 50}, {"pause": {"durationSeconds": 60}}]


def at_load(canary: int | None, stable: int | None, *, step: int = 1) -> Snapshot:
    """A canary in its pause, or past it, with so many requests running per pod of each."""
    pods = [
        a_pod(CANARY, digest=a_digest(CANARY, running=canary)),
        *(a_pod(STABLE, digest=a_digest(STABLE, running=stable), number=i) for i in range(2)),
    ]
    canary_fields = {"step": step, "weight": 50}
    status = a_status(stable=STABLE, canary=CANARY, canaryFields=canary_fields)
    status = status.model_copy(
        update={"canary": status.canary.model_copy(update={"steps_hash": None})}  # type: ignore[union-attr]
    )
    spec = a_spec(k=6, replicas=1, rollout={"steps": STEPS})
    records = [a_record(STABLE), a_record(CANARY, number=2)]
    return a_snapshot(spec, status=status, revisions=records, pods=pods)


@pytest.mark.parametrize(
    ("canary", "stable", "words"),
    [
        (8, 20, "valid up to 8.0 requests running per pod: a pod of stable has 20.0, and latency"),
        (20, 20, "valid up to 20.0 requests running per pod, stable has 20.0."),
        (30, 20, "valid up to 30.0 requests running per pod, stable has 20.0."),
        (8, None, "valid up to 8.0 requests running per pod."),
        (None, 20, ""),
        (0, 0, "valid up to 0.0 requests running per pod, stable has 0.0."),
    ],
)
def test_words(canary: int | None, stable: int | None, words: str) -> None:
    snapshot = at_load(canary, stable)
    found = load_words(snapshot, candidate=CANARY.hash, control=STABLE.hash)
    assert found.startswith(words)
    assert bool(found) is bool(words)


def test_a_proven_step_says_its_load() -> None:
    snapshot = at_load(8, 20)
    events = _events(snapshot)
    assert any("valid up to 8.0 requests running per pod" in text for text in events), events


def test_a_promotion_says_its_load() -> None:
    snapshot = at_load(8, 20, step=2)
    events = _events(snapshot)
    assert any("is stable" in text and "Valid up to 8.0 requests" in text for text in events)


def _events(snapshot: Snapshot) -> list[str]:
    """What two passes say: the first may only remember the steps."""
    found = []
    for _ in range(2):
        decision = decide(snapshot, PROVEN)
        found += [event.message for event in decision.events]
        snapshot = a_snapshot(
            snapshot.spec,
            status=decision.status,
            revisions=snapshot.revisions.values(),
            pods=snapshot.pods,
        )
    return found
