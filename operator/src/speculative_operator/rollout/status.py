"""The published half of status: conditions, live figures and the one-line message."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Literal

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import (
    CanaryStatus,
    Condition,
    GuardStatus,
    ParkedStatus,
    RestartStatus,
    SpeculativeDeploymentStatus,
    StableStatus,
)
from speculative_operator.decision import Assessment
from speculative_operator.rollout.at_a_shared_gateway import company, not_at_it, not_in_force
from speculative_operator.rollout.at_zero import is_at_zero
from speculative_operator.rollout.autoscaling import (
    autoscaling_condition,
    scale_replicas,
    scale_selector,
)
from speculative_operator.rollout.blocked import blockage, is_waiting, node_is_coming
from speculative_operator.rollout.cap import parked
from speculative_operator.rollout.capacity import canary_goal, canary_pods
from speculative_operator.rollout.drift_condition import drift_condition
from speculative_operator.rollout.foreign import lacking, pool_words, reachability
from speculative_operator.rollout.gateways import highest_copied, highest_weight
from speculative_operator.rollout.idle_gates import idle_condition
from speculative_operator.rollout.leaving import leaving_weight, stable_pods
from speculative_operator.rollout.pausing import is_paused
from speculative_operator.rollout.preflight_gates import notes_of_wanted, running
from speculative_operator.rollout.remarks import remarks, silence
from speculative_operator.rollout.restarting import replaced, restart_of_stable
from speculative_operator.rollout.returning import guard_weight
from speculative_operator.rollout.speculating import speculating
from speculative_operator.rollout.steps import step_at, step_seconds, steps_of
from speculative_operator.rollout.times import moment, seconds_since, stamp
from speculative_operator.rollout.transition import failure_of, wanted
from speculative_operator.rollout.trial import trial_of
from speculative_operator.rollout.unaided import unaided_share
from speculative_operator.scaling.idling import is_released
from speculative_operator.snapshot import Snapshot, WorkerPod

State = Literal["True", "False", "Unknown"]

LONGEST_STEP: Final = 513
"""Tokens per step that an engine can reach (k is at most 512); more is not a figure to show."""


def published(snapshot: Snapshot, assessment: Assessment) -> SpeculativeDeploymentStatus:
    """The status to show: memory as it is, with figures and conditions of this moment."""
    status = snapshot.status
    stable, canary = status.stable, status.canary
    if stable is not None:
        stable = stable.model_copy(
            update={
                "replicas": stable_pods(snapshot),
                "ready_replicas": snapshot.ready_pods(stable.hash),
                "acceptance_length": acceptance_length(snapshot.pods_of(stable.hash)),
            }
        )
    if canary is not None:
        canary = canary.model_copy(
            update={
                "replicas": canary_pods(snapshot),
                "ready_replicas": snapshot.ready_pods(canary.hash),
                "acceptance_length": acceptance_length(snapshot.pods_of(canary.hash)),
                "observed_weight": highest_weight(snapshot, canary.hash),
                "observed_shadow": highest_copied(snapshot, canary.hash),
                "unready_since": _unready_since(snapshot, canary),
            }
        )
    unaided = unaided_share(snapshot)
    serving = [part.hash for part in (stable, canary, unaided) if part is not None]
    conditions = [_condition(snapshot, *found) for found in _conditions(snapshot, assessment)]
    progressing = next(c for c in conditions if c.type == ConditionType.PROGRESSING)
    return status.model_copy(
        update={
            "observed_generation": snapshot.generation,
            "conditions": conditions,
            "stable": stable,
            "canary": canary,
            "route_sequence": max(status.route_sequence, _sequence_in_use(snapshot)),
            "replicas": scale_replicas(snapshot, serving),
            "selector": scale_selector(snapshot, serving),
            "message": progressing.message[:1000],
        }
    )


def _sequence_in_use(snapshot: Snapshot) -> int:
    """Of the newest route that an agent may use and would not go back from; 0 while none can.

    A new resource is spared a second write of status, which for a thousand of them is noticed.
    """
    started = any(gateway.address for gateway in snapshot.gateways)
    return snapshot.route.sequence if snapshot.route is not None and started else 0


def _unready_since(snapshot: Snapshot, canary: CanaryStatus) -> str | None:
    """Its deadline counts from here: the step itself may be a pause of days."""
    if canary.step < 0 or snapshot.ready_pods(canary.hash) > 0 or is_at_zero(snapshot):
        return None
    return canary.unready_since or stamp(snapshot.now)


def acceptance_length(pods: Iterable[WorkerPod]) -> str | None:
    """Tokens per decoding step since the pods' engines started, pooled; None when not measured."""
    generated = steps = 0
    for pod in pods:
        if pod.digest is None or pod.digest.steps is None:
            continue
        generated += pod.digest.generated_tokens or 0
        steps += pod.digest.steps
    if steps <= 0 or generated > LONGEST_STEP * steps:
        return None
    return f"{generated / steps:.2f}"


