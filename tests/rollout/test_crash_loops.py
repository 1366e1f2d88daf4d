"""Restarts make a canary unhealthy, unless it only waits for a hub that is away."""

import pytest
from tests.builders import a_pod, a_record, a_snapshot, a_spec, a_status, some_words, stamp

from speculative_api.worker import Termination
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import Snapshot

STABLE, CANARY = some_words(4), some_words(6)


def restarting(reason: str, *, guarded: bool) -> Snapshot:
    """A candidate whose pod was restarted five times; before or after its promotion."""
    end = Termination(reason=reason, retryable=True, detail="why")
    guard = {"revision": 1, "hash": STABLE.hash, "startedAt": stamp(5), "weight": 5}
    return a_snapshot(
        a_spec(k=6),
        status=a_status(stable=CANARY, guard=guard)
        if guarded
        else a_status(stable=STABLE, canary=CANARY),
        revisions=[a_record(STABLE), a_record(CANARY, number=2)],
        pods=[a_pod(STABLE), a_pod(CANARY, ready=False, restarts=5, termination=end)],
    )


@pytest.mark.parametrize("guarded", [False, True], ids=["canary", "promoted"])
@pytest.mark.parametrize(
    ("reason", "failed"), [("EngineCrashed", ["CanaryUnhealthy"]), ("HubUnreachable", [])]
)
def test_restarts_fail_a_candidate_unless_its_hub_is_away(
    reason: str, failed: list[str], guarded: bool
) -> None:
    status = decide(restarting(reason, guarded=guarded)).status
    assert [entry.reason for entry in status.failed_revisions] == failed
