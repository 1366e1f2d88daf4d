"""Which annotation a verb writes, when it makes no sense, and when it is done. Pure.

The verbs ask; the operator acts in its next pass. A request names the revision
(and the step) it is about, so that one that arrives late, or is applied twice,
does nothing to a later rollout.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from speculative_api.conditions import ConditionType, Reason
from speculative_api.labels import (
    ABORT,
    PAUSE,
    PROMOTE,
    PROMOTE_IN_FULL,
    REBASELINE,
    RECOVER,
    RERENDER,
    RESTART,
    RETRY,
    SKIPPED_STEP,
)
from speculative_api.v1alpha1 import CanaryStatus, FailedRevision, ParkedStatus

from .errors import Refused
from .resource import Resource


class Verb(Enum):
    """What is asked of the operator."""

    PROMOTE = auto()
    PROMOTE_IN_FULL = auto()
    ABORT = auto()
    RETRY = auto()
    RESTART = auto()
    PAUSE = auto()
    RESUME = auto()
    RECOVER = auto()


@dataclass(frozen=True, slots=True)
class Request:
    """One annotation to write, and the sentence that says what it asks."""

    verb: Verb
    annotation: str
    value: str | None
    """None takes the annotation away."""
    hash: str
    sentence: str
    step: int = -1


def _canary(resource: Resource, verb: str, meant: str | None) -> CanaryStatus:
    """The canary, if there is one and it is the one that was meant."""
    status = resource.status
    canary, where = status.canary, f"{resource.namespace}/{resource.name}"
    if canary is not None and meant in (None, canary.hash):
        return canary
    if canary is not None:
        raise Refused(f"{where}: the canary is {canary.hash}, not {meant}; nothing to {verb}")
    if status.guard is not None and status.stable is not None:
        raise Refused(
            f"{where} has no canary: {status.stable.hash} was promoted already and is judged on "
            f"until its guard ends; there is nothing to {verb}"
        )
    raise Refused(f"{where} has no canary: there is nothing to {verb}")


class Way(Enum):
    """How far `promote` goes."""

    PAUSE = auto()
    """Past the pause that the canary is in."""
    STEP = auto()
    """Past the step, whichever it is."""
    FULL = auto()
    """Past all steps that are left."""


def promote(
    resource: Resource, *, step: int | None, way: Way = Way.PAUSE, meant: str | None = None
) -> Request | str:
    """The request to go on, or why there is nothing left to ask.

    `step` counts from 1, as `status` shows it; None is the present one. `meant`
    is the hash that the caller has in mind; None is whatever is on trial.

    Raises:
        Refused: no canary, not ready yet, another step, or not waiting.
    """
    stable = resource.status.stable
    if meant is not None and stable is not None and stable.hash == meant:
        return f"{meant} is the stable revision already"
    canary = _canary(resource, "promote", meant)
    steps = resource.steps
    if canary.step >= len(steps):
        if way is Way.FULL:
            return f"canary {canary.hash} is past its last step and is being promoted already"
        raise Refused(f"canary {canary.hash} is past its last step and is being promoted")
    if _is_paused(resource):
        raise Refused(f"canary {canary.hash} is held on request: resume it first")
    if way is Way.FULL:
        left = f"the {len(steps) - max(canary.step, 0)} steps left are skipped"
        when = "" if canary.step >= 0 else " once its pods are ready"
        return Request(
            verb=Verb.PROMOTE_IN_FULL,
            annotation=PROMOTE,
            value=f"{canary.hash}/{PROMOTE_IN_FULL}@{canary.started_at}",
            hash=canary.hash,
            sentence=f"canary {canary.hash} is promoted{when}: {left}",
        )
    return _past_a_step(resource, canary, step=step, way=way, meant=meant)


def _past_a_step(
    resource: Resource, canary: CanaryStatus, *, step: int | None, way: Way, meant: str | None
) -> Request | str:
    steps = resource.steps
    at = f"step {canary.step + 1} of {len(steps)}"
    if canary.step < 0:
        raise Refused(
            f"canary {canary.hash} is not ready yet ({canary.ready_replicas} of {canary.replicas} "
            "pods): it can be promoted from its first pause on, or with --full"
        )
    if step is not None and meant is not None and step < canary.step + 1:
        return f"canary {canary.hash} is past step {step} already, in {at}"
    if step is not None and step != canary.step + 1:
        raise Refused(f"canary {canary.hash} is in {at}, not in step {step}")
    waits = steps[canary.step].pause or steps[canary.step].shadow
    if way is Way.PAUSE and waits is None and canary.held is None:
        raise Refused(
            f"canary {canary.hash} is in {at}, a weight on its "
            "way to the gateways, not a pause: ask again in a moment, or with --skip-step"
        )
    skipped = f"/{SKIPPED_STEP}" if way is Way.STEP else ""
    return Request(
        verb=Verb.PROMOTE,
        annotation=PROMOTE,
        value=f"{canary.hash}/{canary.step}{skipped}@{canary.started_at}",
        hash=canary.hash,
        step=canary.step,
        sentence=f"canary {canary.hash} goes past {at}",
    )


def abort(resource: Resource, *, meant: str | None = None) -> Request | str:
    """The request to roll the canary back, or why there is nothing left to ask.

    Raises:
        Refused: no canary, or another one than was meant.
    """
    failed = _taken_out(resource)
    on_trial = resource.status.canary is not None and resource.status.canary.hash == meant
    if meant is not None and meant in failed and not on_trial:
        return f"{meant} was taken out already ({failed[meant].reason})"
    canary = _canary(resource, "abort", meant)
    return Request(
        verb=Verb.ABORT,
        annotation=ABORT,
        value=f"{canary.hash}@{canary.started_at}",
        hash=canary.hash,
        sentence=f"canary {canary.hash} is rolled back",
    )


def _taken_out(resource: Resource) -> dict[str, FailedRevision | ParkedStatus]:
    """What is not tried at the moment: revisions that failed, and the one that is parked."""
    found: dict[str, FailedRevision | ParkedStatus] = {
        entry.hash: entry for entry in resource.status.failed_revisions
    }
    if (waits := resource.status.parked) is not None:
        found[waits.hash] = waits
    return found


def retry(resource: Resource, *, revision: str | None, now: datetime) -> Request | str:
    """The request to forget that a revision failed, or why there is nothing left to ask.

    One that is parked is tried at once.

    Raises:
        Refused: none failed, not this one, or several and none was named.
    """
    failed = _taken_out(resource)
    listed = ", ".join(f"{found.hash} ({found.reason})" for found in failed.values())
    canary = resource.status.canary
    if revision is not None and canary is not None and canary.hash == revision:
        return f"{revision} is on trial already"
    if not failed:
        raise Refused(f"{resource.namespace}/{resource.name}: no revision has failed")
    if revision is None and len(failed) > 1:
        raise Refused(f"several revisions have failed: name one with --hash: {listed}")
    chosen = revision or next(iter(failed))
    if chosen not in failed:
        raise Refused(f"revision {chosen} has not failed; these have: {listed}")
    return Request(
        verb=Verb.RETRY,
        annotation=RETRY,
        value=f"{chosen}@{_text(now)}",
        hash=chosen,
        sentence=f"revision {chosen} may be tried again, if the spec names it",
    )


def pause(resource: Resource, *, meant: str | None = None) -> Request | str:
    """The request to hold the canary, or after its promotion the guard, where it is.

    Raises:
        Refused: neither exists, or it is another one than was meant.
    """
    status = resource.status
    guarded = status.stable if status.canary is None and status.guard is not None else None
    if guarded is not None and meant in (None, guarded.hash):
        held, sentence = guarded.hash, f"the guard of {guarded.hash} is held"
    else:
        held = _canary(resource, "pause", meant).hash
        sentence = f"canary {held} is held where it is; judging goes on"
    return Request(verb=Verb.PAUSE, annotation=PAUSE, value=held, hash=held, sentence=sentence)


def resume(resource: Resource, *, meant: str | None = None) -> Request | str:
    """The request to go on, or why there is nothing left to ask.

    Raises:
        Refused: nothing is held, or another one than was meant.
    """
    held = resource.annotations.get(PAUSE)
    if meant is not None and held != meant:
        return f"{meant} is not held"
    if not held:
        raise Refused(
            f"{resource.namespace}/{resource.name} is not held: there is nothing to resume"
        )
    return Request(
        verb=Verb.RESUME, annotation=PAUSE, value=None, hash=held, sentence=f"{held} goes on"
    )


def restart(
    resource: Resource, *, rerender: bool, meant: str | None, now: datetime
) -> Request | str:
    """The request to replace stable's pods one at a time, or why there is nothing left to ask.

    Raises:
        Refused: there is no stable, another one was meant, or a trial goes on.
    """
    status, where = resource.status, f"{resource.namespace}/{resource.name}"
    if status.stable is None:
        raise Refused(f"{where} has no stable revision yet: there is nothing to restart")
    stable = status.stable.hash
    if meant not in (None, stable):
        raise Refused(f"{where}: the stable revision is {stable}, not {meant}; nothing to restart")
    if status.canary is not None or status.guard is not None:
        on_trial = status.canary.hash if status.canary else stable
        raise Refused(f"{where}: {on_trial} is on trial; restart when that and its guard are over")
    if status.restart is not None and status.restart.hash == stable and not status.restart.outcome:
        return f"the pods of {stable} are being replaced already, since {status.restart.at}"
    option = f"/{RERENDER}" if rerender else ""
    how = ", with the pod template of today's operator" if rerender else ""
    return Request(
        verb=Verb.RESTART,
        annotation=RESTART,
        value=f"{stable}{option}@{_text(now)}",
        hash=stable,
        sentence=f"the pods of {stable} are replaced one at a time{how}",
    )


def recover(
    resource: Resource, *, rebaseline: bool, meant: str | None, now: datetime
) -> Request | str:
    """The request to end what drift did to stable and to judge it anew.

    Raises:
        Refused: drift is not judged, or another revision was meant.
    """
    status, where = resource.status, f"{resource.namespace}/{resource.name}"
    stable, drift = status.stable, status.drift
    if stable is None or drift is None or drift.hash != stable.hash:
        raise Refused(f"{where}: drift is not judged (spec.rollout.drift): nothing to recover")
    if meant not in (None, stable.hash):
        raise Refused(f"{where}: the stable revision is {stable.hash}, not {meant}")
    if not rebaseline and drift.state in ("Measuring", "Steady"):
        return f"{stable.hash} has not drifted"
    option = f"/{REBASELINE}" if rebaseline else ""
    against = "a new baseline" if rebaseline else "the same baseline"
    return Request(
        verb=Verb.RECOVER,
        annotation=RECOVER,
        value=f"{stable.hash}{option}@{_text(now)}",
        hash=stable.hash,
        sentence=f"{stable.hash} serves as before drift and is judged anew, against {against}",
    )


def _text(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _is_paused(resource: Resource) -> bool:
    return any(
        condition.type == ConditionType.PROGRESSING and condition.reason == Reason.PAUSED_ON_REQUEST
        for condition in resource.status.conditions
    )


def outcome(request: Request, resource: Resource) -> str | None:
    """What came of a request, as a sentence; None while the operator has not acted on it."""
    status = resource.status
    canary = status.canary
    on_trial = canary is not None and canary.hash == request.hash
    if request.verb is Verb.RETRY:
        acted = status.observed_retry == request.value
        return f"revision {request.hash} is no longer marked as failed" if acted else None
    if request.verb is Verb.RESTART:
        begun = status.observed_restart == request.value
        return f"the replacement of {request.hash} has begun; see status" if begun else None
    if request.verb is Verb.RECOVER:
        acted = status.observed_recover == request.value
        return f"{request.hash} is judged anew; see status" if acted else None
    if request.verb is Verb.PAUSE and _is_paused(resource):
        return f"{request.hash} is held"
    if request.verb is Verb.RESUME:
        return None if _is_paused(resource) else f"{request.hash} is not held any more"
    if canary is not None and on_trial:
        if request.verb is Verb.PROMOTE and canary.step > request.step:
            return f"canary {canary.hash} went on to {position(resource, canary.step)}"
        if request.verb is Verb.PROMOTE_IN_FULL and canary.step >= len(resource.steps):
            return f"canary {canary.hash} went on to promotion"
        return None
    if status.stable is not None and status.stable.hash == request.hash:
        return f"{request.hash} is the stable revision now"
    verdict = status.verdict
    if verdict is not None and verdict.hash == request.hash:
        return f"{request.hash}: {verdict.outcome} ({verdict.reason}): {verdict.message}"
    return f"{request.hash} is no longer on trial"


def position(resource: Resource, step: int) -> str:
    """Where in the rollout a step index is, in words."""
    total = len(resource.steps)
    return f"step {step + 1} of {total}" if step < total else "promotion"
