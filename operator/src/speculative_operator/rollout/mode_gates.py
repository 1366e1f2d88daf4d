"""Gates about `gateway.mode`: what an edit of it takes away from a rollout under way."""

from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot


def weights_lost(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Nothing splits traffic any more: the revision beside stable has no share."""
    status = snapshot.status
    tried = status.canary or status.guard
    if snapshot.spec.gateway.mode.splits or tried is None or tried.weight == 0:
        return None
    message = f"gateway.mode None: {tried.hash} had {tried.weight} percent and has none now."
    event = Event("CanaryWeight", message)
    if status.canary is not None:
        lost = {"weight": 0, "weight_observed_at": None}
        return transition(snapshot, event, canary=status.canary.model_copy(update=lost))
    return transition(snapshot, event, guard=tried.model_copy(update={"weight": 0}))
