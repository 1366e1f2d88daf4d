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


def test_what_the_worker_said_is_shown_and_not_that_it_crashes() -> None:
    said = "the model hub cannot be reached from this pod. The engine said: x\nmuch more"
    end = Termination(reason="HubUnreachable", retryable=True, detail=said)
    back_off = "CrashLoopBackOff: back-off 40s restarting failed container"
    pod = a_pod(STABLE, ready=False, restarts=3, termination=end, waiting_reason=back_off)
    snapshot = a_snapshot(status=a_status(stable=STABLE, available=False), pods=[pod])
    shown = decide(snapshot).status.message
    assert "HubUnreachable: the model hub cannot be reached" in shown
    assert "CrashLoopBackOff" not in shown
    assert "much more" not in shown


@pytest.mark.parametrize("guarded", [False, True], ids=["canary", "promoted"])
@pytest.mark.parametrize(
    ("reason", "failed"), [("EngineCrashed", ["CanaryUnhealthy"]), ("HubUnreachable", [])]
)
def test_restarts_fail_a_candidate_unless_its_hub_is_away(
    reason: str, failed: list[str], guarded: bool
) -> None:
    status = decide(restarting(reason, guarded=guarded)).status
    assert [entry.reason for entry in status.failed_revisions] == failed
