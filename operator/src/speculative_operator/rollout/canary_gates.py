"""Gates about the canary: its start, its health, its verdict, its way through the steps."""

from speculative_api.conditions import Reason
from speculative_api.labels import ABORT, PROMOTE
from speculative_api.v1alpha1 import (
    CanaryStatus,
    GuardStatus,
    InconclusivePolicy,
    PauseStep,
    StableStatus,
)
from speculative_operator.decision import Assessment, Event, MetricVerdict
from speculative_operator.rollout.cap import parked
from speculative_operator.rollout.gateways import endpoints_seen, everyone_uses
from speculative_operator.rollout.steps import canary_replicas, is_finishing, step_at, steps_of
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import (
    Transition,
    canary_ends,
    has_failed,
    next_number,
    retire,
    transition,
    verdict,
    wanted,
)
from speculative_operator.snapshot import Snapshot

RESTARTS_LIMIT = 3
"""Container restarts, over the canary's pods, that make it unhealthy: a crash loop."""
FIRST_REQUESTS_FAILED = 10
"""So many first requests without one success are a catastrophe, not statistics."""
MINIMUM_REQUESTS = 6
"""Requests a canary must have answered before time alone may advance it (two blocks of three)."""
POINTS_TO_WORSE = 3.0
"""Evidence from which time alone does not advance: a canary within the limit looks like that, at
some moment, in at most one rollout of three."""


