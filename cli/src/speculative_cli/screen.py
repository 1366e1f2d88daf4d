"""One resource on one screen: what an SRE asks first, in this order. Pure.

`text` for people, `document` for programs; `now` is an input. Weights are
percent, acceptance length is tokens per decoding step.
"""

from datetime import datetime
from typing import Any

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import CanaryStatus, Condition, RolloutStep

from .requests import position
from .resource import Resource

_ORDER = [kind.value for kind in ConditionType]
_QUIET_REASONS = {Reason.NOT_CONFIGURED.value}
"""A condition that is not True for these reasons is as the user asked."""


def age(since: str, now: datetime) -> str:
    """Time since an RFC 3339 moment, in the two largest units; the text itself if unreadable."""
    try:
        seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    except (ValueError, TypeError):
        return since
    seconds = max(seconds, 0)
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if seconds < 172_800:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"


def text(resource: Resource, now: datetime) -> str:
    """The screen, without a line break at its end."""
    status = resource.status
    lines = [f"{resource.namespace}/{resource.name}  method {resource.method}"]
    lines[0] += "" if _is_current(resource) else "  (the newest spec was not looked at yet)"
    if status.message:
        lines.append(status.message)
    lines += ["", *_revisions(resource)]
    details = [*_rollout(resource, now), *_past(resource, now), *_conditions(resource, now)]
    details += _labelled("next", next_actions(resource))
    return "\n".join([*lines, "", *details]).rstrip()


def document(resource: Resource, now: datetime) -> dict[str, Any]:
    """The same for programs: the status as stored, and what was derived from it."""
    canary = resource.status.canary
    return {
        "namespace": resource.namespace,
        "name": resource.name,
        "generation": resource.generation,
        "current": _is_current(resource),
        "at": now.isoformat(timespec="seconds"),
        "status": resource.raw_status,
        "step": None if canary is None else canary.step + 1,
        "steps": [_step_words(step) for step in resource.steps],
        "notGood": [condition.type for condition in _not_good(resource)],
        "next": next_actions(resource),
    }


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
    if canary is not None and (canary.held is not None or _waits_for_person(resource.step)):
        actions.append(f"kubectl speculative promote {tail}")
        actions.append(f"kubectl speculative abort {tail}")
    elif canary is not None:
        actions.append(f"nothing: it goes on by itself; kubectl speculative abort {tail} ends it")
    if canary is None:
        actions += [
            f"change the spec, or kubectl speculative retry {tail} --hash {failed.hash}"
            for failed in status.failed_revisions
            if _names_failed(status.conditions, failed.hash)
        ]
    return actions


def _names_failed(conditions: list[Condition], failed: str) -> bool:
    reasons = {Reason.FAILED_REVISION_NOT_RETRIED, Reason.FIRST_REVISION_FAILED}
    return any(c.reason in reasons and failed in c.message for c in conditions)


def _waits_for_person(step: RolloutStep | None) -> bool:
    return step is not None and step.pause is not None and step.pause.duration_seconds is None


def _is_current(resource: Resource) -> bool:
    return resource.status.observed_generation >= resource.generation


def _revisions(resource: Resource) -> list[str]:
    status = resource.status
    rows: list[tuple[str, ...]] = [("", "REVISION", "HASH", "READY", "WEIGHT", "TOKENS/STEP")]
    taken = status.guard.weight if status.guard else status.canary.weight if status.canary else 0
    if status.stable is not None:
        stable = status.stable
        rows.append(
            (
                "stable",
                str(stable.revision),
                stable.hash,
                f"{stable.ready_replicas}/{stable.replicas}",
                f"{100 - taken} %",
                stable.acceptance_length or "-",
            )
        )
    if status.canary is not None:
        rows.append(_canary_row(status.canary))
    if status.guard is not None:
        guard = status.guard
        rows.append(
            ("guard", str(guard.revision), guard.hash, "-", f"{guard.weight} %", "-"),
        )
    rows += [("retiring", "-", leaving.hash, "-", "0 %", "-") for leaving in status.retiring]
    if len(rows) == 1:
        return ["no revision yet"]
    return _table(rows)


def _canary_row(canary: CanaryStatus) -> tuple[str, ...]:
    seen = canary.observed_weight
    weight = f"{canary.weight} %" + ("" if seen == canary.weight else f" (gateways: {seen} %)")
    return (
        "canary",
        str(canary.revision),
        canary.hash,
        f"{canary.ready_replicas}/{canary.replicas}",
        weight,
        canary.acceptance_length or "-",
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
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
    if step.pause is None or step.pause.duration_seconds is None:
        return "pause until promote"
    return f"pause of at most {step.pause.duration_seconds} s"


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
        if canary.held is not None:
            words.append(f"waits for a person: {canary.held}")
        lines += _labelled("rollout", words)
    if status.guard is not None:
        limit = resource.rollout.guard.duration_seconds
        lines += _labelled(
            "guard",
            [f"{age(status.guard.started_at, now)} of {limit} s, then {status.guard.hash} goes"],
        )
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
        if condition.status != "True"
        and condition.reason not in _QUIET_REASONS
        # Progressing is False at rest; only its bad reasons are news.
        and (
            condition.type != ConditionType.PROGRESSING
            or condition.reason not in {Reason.COMPLETE, Reason.ROLLED_BACK, Reason.ABORTED}
        )
    ]
    return sorted(found, key=lambda c: _ORDER.index(c.type) if c.type in _ORDER else len(_ORDER))


def _conditions(resource: Resource, now: datetime) -> list[str]:
    words = [
        f"{c.type}={c.status} {c.reason}, {age(c.last_transition_time, now)}: {c.message}"
        for c in _not_good(resource)
    ]
    return _labelled("not good", words)
