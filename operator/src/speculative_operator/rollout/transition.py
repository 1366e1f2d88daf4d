"""A transition: the next status memory and its events, and the small edits gates share."""

from dataclasses import dataclass
from typing import Any, Literal

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import (
    FailedRevision,
    RetiringStatus,
    SpeculativeDeploymentStatus,
    Verdict,
)
from speculative_operator.decision import Event
from speculative_operator.rollout.capacity import canary_weight, gives_up_capacity
from speculative_operator.rollout.sessions import assumption
from speculative_operator.rollout.times import stamp
from speculative_operator.snapshot import Snapshot

FAILED_KEPT = 32
"""Failed hashes remembered; the oldest is forgotten first (the CRD's bound on the list)."""

VerdictOutcome = Literal["Promoted", "RolledBack", "Aborted", "Superseded", "GuardPassed", "Parked"]


@dataclass(frozen=True, slots=True)
class Transition:
    """What a gate decided; written before any of its effects."""

    status: SpeculativeDeploymentStatus
    events: tuple[Event, ...] = ()


def transition(snapshot: Snapshot, *events: Event, **changes: Any) -> Transition:
    """The snapshot's status with some fields replaced."""
    return Transition(snapshot.status.model_copy(update=changes), events)


def next_number(snapshot: Snapshot, revision: str) -> int:
    """The history number of a revision: its stored one, else one above all."""
    if revision in snapshot.revisions:
        return snapshot.revisions[revision].number
    status = snapshot.status
    known = [record.number for record in snapshot.revisions.values()]
    known += [part.revision for part in (status.stable, status.canary, status.guard) if part]
    return max(known, default=0) + 1


def retire(snapshot: Snapshot, revision: str, *, weight: int = 0) -> list[RetiringStatus]:
    """The retiring list with one more revision, in the order of removal.

    `weight` is what it keeps at most until stable has the pods that it gave up.
    """
    kept = [entry for entry in snapshot.status.retiring if entry.hash != revision]
    return [*kept, RetiringStatus(hash=revision, since=stamp(snapshot.now), weight=weight)]


def fail(snapshot: Snapshot, revision: str, *, reason: str, message: str) -> list[FailedRevision]:
    """The failed list with this revision as the newest."""
    others = [entry for entry in snapshot.status.failed_revisions if entry.hash != revision]
    entry = FailedRevision(
        hash=revision, reason=reason, message=message[:4000], at=stamp(snapshot.now)
    )
    return [*others, entry][-FAILED_KEPT:]


def verdict(
    snapshot: Snapshot, revision: str, *, outcome: VerdictOutcome, reason: str, message: str
) -> Verdict:
    """The last decision, with its arithmetic."""
    judged = outcome in ("Promoted", "RolledBack", "GuardPassed")
    if judged and (assumed := assumption(snapshot)):
        message = f"{message[:3500]} {assumed}"
    return Verdict(
        hash=revision,
        outcome=outcome,
        reason=reason,
        message=message[:4000],
        at=stamp(snapshot.now),
    )


def has_failed(snapshot: Snapshot, revision: str) -> bool:
    """Whether a revision failed and nobody said retry since."""
    return failure_of(snapshot, revision) is not None


def failure_of(snapshot: Snapshot, revision: str | None) -> FailedRevision | None:
    """Why it failed; None where it did not, or somebody said retry since."""
    failed = snapshot.status.failed_revisions
    return next((entry for entry in failed if entry.hash == revision), None)


def wanted(snapshot: Snapshot) -> str | None:
    """The hash the user wants; while the spec is refused, what is running stays wanted."""
    if not snapshot.is_refused:
        return snapshot.words.hash
    status = snapshot.status
    running = status.canary or status.stable
    return running.hash if running else None


def _kept_share(snapshot: Snapshot, reason: str) -> int:
    """Percent that a canary keeps until stable has its pods again.

    One that answers nothing carries nothing: its share would be lost, and is better queued.
    """
    if reason == Reason.CANARY_UNHEALTHY or not gives_up_capacity(snapshot):
        return 0
    return canary_weight(snapshot)


def canary_ends(
    snapshot: Snapshot, *, outcome: VerdictOutcome, reason: str, message: str, failed: bool
) -> Transition:
    """The canary is taken out: memory of why, weight 0 derived, removal in order."""
    canary = snapshot.status.canary
    if canary is None:
        return Transition(snapshot.status)
    text = f"Revision {canary.revision} ({canary.hash}): {message}"
    changes: dict[str, Any] = {
        "canary": None,
        "retiring": retire(snapshot, canary.hash, weight=_kept_share(snapshot, reason)),
        "verdict": verdict(snapshot, canary.hash, outcome=outcome, reason=reason, message=text),
    }
    if failed:
        changes["failed_revisions"] = fail(snapshot, canary.hash, reason=reason, message=text)
    kind: Literal["Normal", "Warning"] = "Warning" if failed else "Normal"
    event_reason = {"RolledBack": Reason.ROLLED_BACK, "Aborted": Reason.ABORTED}.get(
        outcome, Reason.SUPERSEDED
    )
    return transition(snapshot, Event(event_reason, f"{reason}: {text}", kind), **changes)
