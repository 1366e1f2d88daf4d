"""A rollout whose resource was scaled to 0: it rests until somebody scales it up again.

Nothing runs that could show anything, so nothing moves forward, no deadline
passes and no pod is kept for the trial alone. The ways out stay open.
"""

from speculative_api.conditions import Reason
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.times import stamp
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot


def is_at_zero(snapshot: Snapshot) -> bool:
    """Whether a trial goes on for which no pod is asked."""
    return snapshot.status.canary is not None and snapshot.spec.replicas == 0


def is_resting(snapshot: Snapshot) -> bool:
    """Whether its time stands still: also until it is remembered that it goes on."""
    canary = snapshot.status.canary
    remembered = canary is not None and canary.held == Reason.SCALED_TO_ZERO
    return remembered or is_at_zero(snapshot)


def zero_changed(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Somebody scaled to 0 in the middle of a trial, or up again: remembered, and said once.

    What the canary's pods have time for begins anew then: they have to load again.
    """
    canary = snapshot.status.canary
    at_zero = is_at_zero(snapshot)
    if canary is None or at_zero == (canary.held == Reason.SCALED_TO_ZERO):
        return None
    name = f"Revision {canary.revision} ({canary.hash})"
    if at_zero:
        event = Event(Reason.SCALED_TO_ZERO, f"{name} rests where it is: spec.replicas is 0.")
        rests = canary.model_copy(update={"held": str(Reason.SCALED_TO_ZERO)})
        return transition(snapshot, event, canary=rests)
    now = stamp(snapshot.now)
    changes = {"held": None, "step_started_at": now, "unready_since": None}
    if canary.step < 0:
        changes["started_at"] = now
    event = Event("Resumed", f"{name} goes on: spec.replicas is {snapshot.spec.replicas} again.")
    return transition(snapshot, event, canary=canary.model_copy(update=changes))