Found = tuple[ConditionType, State, Reason, str]


def _conditions(snapshot: Snapshot, assessment: Assessment) -> list[Found]:
    optional = (
        autoscaling_condition(snapshot),
        idle_condition(snapshot),
        drift_condition(snapshot, assessment),
    )
    return [
        _accepted(snapshot),
        _available(snapshot),
        _progressing(snapshot, assessment),
        speculating(snapshot),
        _gateway(snapshot),
        *(found for found in optional if found is not None),
    ]


def _condition(
    snapshot: Snapshot, kind: ConditionType, state: State, reason: Reason, message: str
) -> Condition:
    before = next((c for c in snapshot.status.conditions if c.type == kind), None)
    same = before is not None and before.status == state
    return Condition(
        type=kind,
        status=state,
        reason=reason,
        message=message[:4000],
        observed_generation=snapshot.generation,
        last_transition_time=before.last_transition_time
        if before is not None and same
        else stamp(snapshot.now),
    )


def _accepted(snapshot: Snapshot) -> Found:
    kind = ConditionType.ACCEPTED
    if snapshot.findings:
        return kind, "False", Reason.INVALID_SPEC, "; ".join(snapshot.findings)
    if snapshot.conflicts:
        names = ", ".join(snapshot.conflicts)
        message = f"{names} exists and belongs to somebody else: remove it or rename this resource"
        return kind, "False", Reason.NAME_CONFLICT, message
    if missing := lacking(snapshot):
        return kind, "False", Reason.KIND_MISSING, missing
    if (refused := not_in_force(snapshot)) is not None:
        return kind, "False", *refused
    if snapshot.refusals:
        message = f"The API server refuses {'; '.join(snapshot.refusals)}. Correct the spec."
        return kind, "False", Reason.INVALID_SPEC, message
    notes = notes_of_wanted(snapshot)
    said = (f"{text.rstrip('.')}." for text in (*snapshot.warnings, *([notes] if notes else [])))
    message = " ".join(["The spec can be rendered.", *said])
    return kind, "True", Reason.VALID, message


def _available(snapshot: Snapshot) -> Found:
    kind, stable = ConditionType.AVAILABLE, snapshot.status.stable
    if stable is None:
        failed = failure_of(snapshot, wanted(snapshot))
        if failed is not None:
            message = f"{failed.reason}: {failed.message}"
            return kind, "False", Reason.FIRST_REVISION_FAILED, message
        return kind, "False", Reason.STABLE_NOT_READY, "There is no revision yet."
    failed = failure_of(snapshot, stable.hash)
    if failed is not None and stable.available_at is None:
        message = f"{failed.reason}: {failed.message}"
        return kind, "False", Reason.FIRST_REVISION_FAILED, message
    ready, asked = snapshot.ready_pods(stable.hash), stable_pods(snapshot)
    message = f"{ready} of {asked} pods of the stable revision {stable.hash} are ready."
    if is_released(snapshot.status):
        return kind, "True", Reason.IDLE, f"{message} Whoever asks wakes the others."
    if ready < asked:
        message = f"{message} {snapshot.waiting_reason(stable.hash)}".rstrip()
        return kind, "True" if ready else "False", Reason.STABLE_NOT_READY, message
    return kind, "True", Reason.STABLE_READY, message


