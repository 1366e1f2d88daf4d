"""Gates of the guard: after promotion the old revision is kept while judging goes on."""

from typing import Any

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import StableStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.hard_guard import catastrophe
from speculative_operator.rollout.pausing import is_paused
from speculative_operator.rollout.returning import is_kept, is_returning, pods_to_take_over
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import (
    Transition,
    fail,
    retire,
    transition,
    verdict,
    wanted,
)
from speculative_operator.rollout.trial import trial_of
from speculative_operator.snapshot import Snapshot


def promoted_worse(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """The promoted revision shows itself worse, or is a catastrophe: the old one returns."""
    guard, stable = snapshot.status.guard, snapshot.status.stable
    if guard is None or stable is None or is_returning(snapshot):
        return None
    if guard.keep == "Full" and snapshot.ready_pods(guard.hash) == 0:
        return None
    metric = assessment.failed
    ended = next((end for end in snapshot.ends(stable.hash) if not end.retryable), None)
    if metric is not None:
        return _returned(snapshot, reason=metric.reason, message=metric.message, failed=True)
    if ended is not None:
        return _returned(snapshot, reason=ended.reason, message=ended.detail, failed=True)
    trial = trial_of(snapshot.status)
    control = trial.control if trial else ""
    found = catastrophe(snapshot, assessment, candidate=stable.hash, control=control)
    if found is None:
        return None
    return _returned(snapshot, reason=found.reason, message=found.message, failed=True)


def guard_reverted(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The spec went back to the old words while they are still kept: return at once."""
    guard = snapshot.status.guard
    if guard is None or is_returning(snapshot) or wanted(snapshot) != guard.hash:
        return None
    message = "the spec went back to the revision before"
    return _returned(snapshot, reason=Reason.SUPERSEDED, message=message, failed=False)


def _returned(snapshot: Snapshot, *, reason: str, message: str, failed: bool) -> Transition | None:
    guard, bad = snapshot.status.guard, snapshot.status.stable
    if guard is None or bad is None:
        return None
    now = stamp(snapshot.now)
    text = (
        f"Revision {bad.revision} ({bad.hash}) was taken back for revision {guard.revision} "
        f"({guard.hash}): {message}"
    )
    memory = (
        fail(snapshot, bad.hash, reason=reason, message=text)
        if failed
        else snapshot.status.failed_revisions
    )
    kept_whole = guard.keep == "Full" and not snapshot.spec.rollout.dynamic_stable
    if kept_whole or snapshot.ready_pods(guard.hash) >= max(1, pods_to_take_over(snapshot)):
        changes: dict[str, Any] = {
            "stable": StableStatus(revision=guard.revision, hash=guard.hash, available_at=now),
            "guard": None,
        }
        leaving = retire(snapshot, bad.hash)
    else:
        changes = {"guard": guard.model_copy(update={"returning_since": now})}
        leaving = snapshot.status.retiring
    return transition(
        snapshot,
        Event(Reason.ROLLED_BACK, f"{reason}: {text}", "Warning" if failed else "Normal"),
        **changes,
        # It may still be on its way out itself: whatever pods it has are needed again.
        retiring=[entry for entry in leaving if entry.hash != guard.hash],
        failed_revisions=memory,
        verdict=verdict(
            snapshot,
            bad.hash,
            outcome="RolledBack" if failed else "Superseded",
            reason=reason,
            message=text,
        ),
    )


def guard_over(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """The guard's time is up, or the spec moved on: the old revision goes."""
    guard, stable = snapshot.status.guard, snapshot.status.stable
    if guard is None or stable is None or is_returning(snapshot):
        return None
    waited = seconds_since(guard.started_at, snapshot.now)
    moved_on = wanted(snapshot) != stable.hash
    held = is_paused(snapshot) or waited < snapshot.spec.rollout.guard.duration_seconds
    if not moved_on and held:
        return None
    details = "; ".join(metric.message for metric in assessment.metrics)
    why = "the spec moved on" if moved_on else f"nothing pointed to worse in {waited:.0f} s"
    text = f"The guard of revision {stable.revision} ({stable.hash}) is over: {why}. {details}"
    return transition(
        snapshot,
        Event("GuardOver", text.rstrip()),
        guard=None,
        retiring=retire(snapshot, guard.hash) if is_kept(snapshot) else snapshot.status.retiring,
        verdict=verdict(
            snapshot,
            stable.hash,
            outcome="GuardPassed",
            reason=Reason.SUPERSEDED if moved_on else Reason.PROMOTED,
            message=text.rstrip(),
        ),
    )
