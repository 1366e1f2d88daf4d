"""Gates of removal: weight 0 seen everywhere, streams ended, cluster gone, then the pods.

Each removal that we choose goes this way, so that no stream is cut. The weight
itself is 0 as soon as a revision is in `retiring` (derived, see `shares`).
"""

from speculative_api.v1alpha1 import RetiringStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.gateways import (
    active_requests,
    is_unseen,
    nobody_knows,
    nobody_sends,
)
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot


def route_left(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A retiring revision leaves the route: nobody sends and its streams ended or timed out."""
    for entry in snapshot.status.retiring:
        if entry.route_removed_at is not None or not nobody_sends(snapshot, entry.hash):
            continue
        if is_unseen(snapshot, entry.since):
            continue
        active = active_requests(snapshot, entry.hash)
        waited = seconds_since(entry.since, snapshot.now)
        if active > 0 and waited < snapshot.spec.engine.drain_seconds:
            continue
        left = entry.model_copy(update={"route_removed_at": stamp(snapshot.now)})
        message = f"Every gateway gives {entry.hash} 0 percent; {active} requests in flight."
        if not snapshot.spec.gateway.mode.reads_back:
            message = f"{entry.hash} was given nothing for {waited:.0f} s; no gateway can be asked."
        return transition(
            snapshot, Event("WeightZeroObserved", message), retiring=_with(snapshot, left)
        )
    return None


def pods_released(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """No gateway has a cluster for it any more: its pods may go."""
    for entry in snapshot.status.retiring:
        if entry.route_removed_at is None or not nobody_knows(snapshot, entry.hash):
            continue
        rest = [other for other in snapshot.status.retiring if other.hash != entry.hash]
        event = Event("RevisionRemoved", f"Revision {entry.hash} is out of every gateway.")
        return transition(snapshot, event, retiring=rest)
    return None


def _with(snapshot: Snapshot, changed: RetiringStatus) -> list[RetiringStatus]:
    return [changed if entry.hash == changed.hash else entry for entry in snapshot.status.retiring]