def _progressing(snapshot: Snapshot, assessment: Assessment) -> Found:
    kind, status = ConditionType.PROGRESSING, snapshot.status
    stable, canary, guard = status.stable, status.canary, status.guard
    if stable is None:
        return kind, *_before_the_first(snapshot)
    if canary is not None:
        reason, message = _canary(snapshot, assessment)
        return kind, "Unknown" if canary.held else "True", reason, message
    if guard is not None:
        return kind, "True", *_guard(snapshot, stable, guard)
    if before := running(snapshot):
        return kind, "True", *before
    failed = failure_of(snapshot, wanted(snapshot))
    if failed is not None:
        if stable.hash == failed.hash:
            return kind, "False", Reason.FIRST_REVISION_FAILED, f"{failed.reason}: {failed.message}"
        message = (
            f"{failed.reason}: {failed.message} Not tried again until `kubectl speculative retry`."
            f"{_keeps(snapshot)}"
        )
        return kind, "False", Reason.ROLLED_BACK, message
    if status.retiring:
        names = ", ".join(entry.hash for entry in status.retiring)
        return (
            kind,
            "True",
            Reason.REMOVING_REVISION,
            f"Taking {names} out of the gateways.{_keeps(snapshot)}",
        )
    if status.parked is not None and is_waiting(snapshot):
        return kind, *_waiting(status.parked)
    waits = parked(snapshot)
    if waits is not None and stable.available_at is not None:
        message = (
            f"{waits.failures} revisions failed within the hour (maxRollbacksPerHour "
            f"{snapshot.spec.rollout.max_rollbacks_per_hour}); {waits.hash} is tried at "
            f"{stamp(waits.until)}, or after `kubectl speculative retry` of a failed one."
        )
        return kind, "False", Reason.ROLLBACKS_CAPPED, message
    restart = restart_of_stable(snapshot)
    if restart is not None and restart.outcome != "Done":
        return kind, *_restart(snapshot, restart)
    if stable.available_at is None and snapshot.spec.replicas > 0:
        message = _available(snapshot)[3]
        return kind, "True", Reason.REVISION_STARTING, message
    message = f"Revision {stable.revision} ({stable.hash}) is what the spec asks for."
    if is_released(status):
        message = f"{message} Nobody asks: pods are released."
    return kind, "True", Reason.COMPLETE, message


def _before_the_first(snapshot: Snapshot) -> tuple[State, Reason, str]:
    """While nothing has started yet: refused, checked by a Job, or found to be hopeless."""
    if before := running(snapshot):
        return "True", *before
    status = snapshot.status
    failed = failure_of(snapshot, wanted(snapshot))
    if failed is not None:
        return "False", Reason.FIRST_REVISION_FAILED, f"{failed.reason}: {failed.message}"
    if status.parked is not None and is_waiting(snapshot):
        return _waiting(status.parked)
    return "False", Reason.INVALID_SPEC, "Nothing to start: the spec is refused."


def _waiting(entry: ParkedStatus) -> tuple[State, Reason, str]:
    message = (
        f"{entry.hash} could not begin: {entry.message}. It is tried again at {entry.until} "
        f"(attempt {entry.attempts + 1}), or after `kubectl speculative retry`."
    )
    return "False", Reason(entry.reason), message


def _guard(snapshot: Snapshot, stable: StableStatus, guard: GuardStatus) -> tuple[Reason, str]:
    new = f"revision {stable.revision} ({stable.hash})"
    old = f"revision {guard.revision} ({guard.hash})"
    weight = guard_weight(snapshot)
    if guard.returning_since is not None:
        ready, asked = snapshot.ready_pods(guard.hash), snapshot.spec.replicas
        why = snapshot.waiting_reason(guard.hash)
        message = (
            f"R{old[1:]} takes over again from {new}: {ready} of {asked} pods ready, "
            f"{weight} percent. {why}"
        )
        return Reason.RETURNING, message.rstrip()
    paused, trial = is_paused(snapshot), trial_of(snapshot.status)
    left = f"for {snapshot.spec.rollout.guard.duration_seconds} s"
    left = "until `kubectl speculative resume`" if paused else left
    if trial is not None and not trial.control:
        reason = Reason.ANALYSIS_ABSOLUTE_ONLY
        kept = "is not kept" if guard.keep == "None" else "gets no traffic as one pod of so many"
        message = f"{old} {kept} (guard.keep {guard.keep}): only absolute bounds are judged {left}."
    else:
        reason = Reason.GUARDING
        one = guard.keep == "One"
        kept, weight = (f"one pod of {old}", weight) if one else (old, guard.weight)
        message = f"{kept} is kept with {weight} percent {left}."
    return Reason.PAUSED_ON_REQUEST if paused else reason, f"R{new[1:]} is stable; {message}"


def _restart(snapshot: Snapshot, restart: RestartStatus) -> tuple[State, Reason, str]:
    if restart.outcome is not None:
        return "False", Reason.RESTART_STALLED, restart.message
    new = sum(pod.ready for pod in replaced(snapshot, restart))
    words = snapshot.waiting_reason(restart.hash)
    message = f"Restarting {restart.hash}: {new} of {snapshot.spec.replicas} pods replaced. {words}"
    return "True", Reason.RESTARTING, message.rstrip()


