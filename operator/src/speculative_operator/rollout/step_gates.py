"""Gates about the steps of a trial: when each begins, what it waits for, how it ends."""

from speculative_api.conditions import Reason
from speculative_api.labels import PROMOTE
from speculative_api.v1alpha1 import (
    CanaryStatus,
    InconclusivePolicy,
)
from speculative_operator.decision import Assessment, Event, MetricVerdict
from speculative_operator.rollout.asking import asked_for, present
from speculative_operator.rollout.at_zero import is_at_zero
from speculative_operator.rollout.capacity import (
    canary_goal,
    canary_weight,
    is_in_place,
    planned_weight,
    stable_beside_canary,
)
from speculative_operator.rollout.foreign import pool_words
from speculative_operator.rollout.gateways import endpoints_seen, is_followed, is_reachable
from speculative_operator.rollout.load import load_words
from speculative_operator.rollout.pausing import is_paused
from speculative_operator.rollout.remarks import is_silent, silence
from speculative_operator.rollout.shadowing import copies_are_over
from speculative_operator.rollout.steps import (
    step_at,
    steps_hash,
    steps_of,
)
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import (
    Transition,
    canary_ends,
    transition,
)
from speculative_operator.snapshot import Snapshot

MINIMUM_REQUESTS = 6
"""Requests a canary must have answered before time alone may advance it (two blocks of three)."""
POINTS_TO_WORSE = 3.0
"""Evidence from which time alone does not advance: a canary within the limit looks like that, at
some moment, in at most one rollout of three."""

_WARNED = (Reason.ANALYSIS_INCONCLUSIVE, Reason.NOT_DRAFTING, Reason.POOL_NOT_ACCEPTED)