def abort_requested(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person said abort, naming this canary."""
    canary = snapshot.status.canary
    asked = _asked(snapshot, ABORT, before=snapshot.status.observed_abort)
    if canary is None or asked != canary.hash:
        return None
    message = "aborted on request; not tried again until retry"
    return canary_ends(
        snapshot, outcome="Aborted", reason=Reason.ABORTED, message=message, failed=True
    )


def canary_superseded(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The spec asks for something else now: back to stable, or another revision."""
    canary, stable = snapshot.status.canary, snapshot.status.stable
    revision = wanted(snapshot)
    if canary is None or stable is None or revision == canary.hash:
        return None
    message = (
        "the spec went back to the stable revision"
        if revision == stable.hash
        else f"the spec asks for {revision} now"
    )
    return canary_ends(
        snapshot, outcome="Superseded", reason=Reason.SUPERSEDED, message=message, failed=False
    )


def canary_cannot_start(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A pod of the canary ended with a reason that no retry can cure."""
    canary = snapshot.status.canary
    if canary is None:
        return None
    for pod in snapshot.pods_of(canary.hash):
        end = pod.termination
        if end is not None and not end.retryable:
            return canary_ends(
                snapshot,
                outcome="RolledBack",
                reason=end.reason,
                message=end.detail,
                failed=True,
            )
    return None


def canary_unhealthy(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """The hard guard beside the evidence: crash loop, stalled engine, first requests all failed."""
    canary, stable = snapshot.status.canary, snapshot.status.stable
    if canary is None or stable is None:
        return None
    pods = snapshot.pods_of(canary.hash)
    restarts = snapshot.crashes(canary.hash)
    stalled = [pod.name for pod in pods if pod.digest is not None and pod.digest.stalled]
    failed = assessment.failed_requests_in_a_row
    if restarts >= RESTARTS_LIMIT:
        last = next((pod.termination.detail for pod in pods if pod.termination), "no last words")
        message = f"{restarts} container restarts (limit {RESTARTS_LIMIT}); {last}"
    elif stalled:
        message = f"engine stalled in {', '.join(stalled)}: requests wait and no token comes"
    elif failed >= FIRST_REQUESTS_FAILED and snapshot.ready_pods(stable.hash) > 0:
        message = f"all of its first {failed} requests failed"
    else:
        return None
    return canary_ends(
        snapshot,
        outcome="RolledBack",
        reason=Reason.CANARY_UNHEALTHY,
        message=message,
        failed=True,
    )


def canary_worse(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """A metric has enough evidence of being worse than its limit."""
    metric = assessment.failed
    if snapshot.status.canary is None or metric is None:
        return None
    return canary_ends(
        snapshot,
        outcome="RolledBack",
        reason=metric.reason,
        message=metric.message,
        failed=True,
    )


def canary_late(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The canary is not ready and its deadline passed; also when it lost its pods on the way."""
    canary = snapshot.status.canary
    if canary is None or snapshot.ready_pods(canary.hash) > 0:
        return None
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    since = canary.started_at if canary.step < 0 else canary.unready_since
    waited = seconds_since(since, snapshot.now)
    if waited < deadline:
        return None
    why = snapshot.waiting_reason(canary.hash)
    message = f"no pod ready after {waited:.0f} s (progressDeadlineSeconds {deadline})"
    return canary_ends(
        snapshot,
        outcome="RolledBack",
        reason=Reason.PROGRESS_DEADLINE_EXCEEDED,
        message=f"{message}; {why}" if why else message,
        failed=True,
    )


def canary_ready(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Every pod the first step needs is ready and known to every gateway: the steps begin."""
    canary = snapshot.status.canary
    if canary is None or canary.step >= 0:
        return None
    needed = canary_replicas(snapshot)
    if snapshot.ready_pods(canary.hash) < needed:
        return None
    if endpoints_seen(snapshot, canary.hash) < needed:
        return None
    message = f"Revision {canary.revision} ({canary.hash}) is ready: {needed} pods."
    return _enter(snapshot, canary, 0, Event("CanaryReady", message))


def weight_given(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A weight step whose pods are ready: its weight is decided, then waited for."""
    canary = snapshot.status.canary
    step = step_at(snapshot.spec.rollout, canary.step) if canary else None
    if canary is None or step is None or step.weight is None:
        return None
    if canary.weight == step.weight:
        return _weight_seen(snapshot, canary)
    if snapshot.ready_pods(canary.hash) < canary_replicas(snapshot):
        return None
    changed = canary.model_copy(update={"weight": step.weight, "weight_observed_at": None})
    message = f"Revision {canary.revision} ({canary.hash}) gets {step.weight} percent."
    return transition(snapshot, Event("CanaryWeight", message), canary=changed)


def _weight_seen(snapshot: Snapshot, canary: CanaryStatus) -> Transition | None:
    if not everyone_uses(snapshot, canary.hash, canary.weight):
        return None
    seen = canary.model_copy(update={"weight_observed_at": stamp(snapshot.now)})
    message = f"Every gateway gives {canary.hash} {canary.weight} percent."
    return _enter(snapshot, seen, canary.step + 1, Event("CanaryWeightObserved", message))


def pause_over(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """A pause ends: by a person, by evidence, or by time and policy."""
    canary = snapshot.status.canary
    step = step_at(snapshot.spec.rollout, canary.step) if canary else None
    if canary is None or step is None or step.pause is None:
        return None
    asked = _asked(snapshot, PROMOTE, before=snapshot.status.observed_promote)
    if asked == f"{canary.hash}/{canary.step}":
        return _enter(snapshot, canary, canary.step + 1, Event("StepPromoted", "On request."))
    if step.pause.duration_seconds is None:
        return _hold(snapshot, canary, Reason.CANARY_PAUSED, "waits for `promote` or `abort`")
    if canary.weight > 0 and assessment.all_passed:
        proof = "; ".join(metric.message for metric in assessment.metrics)
        event = Event("StepProven", f"Every metric shows 'not worse': {proof}")
        return _enter(snapshot, canary, canary.step + 1, event)
    return _time_over(snapshot, canary, step.pause, assessment)


def _time_over(
    snapshot: Snapshot, canary: CanaryStatus, pause: PauseStep, assessment: Assessment
) -> Transition | None:
    waited = seconds_since(canary.step_started_at, snapshot.now)
    if pause.duration_seconds is None or waited < pause.duration_seconds:
        return None
    if canary.held is not None:
        return _looks_better(snapshot, canary, assessment)
    event = Event("StepTimeOver", nothing_worse_message(assessment, waited))
    if canary.weight == 0 or _nothing_points_to_worse(assessment):
        return _enter(snapshot, canary, canary.step + 1, event)
    why = _inconclusive_message(assessment, waited)
    match snapshot.spec.rollout.on_inconclusive:
        case InconclusivePolicy.ADVANCE:
            event = Event(Reason.ANALYSIS_INCONCLUSIVE, f"{why}; onInconclusive: Advance")
            return _enter(snapshot, canary, canary.step + 1, event)
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
    return _enter(snapshot, canary, canary.step, Event("AnalysisResumed", text))


def nothing_worse_message(assessment: Assessment, waited: float) -> str:
    """What is said when time, not proof, advances a step."""
    details = "; ".join(metric.message for metric in assessment.metrics)
    said = f"{waited:.0f} s are over and nothing points to worse"
    return f"{said}: {details}" if details else said


def _nothing_points_to_worse(assessment: Assessment) -> bool:
    return (
        assessment.candidate_requests >= MINIMUM_REQUESTS
        and any(metric.measured for metric in assessment.acted_on)
        and not any(_points_to_worse(metric) for metric in assessment.acted_on)
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
    kind = Event(reason, text, "Warning" if reason is Reason.ANALYSIS_INCONCLUSIVE else "Normal")
    return transition(snapshot, kind, canary=held)


def _enter(snapshot: Snapshot, canary: CanaryStatus, index: int, event: Event) -> Transition:
    entered = canary.model_copy(
        update={"step": index, "step_started_at": stamp(snapshot.now), "held": None}
    )
    return transition(snapshot, event, canary=entered)


def canary_promoted(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """All steps are behind and the canary has stable's capacity: it becomes stable."""
    status = snapshot.status
    canary, old = status.canary, status.stable
    if canary is None or old is None or not is_finishing(snapshot.spec.rollout, canary.step):
        return None
    if snapshot.ready_pods(canary.hash) < canary_replicas(snapshot):
        return None
    now = stamp(snapshot.now)
    stable = StableStatus(revision=canary.revision, hash=canary.hash, available_at=now)
    proven = assessment.all_passed
    how = "every metric shows 'not worse'" if proven else "nothing points to worse"
    details = "; ".join(metric.message for metric in assessment.metrics)
    text = f"Revision {canary.revision} ({canary.hash}) is stable: {how}. {details}".rstrip()
    guard = snapshot.spec.rollout.guard
    kept = None
    retiring = status.retiring
    if guard.duration_seconds > 0:
        kept = GuardStatus(
            revision=old.revision, hash=old.hash, started_at=now, weight=guard.holdback_weight
        )
    else:
        retiring = retire(snapshot, old.hash)
    return transition(
        snapshot,
        Event(Reason.PROMOTED, text),
        stable=stable,
        canary=None,
        guard=kept,
        retiring=retiring,
        verdict=verdict(
            snapshot, canary.hash, outcome="Promoted", reason=Reason.PROMOTED, message=text
        ),
    )


def canary_started(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The spec asks for a revision that is neither stable nor failed, and the way is free."""
    status = snapshot.status
    revision = wanted(snapshot)
    if status.stable is None or revision is None or revision == status.stable.hash:
        return None
    if status.canary is not None or status.guard is not None or status.retiring:
        return None
    if has_failed(snapshot, revision) or parked(snapshot):
        return None
    now = stamp(snapshot.now)
    number = next_number(snapshot, revision)
    canary = CanaryStatus(revision=number, hash=revision, started_at=now, step_started_at=now)
    count = len(steps_of(snapshot.spec.rollout))
    event = Event(
        Reason.CANARY_STARTING, f"Revision {number} ({revision}) is tried in {count} steps."
    )
    return transition(
        snapshot,
        event,
        canary=canary,
        observed_abort=_present(snapshot, ABORT),
        observed_promote=_present(snapshot, PROMOTE),
    )


def _present(snapshot: Snapshot, annotation: str) -> str | None:
    return snapshot.annotations.get(annotation, "")[:256] or None


def _asked(snapshot: Snapshot, annotation: str, *, before: str | None) -> str | None:
    """What a person asks of this trial; a value from before it began was for another one."""
    value = _present(snapshot, annotation)
    return None if value is None or value == before else value.partition("@")[0]
