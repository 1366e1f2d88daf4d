"""Gates of a shadow step: users leave, copies are decided, seen, judged, and end.

    weight 0 seen -> percent decided -> percent seen (evidence begins) -> the next step

The end is `enter`'s: another step means 0 percent, and `weight_given` waits
until the last copies were answered.
"""

from speculative_api.v1alpha1 import CanaryStatus, ShadowStep
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.capacity import canary_goal
from speculative_operator.rollout.gateways import everyone_copies, everyone_uses
from speculative_operator.rollout.shadowing import copies_are_over, is_drained
from speculative_operator.rollout.step_gates import enter, stable_can_take, wait_over
from speculative_operator.rollout.steps import step_at
from speculative_operator.rollout.times import stamp
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot


def _at_shadow(snapshot: Snapshot) -> tuple[CanaryStatus, ShadowStep] | None:
    canary = snapshot.status.canary
    step = step_at(snapshot.spec.rollout, canary.step) if canary else None
    if canary is None or step is None or step.shadow is None:
        return None
    return canary, step.shadow


def shadow_given(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A shadow step whose canary is ready and has no users: copies are decided, then waited for."""
    found = _at_shadow(snapshot)
    if found is None:
        return None
    canary, shadow = found
    if not snapshot.spec.gateway.mode.reads_back:
        mode = snapshot.spec.gateway.mode
        event = Event("StepSkipped", f"gateway.mode {mode} can't copy {shadow.percent} percent.")
        return enter(snapshot, canary, canary.step + 1, event)
    if canary.weight > 0:
        return _users_leave(snapshot, canary)
    if canary.shadow != shadow.percent:
        return _decided(snapshot, canary, shadow)
    if canary.shadow_observed_at is not None or not everyone_copies(
        snapshot, canary.hash, shadow.percent
    ):
        return None
    now = stamp(snapshot.now)
    seen = canary.model_copy(update={"shadow_observed_at": now, "step_started_at": now})
    message = f"Every gateway copies {shadow.percent} percent of the requests to {canary.hash}."
    return transition(snapshot, Event("CanaryShadowObserved", message), canary=seen)


def _users_leave(snapshot: Snapshot, canary: CanaryStatus) -> Transition | None:
    if not stable_can_take(snapshot):
        return None
    changed = canary.model_copy(update={"weight": 0, "weight_observed_at": None})
    name = f"Revision {canary.revision} ({canary.hash})"
    message = f"{name} gets 0 percent: copies are for a revision without users."
    return transition(snapshot, Event("CanaryWeight", message), canary=changed)


def _decided(snapshot: Snapshot, canary: CanaryStatus, shadow: ShadowStep) -> Transition | None:
    if snapshot.ready_pods(canary.hash) < canary_goal(snapshot):
        return None
    if not everyone_uses(snapshot, canary.hash, 0):
        return None
    if canary.shadow == 0 and not is_drained(snapshot, canary):
        # What its pods still do for users would count as evidence of this step.
        return None
    changed = canary.model_copy(
        update={
            "shadow": shadow.percent,
            "shadow_started_at": stamp(snapshot.now),
            "shadow_observed_at": None,
            "settled_weight": 0,
        }
    )
    message = (
        f"Revision {canary.revision} ({canary.hash}) is sent copies of {shadow.percent} percent of "
        f"the requests, {shadow.max_concurrent_requests} at a time at most."
    )
    return transition(snapshot, Event("CanaryShadow", message), canary=changed)


def shadow_over(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """A shadow step ends as a pause does: by a person, by evidence, or by time and policy."""
    found = _at_shadow(snapshot)
    if found is None or not is_judged(found[0], found[1]):
        return None
    return wait_over(snapshot, found[0], found[1].duration_seconds, assessment)


def is_awaited(snapshot: Snapshot, canary: CanaryStatus) -> bool:
    """Whether gateways are to begin or to end copies, and are looked at for that."""
    step = step_at(snapshot.spec.rollout, canary.step)
    if step is not None and step.shadow is not None:
        return snapshot.ready_pods(canary.hash) > 0 and not is_judged(canary, step.shadow)
    return canary.weight == 0 and not copies_are_over(snapshot, canary)


def is_judged(canary: CanaryStatus, shadow: ShadowStep) -> bool:
    """Whether every gateway was seen to make the copies of this step."""
    return canary.shadow == shadow.percent and canary.shadow_observed_at is not None