def steps_changed(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Other steps in the middle of a trial: they begin at their first.

    An index into the old ones says nothing about the new, least of all that they are over.
    What was seen so far still counts as evidence. Whom a person holds is held on.
    """
    canary = snapshot.status.canary
    if canary is None:
        return None
    steps = steps_hash(snapshot.spec.rollout)
    if canary.steps_hash == steps:
        return None
    remembered = canary.model_copy(update={"steps_hash": steps})
    if canary.steps_hash is None or canary.step < 0:
        # Not begun, or begun under a version that did not remember its steps.
        return transition(snapshot, canary=remembered)
    count = len(steps_of(snapshot.spec.rollout))
    name = f"Revision {canary.revision} ({canary.hash})"
    text = f"{name}: the steps were changed; the new {count} begin at the first."
    changed = enter(snapshot, remembered, 0, Event("StepsChanged", text))
    # A `promote` that waits there was meant for an old step.
    again = changed.status.canary
    if again is not None and (is_paused(snapshot) or is_at_zero(snapshot)):
        again = again.model_copy(update={"held": canary.held})
    seen = changed.status.model_copy(
        update={"canary": again, "observed_promote": present(snapshot, PROMOTE)}
    )
    return Transition(seen, changed.events)


def canary_ready(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Every pod the first step needs is ready and known to every gateway: the steps begin."""
    canary = snapshot.status.canary
    if canary is None or canary.step >= 0:
        return None
    needed = canary_goal(snapshot)
    if snapshot.ready_pods(canary.hash) < needed:
        return None
    reads_back = snapshot.spec.gateway.mode.reads_back
    if reads_back and endpoints_seen(snapshot, canary.hash) < needed:
        return None
    if not is_reachable(snapshot, canary.hash):
        words = f"is ready, but {pool_words(snapshot, canary.hash)}"
        return _hold(snapshot, canary, Reason.POOL_NOT_ACCEPTED, words)
    if is_silent(snapshot, canary.hash):
        return _hold(snapshot, canary, Reason.NOT_DRAFTING, silence(snapshot, canary.hash))
    message = f"Revision {canary.revision} ({canary.hash}) is ready: {needed} pods."
    return enter(snapshot, canary, 0, Event("CanaryReady", message))


def weight_given(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A weight step whose pods are ready: its weight is decided, then waited for."""
    canary = snapshot.status.canary
    step = step_at(snapshot.spec.rollout, canary.step) if canary else None
    if canary is None or step is None or step.weight is None:
        return None
    if not snapshot.spec.gateway.mode.splits:
        event = Event("StepSkipped", f"gateway.mode None can't give {step.weight} percent.")
        return enter(snapshot, canary, canary.step + 1, event)
    if not copies_are_over(snapshot, canary):
        return None
    if canary.weight == step.weight:
        return _weight_seen(snapshot, canary)
    if snapshot.ready_pods(canary.hash) < canary_goal(snapshot):
        return None
    if step.weight < canary.weight and not stable_can_take(snapshot):
        return None
    update: dict[str, object] = {"weight": step.weight, "weight_observed_at": None}
    if not snapshot.spec.gateway.mode.reads_back:
        # The wait for what can't be seen begins now.
        update["step_started_at"] = stamp(snapshot.now)
    changed = canary.model_copy(update=update)
    message = f"Revision {canary.revision} ({canary.hash}) gets {step.weight} percent."
    return transition(snapshot, Event("CanaryWeight", message), canary=changed)


def stable_can_take(snapshot: Snapshot) -> bool:
    """Whether stable has the pods back that it needs for a canary with less."""
    stable = snapshot.status.stable
    if stable is None or not snapshot.spec.rollout.dynamic_stable:
        return True
    return snapshot.ready_pods(stable.hash) >= stable_beside_canary(snapshot)


def _weight_seen(snapshot: Snapshot, canary: CanaryStatus) -> Transition | None:
    weight = canary_weight(snapshot)
    if weight < planned_weight(snapshot):
        return None
    if not is_followed(snapshot, canary.hash, weight, since=canary.step_started_at):
        return None
    if is_in_place(snapshot) and snapshot.ready_pods(canary.hash) < canary_goal(snapshot):
        return None
    seen = canary.model_copy(
        update={"weight_observed_at": stamp(snapshot.now), "settled_weight": canary.weight}
    )
    message = f"Every gateway gives {canary.hash} {weight} percent."
    if not snapshot.spec.gateway.mode.reads_back:
        message = f"The route has given {canary.hash} {weight} percent for a while."
    if weight < canary.weight:
        message = f"{message[:-1]}: its part of the pods, {canary.weight} were asked for."
    return enter(snapshot, seen, canary.step + 1, Event("CanaryWeightObserved", message))


def pause_over(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """A pause ends: by a person, by evidence, or by time and policy."""
    canary = snapshot.status.canary
    step = step_at(snapshot.spec.rollout, canary.step) if canary else None
    if canary is None or step is None or step.pause is None:
        return None
    return wait_over(snapshot, canary, step.pause.duration_seconds, assessment)


def wait_over(
    snapshot: Snapshot, canary: CanaryStatus, duration_seconds: int | None, assessment: Assessment
) -> Transition | None:
    """The end of a step that is a wait; without a duration only a person ends it."""
    asked = asked_for(snapshot, PROMOTE, before=snapshot.status.observed_promote)
    if asked == f"{canary.hash}/{canary.step}":
        return enter(snapshot, canary, canary.step + 1, Event("StepPromoted", "On request."))
    if duration_seconds is None:
        return _hold(snapshot, canary, Reason.CANARY_PAUSED, "waits for `promote` or `abort`")
    if (canary.weight or canary.shadow) and assessment.all_passed:
        proof = "; ".join(metric.message for metric in assessment.metrics)
        control = snapshot.status.stable.hash if snapshot.status.stable else ""
        load = load_words(snapshot, candidate=canary.hash, control=control)
        said = f"Every metric shows 'not worse': {proof}"
        event = Event("StepProven", f"{said}; {load}" if load else said)
        return enter(snapshot, canary, canary.step + 1, event)
    return _time_over(snapshot, canary, duration_seconds, assessment)


def _time_over(
    snapshot: Snapshot, canary: CanaryStatus, duration_seconds: int, assessment: Assessment
) -> Transition | None:
    waited = seconds_since(canary.step_started_at, snapshot.now)
    if waited < duration_seconds:
        return None
    if canary.held is not None:
        return _looks_better(snapshot, canary, assessment)
    event = Event("StepTimeOver", nothing_worse_message(assessment, waited))
    if _may_pass_unproven(snapshot, canary, assessment):
        return enter(snapshot, canary, canary.step + 1, event)
    why = _inconclusive_message(assessment, waited)
    match snapshot.spec.rollout.on_inconclusive:
        case InconclusivePolicy.ADVANCE:
            event = Event(Reason.ANALYSIS_INCONCLUSIVE, f"{why}; onInconclusive: Advance")
            return enter(snapshot, canary, canary.step + 1, event)
        case InconclusivePolicy.ABORT:
            return canary_ends(
                snapshot,
                outcome="Aborted",
                reason=Reason.ANALYSIS_INCONCLUSIVE,
                message=why,
                failed=True,
            )
        case InconclusivePolicy.PAUSE:
            return _hold(snapshot, canary, Reason.ANALYSIS_INCONCLUSIVE, why)


def _looks_better(
    snapshot: Snapshot, canary: CanaryStatus, assessment: Assessment
) -> Transition | None:
    """A canary that waits for want of evidence gets its whole time again once nothing is wrong.

    Few early blocks look bad by chance, and traffic comes back in the morning: neither should
    need a person. Time starts anew, so that nothing advances on the look at which it cleared.
    """
    if canary.held != Reason.ANALYSIS_INCONCLUSIVE or not _nothing_points_to_worse(assessment):
        return None
    details = "; ".join(metric.message for metric in assessment.metrics)
    text = (
        f"Revision {canary.revision} ({canary.hash}): nothing points to worse any more, "
        f"its pause begins again. {details}"
    )
    return enter(snapshot, canary, canary.step, Event("AnalysisResumed", text))


def nothing_worse_message(assessment: Assessment, waited: float) -> str:
    """What is said when time, not proof, advances a step."""
    details = "; ".join(metric.message for metric in assessment.metrics)
    said = f"{waited:.0f} s are over and nothing points to worse"
    return f"{said}: {details}" if details else said


def _may_pass_unproven(snapshot: Snapshot, canary: CanaryStatus, assessment: Assessment) -> bool:
    if canary.weight or canary.shadow:
        return _nothing_points_to_worse(assessment)
    # Without a gateway there may still be figures: of requests to the canary's own Service.
    worse = any(_points_to_worse(metric) for metric in assessment.acted_on)
    return snapshot.spec.gateway.mode.splits or not worse


def _nothing_points_to_worse(assessment: Assessment) -> bool:
    return (
        assessment.candidate_requests >= MINIMUM_REQUESTS
        and any(metric.measured for metric in assessment.acted_on)
        and not any(_points_to_worse(metric) or metric.holds for metric in assessment.acted_on)
    )


def _points_to_worse(metric: MetricVerdict) -> bool:
    return metric.worse >= POINTS_TO_WORSE or metric.outside_limit


def _inconclusive_message(assessment: Assessment, waited: float) -> str:
    details = "; ".join(metric.message for metric in assessment.metrics)
    if any(_points_to_worse(metric) for metric in assessment.acted_on):
        return f"{waited:.0f} s are over and it looks worse, not yet proven: {details}"
    return (
        f"{waited:.0f} s are over without a verdict: {assessment.candidate_requests} requests "
        f"answered (at least {MINIMUM_REQUESTS} needed); {details or 'nothing was measured'}"
    )


def _hold(
    snapshot: Snapshot, canary: CanaryStatus, reason: Reason, message: str
) -> Transition | None:
    if canary.held == reason:
        return None
    held = canary.model_copy(update={"held": str(reason)})
    text = f"Revision {canary.revision} ({canary.hash}) {message}."
    kind = Event(reason, text, "Warning" if reason in _WARNED else "Normal")
    return transition(snapshot, kind, canary=held)


def enter(snapshot: Snapshot, canary: CanaryStatus, index: int, event: Event) -> Transition:
    """The canary begins a step; one past the last is promotion. Only shadow steps copy."""
    step = step_at(snapshot.spec.rollout, index)
    entered = canary.model_copy(
        update={
            "step": index,
            "step_started_at": stamp(snapshot.now),
            "held": None,
            "shadow": canary.shadow if step is not None and step.shadow is not None else 0,
        }
    )
    return transition(snapshot, event, canary=entered)
