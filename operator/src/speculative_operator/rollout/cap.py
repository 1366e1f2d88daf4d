"""The cap on rollbacks per hour: whether a new revision has to wait, and until when."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from speculative_api.conditions import Reason
from speculative_operator.rollout.times import moment
from speculative_operator.rollout.transition import has_failed, wanted
from speculative_operator.snapshot import Snapshot

HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Parked:
    """A revision that waits: its hash, how many failed within the hour, and until when."""

    hash: str
    failures: int
    until: datetime


def parked(snapshot: Snapshot) -> Parked | None:
    """The revision that the spec asks for and that has to wait; None if none has to."""
    cap = snapshot.spec.rollout.max_rollbacks_per_hour
    status, revision = snapshot.status, wanted(snapshot)
    if not cap or revision is None or status.stable is None or revision == status.stable.hash:
        return None
    if status.canary is not None or has_failed(snapshot, revision):
        return None
    failures = sorted(
        (moment(entry.at) for entry in status.failed_revisions if entry.reason != Reason.ABORTED),
        reverse=True,
    )
    recent = [at for at in failures if at + HOUR > snapshot.now]
    if len(recent) < cap:
        return None
    # It may go as soon as fewer than `cap` failures are younger than an hour.
    return Parked(revision, len(recent), recent[cap - 1] + HOUR)
