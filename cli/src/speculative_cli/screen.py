"""One resource on one screen: what an SRE asks first, in this order. Pure.

`details` and `overview` for people, `document` for programs; `now` is an input. Weights are
percent, acceptance length is tokens per decoding step.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import (
    CanaryStatus,
    Condition,
    FailedRevision,
    GuardStatus,
    RolloutStep,
)

from .requests import position
from .resource import Resource

_ORDER = [kind.value for kind in ConditionType]
_FAILED_REASONS = {
    Reason.ROLLED_BACK.value,
    Reason.FAILED_REVISION_NOT_RETRIED.value,
    Reason.FIRST_REVISION_FAILED.value,
}
"""Reasons of Progressing that mean: the spec asks for a revision that failed."""
_LONGEST_MESSAGE = 80
"""Characters of a message in a table."""
_QUIET_REASONS = {Reason.NOT_CONFIGURED.value}
"""A condition that is not True for these reasons is as the user asked."""


def age(since: str, now: datetime) -> str:
    """Time since an RFC 3339 moment, in the two largest units; the text itself if unreadable."""
    try:
        seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    except (ValueError, TypeError):
        return since
    return _span(max(seconds, 0))


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if seconds < 172_800:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"


def details(resource: Resource, now: datetime) -> list[str]:
    """What is going on, what was decided, what is not good, and what one can do."""
    found = [*_rollout(resource, now), *_past(resource, now), *_conditions(resource, now)]
    return found + _labelled("next", next_actions(resource))


def document(resource: Resource, now: datetime) -> dict[str, Any]:
    """The same for programs: the status as stored, and what was derived from it."""
    canary = resource.status.canary
    return {
        "namespace": resource.namespace,
        "name": resource.name,
        "generation": resource.generation,
        "current": is_current(resource),
        "at": now.isoformat(timespec="seconds"),
        "status": resource.raw_status,
        "step": None if canary is None else canary.step + 1,
        "steps": [_step_words(step) for step in resource.steps],
        "notGood": [condition.type for condition in _not_good(resource)],
        "next": next_actions(resource),
    }


def overview(resources: Sequence[Resource], *, with_namespace: bool) -> str:
    """One line for each resource."""
    rows: list[tuple[str, ...]] = [
        ("NAMESPACE", "NAME", "STABLE", "READY", "TOKENS/STEP", "CANARY", "WEIGHT", "MESSAGE")
    ]
    for resource in resources:
        stable, canary = resource.status.stable, resource.status.canary
        message = resource.status.message.partition("\n")[0]
        rows.append(
            (
                resource.namespace,
                resource.name,
                f"{stable.revision} ({stable.hash})" if stable else "-",
                f"{stable.ready_replicas}/{stable.replicas}" if stable else "-",
                (stable.acceptance_length if stable else None) or "-",
                f"{canary.revision} ({canary.hash})" if canary else "-",
                f"{canary.observed_weight} %" if canary else "-",
                message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…",
            )
        )
    return "\n".join(table([row if with_namespace else row[1:] for row in rows]))


def next_actions(resource: Resource) -> list[str]:
    """What a person can do now; empty when there is nothing to do."""
    status = resource.status
    tail = f"{resource.name} -n {resource.namespace}"
    actions: list[str] = []
    if not status.conditions:
        return ["the operator has not looked at this resource yet: is it running?"]
    if any(c.type == ConditionType.ACCEPTED and c.status == "False" for c in status.conditions):
        actions.append("correct the spec as the condition Accepted says")
    canary = status.canary
    if canary is not None and canary.held == Reason.SCALED_TO_ZERO:
        actions.append(f"kubectl scale speculativedeployment {tail} --replicas=N")
        actions.append(f"kubectl speculative abort {tail}")
    elif _is_paused(resource):
        actions.append(f"kubectl speculative resume {tail}")
        if canary is not None:
            actions.append(f"kubectl speculative abort {tail}")
    elif canary is not None and (canary.held is not None or _waits_for_person(resource.step)):
        actions.append(f"kubectl speculative promote {tail}")
        actions.append(f"kubectl speculative abort {tail}")
    elif canary is not None:
        actions.append(f"nothing: it goes on by itself; kubectl speculative abort {tail} ends it")
    failed = _names_failed(resource)
    progressing = _progressing(resource)
    parked = status.parked
    if canary is None and parked and progressing and progressing.reason == parked.reason:
        retry = f"kubectl speculative retry {tail} --hash {parked.hash}"
        actions.append(f"wait until {parked.until}, change the spec, or {retry}")
    if progressing is not None and progressing.reason == Reason.ROLLBACKS_CAPPED:
        actions.append(f"wait, or kubectl speculative retry {tail} --hash HASH of a failed one")
    if canary is None and failed is not None:
        retry = f"kubectl speculative retry {tail} --hash {failed.hash}"
        actions.append(f"change the spec, or {retry}")
    if canary is None and _is_drifted(resource):
        actions.append(f"kubectl speculative recover {tail}, or change the spec")
    return actions


def _is_drifted(resource: Resource) -> bool:
    conditions = resource.status.conditions
    return any(c.type == ConditionType.ACCEPTANCE_DRIFTED and not _is_good(c) for c in conditions)


def _is_good(condition: Condition) -> bool:
    """Most conditions are good when True; one of them is an alarm."""
    if condition.type == ConditionType.ACCEPTANCE_DRIFTED:
        return condition.status != "True"
    return condition.status == "True"


def _names_failed(resource: Resource) -> FailedRevision | None:
    """The failed revision that the spec asks for, as the condition Progressing tells it."""
    failed = resource.status.failed_revisions
    progressing = _progressing(resource)
    if not failed or progressing is None or progressing.reason not in _FAILED_REASONS:
        return None
    told = (f for f in failed if f.message and f.message in progressing.message)
    return next(told, max(failed, key=lambda found: found.at))


def _progressing(resource: Resource) -> Condition | None:
    conditions = resource.status.conditions
    return next((c for c in conditions if c.type == ConditionType.PROGRESSING), None)


def _is_paused(resource: Resource) -> bool:
    progressing = _progressing(resource)
    return progressing is not None and progressing.reason == Reason.PAUSED_ON_REQUEST


def _waits_for_person(step: RolloutStep | None) -> bool:
    waits = (step.pause or step.shadow) if step is not None else None
    return waits is not None and waits.duration_seconds is None


def is_current(resource: Resource) -> bool:
    """Whether the operator has looked at the newest spec."""
    return resource.status.observed_generation >= resource.generation


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of equal length, the first of them a heading, in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _labelled(label: str, values: list[str]) -> list[str]:
    return [f"{label if i == 0 else '':<9} {value}" for i, value in enumerate(values)]


def _step_words(step: RolloutStep) -> str:
    if step.weight is not None:
        return f"weight {step.weight} %"
    waits = step.shadow or step.pause
    head = f"shadow {step.shadow.percent} %" if step.shadow is not None else "pause"
    if waits is None or waits.duration_seconds is None:
        return f"{head} until promote"
    of = "for" if step.shadow is not None else "of"
    return f"{head} {of} at most {waits.duration_seconds} s"


def _following(resource: Resource, canary: CanaryStatus, now: datetime) -> list[str]:
    """What comes after the present step, and when at the latest, as far as time decides."""
    after = canary.step + 1
    steps = resource.steps
    if resource.step is None:
        return []
    then = f"then {_step_words(steps[after])}" if after < len(steps) else "then promotion"
    waits = resource.step.pause or resource.step.shadow
    if waits is None or canary.held is not None or _is_paused(resource):
        return [then]
    if waits.duration_seconds is None:
        return [f"{then}, after promote"]
    if resource.step.shadow is not None and canary.shadow_observed_at is None:
        return [f"{then}, {waits.duration_seconds} s after every gateway copies, at the latest"]
    until = later(canary.step_started_at, waits.duration_seconds, now)
    return [f"{then}, {until} at the latest"]


def later(since: str, seconds: int, now: datetime) -> str:
    """`at 10:01:30 UTC, in 49 s`: a moment so long after another one."""
    try:
        at = datetime.fromisoformat(since).astimezone(UTC) + timedelta(seconds=seconds)
        left = int((at - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return f"{seconds} s after {since}"
    day = "" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d} "
    moment = f"at {day}{at:%H:%M:%S} UTC"
    return f"{moment}, in {_span(left)}" if left > 0 else f"{moment}, which is over"


def _guard_words(guard: GuardStatus, limit: int, now: datetime) -> str:
    if guard.returning_since is not None:
        return f"{guard.hash} takes over again, {age(guard.returning_since, now)} so far"
    then = f"nothing of {guard.hash} is kept" if guard.keep == "None" else f"then {guard.hash} goes"
    until = later(guard.started_at, limit, now)
    return f"{age(guard.started_at, now)} of {limit} s, {then}, {until}"


def _rollout(resource: Resource, now: datetime) -> list[str]:
    status, canary = resource.status, resource.status.canary
    lines: list[str] = []
    if canary is not None and canary.step < 0:
        limit = resource.rollout.progress_deadline_seconds
        lines += _labelled(
            "rollout",
            [f"the canary is starting, {age(canary.started_at, now)} of at most {limit} s"],
        )
    elif canary is not None:
        where = position(resource, canary.step)
        step = f": {_step_words(resource.step)}" if resource.step is not None else ""
        words = [f"{where}{step}, {age(canary.step_started_at, now)} so far"]
        words += _following(resource, canary, now)
        if canary.held == Reason.SCALED_TO_ZERO:
            words.append("rests: spec.replicas is 0")
        elif canary.held is not None:
            words.append(f"waits for a person: {canary.held}")
        lines += _labelled("rollout", words)
    if status.guard is not None:
        limit = resource.rollout.guard.duration_seconds
        lines += _labelled("guard", [_guard_words(status.guard, limit, now)])
    restart = status.restart
    if restart is not None and restart.outcome is None:
        lines += _labelled("restart", [f"{restart.hash}, {age(restart.at, now)} so far"])
    for leaving in status.retiring:
        stage = "out of the route" if leaving.route_removed_at else "waiting for its streams"
        lines += _labelled("removing", [f"{leaving.hash}, {age(leaving.since, now)}: {stage}"])
    return lines


def _past(resource: Resource, now: datetime) -> list[str]:
    verdict = resource.status.verdict
    lines: list[str] = []
    if verdict is not None:
        head = f"{verdict.hash} {verdict.outcome} ({verdict.reason}), {age(verdict.at, now)} ago"
        lines += _labelled("verdict", [head, *verdict.message.splitlines()])
    told = verdict.message if verdict is not None else ""
    for failed in resource.status.failed_revisions:
        head = f"{failed.hash} {failed.reason}, {age(failed.at, now)} ago"
        more = [] if failed.message == told else failed.message.splitlines()[:4]
        lines += _labelled("failed", [head, *more])
    return lines


def _not_good(resource: Resource) -> list[Condition]:
    found = [
        condition
        for condition in resource.status.conditions
        if not _is_good(condition) and condition.reason not in _QUIET_REASONS
    ]
    return sorted(found, key=lambda c: _ORDER.index(c.type) if c.type in _ORDER else len(_ORDER))


def _conditions(resource: Resource, now: datetime) -> list[str]:
    words = []
    for found in _not_good(resource):
        # The message of the resource is one of theirs: once on a screen is enough.
        told = found.message == resource.status.message
        since = age(found.last_transition_time, now)
        message = "as above" if told else found.message
        words.append(f"{found.type}={found.status} {found.reason}, {since}: {message}")
    return _labelled("not good", words)