def _keeps(snapshot: Snapshot) -> str:
    """What stable cannot carry yet, having given up pods."""
    for entry in snapshot.status.retiring:
        if entry.route_removed_at is None and (weight := leaving_weight(snapshot, entry)):
            return f" {entry.hash} keeps {weight} percent until stable has its pods again."
    return ""


def _canary(snapshot: Snapshot, assessment: Assessment) -> tuple[Reason, str]:
    canary = snapshot.status.canary
    if canary is None:
        raise ValueError("no canary to describe")
    name = f"Revision {canary.revision} ({canary.hash})"
    rollout = snapshot.spec.rollout
    count = len(steps_of(rollout))
    if is_at_zero(snapshot):
        return Reason.SCALED_TO_ZERO, f"{name} rests until spec.replicas is above 0."
    if canary.step < 0:
        ready, asked = snapshot.ready_pods(canary.hash), canary_goal(snapshot)
        why = snapshot.waiting_reason(canary.hash)
        message = f"{name}: {ready} of {asked} pods ready. {why}".rstrip()
        if canary.held == Reason.NOT_DRAFTING:
            return Reason.NOT_DRAFTING, f"{message} It {silence(snapshot, canary.hash)}."
        if canary.held == Reason.POOL_NOT_ACCEPTED:
            words = pool_words(snapshot, canary.hash)
            return Reason.POOL_NOT_ACCEPTED, f"{message} It waits: {words}."
        if canary.held is not None:
            return Reason(canary.held), f"{message} Waits for `resume` or `abort`."
        found = blockage(snapshot, canary.hash)
        if found is not None:
            limit = timedelta(seconds=rollout.progress_deadline_seconds)
            until = stamp(moment(canary.started_at) + limit)
            if node_is_coming(snapshot, seconds_since(canary.started_at, snapshot.now)):
                words = snapshot.node_news.words if snapshot.node_news else ""
                return found.reason, f"{message} A node is on its way ({words}): it waits longer."
            return found.reason, f"{message} Taken out and parked at {until} if that stays so."
        return Reason.CANARY_STARTING, message
    share = _shadow_words(snapshot, canary) if canary.shadow else f"{canary.weight} percent"
    at = f"{name} at {share}, step {min(canary.step + 1, count)} of {count}"
    if not snapshot.spec.gateway.mode.splits:
        at = f"{name} without users, step {min(canary.step + 1, count)} of {count}"
    said = (*(metric.message for metric in assessment.metrics), *remarks(snapshot))
    details = "; ".join(said)
    if canary.held is not None:
        way = "resume" if canary.held == Reason.PAUSED_ON_REQUEST else "promote"
        return Reason(canary.held), f"{at}, waits for `{way}` or `abort`. {details}".rstrip()
    step = step_at(rollout, canary.step)
    seconds = step_seconds(canary, step)
    if seconds is not None:
        # Rounded to the period, so that a quiet pass does not rewrite status each second.
        passed = seconds_since(canary.step_started_at, snapshot.now)
        at += f" ({int(passed // 30) * 30} of {seconds} s)"
    reason = Reason.CANARY_SHADOWED if canary.shadow else Reason.CANARY_WEIGHTED
    return reason, f"{at}. {details}".rstrip()


def _shadow_words(snapshot: Snapshot, canary: CanaryStatus) -> str:
    """What a canary without users is sent, and what is still waited for."""
    words = f"shadow {canary.shadow} percent"
    if canary.shadow_observed_at is None:
        seen = highest_copied(snapshot, canary.hash)
        words += f" (gateways copy {seen}: waits until each of them uses the route)"
    return words


def _gateway(snapshot: Snapshot) -> Found:
    kind = ConditionType.GATEWAY_READY
    if not snapshot.spec.gateway.mode.reads_back:
        return kind, *reachability(snapshot)
    sequence = snapshot.route.sequence if snapshot.route else 0
    living = [gateway for gateway in snapshot.gateways if not gateway.terminating]
    good = [g for g in living if g.ready and g.state is not None and g.state.sequence == sequence]
    refused = next((g.state.error for g in living if g.state is not None and g.state.error), "")
    message = f"{len(good)} of {snapshot.spec.gateway.replicas} gateway pods use the current route."
    if refused:
        message = f"{message} Refused: {refused}"
    if (hindrance := not_at_it(snapshot)) is not None:
        return kind, "False", hindrance[0], f"{hindrance[1]} {message}"
    message = f"{message}{company(snapshot)}"
    if len(good) >= snapshot.spec.gateway.replicas and not refused:
        return kind, "True", Reason.GATEWAY_SERVING, message
    return kind, "True" if good else "False", Reason.GATEWAY_NOT_SERVING, message
