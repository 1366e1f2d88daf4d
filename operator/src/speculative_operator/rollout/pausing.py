"""A rollout that a person holds: whether it is held, and the gate that remembers and says so.

Held means no way forward; the ways out (abort, a worse canary, another spec)
stay open, and judging goes on. The annotation names the revision, so that one
left behind holds no later rollout.
"""

from speculative_api.conditions import Reason
from speculative_api.labels import PAUSE
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.at_zero import is_at_zero
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot


def is_paused(snapshot: Snapshot) -> bool:
    """Whether the canary, or the promoted revision under guard, is the one to be held."""
    status = snapshot.status
    tried = status.canary or (status.stable if status.guard is not None else None)
    return tried is not None and snapshot.annotations.get(PAUSE) == tried.hash


def pause_changed(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person said pause, or took it back: remembered, so that it is said once."""
    canary = snapshot.status.canary
    paused = is_paused(snapshot)
    if (
        canary is None
        or is_at_zero(snapshot)
        or paused == (canary.held == Reason.PAUSED_ON_REQUEST)
    ):
        return None
    name = f"Revision {canary.revision} ({canary.hash})"
    if paused:
        event = Event(Reason.PAUSED_ON_REQUEST, f"{name} is held where it is, on request.")
        held = canary.model_copy(update={"held": str(Reason.PAUSED_ON_REQUEST)})
    else:
        event = Event("Resumed", f"{name} goes on, on request.")
        held = canary.model_copy(update={"held": None})
    return transition(snapshot, event, canary=held)
