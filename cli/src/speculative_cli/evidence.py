"""The evidence of the last trial as a table. Pure.

Made from the raw ConfigMap `<name>-evidence`, which the operator writes every
half minute during a trial and keeps until the next one.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from speculative_api.assessment import (
    ASSESSMENT_KEY,
    COURSE_KEY,
    SHADOW_KEY,
    JudgedCourse,
    JudgedMetric,
    JudgedShadow,
    JudgedTrial,
    one_in,
    share,
)

from .errors import CliError, NotFound
from .resource import Resource
from .screen import age, table

SHOWN_LOOKS: Final = 12
"""Looks shown of a trial's course; the plot shows all that were kept."""


def trial(raw: Mapping[str, Any], resource: Resource) -> JudgedTrial:
    """The trial in a ConfigMap.

    Raises:
        NotFound: it is not this resource's, or the operator has written none yet.
        CliError: it has another shape than this version knows.
    """
    owners = {o.get("uid") for o in raw["metadata"].get("ownerReferences") or []}
    text = (raw.get("data") or {}).get(ASSESSMENT_KEY)
    if resource.uid not in owners or text is None:
        raise NotFound(f"{resource.namespace}/{resource.name}: nothing was judged yet")
    try:
        return JudgedTrial.model_validate_json(text)
    except ValidationError as error:
        raise CliError(
            f"this version of kubectl-speculative can't read the evidence: {error.errors()[0]}"
        ) from error


def course(raw: Mapping[str, Any], found: JudgedTrial) -> JudgedCourse | None:
    """How the evidence came about; None where an older operator kept no course of this trial."""
    try:
        read = JudgedCourse.model_validate_json((raw.get("data") or {}).get(COURSE_KEY) or "")
    except ValidationError:
        return None
    same = (read.candidate, read.stage, read.began_at)
    names = tuple(metric.name for metric in found.metrics)
    whole = all(len(p.worse) == len(p.not_worse) == len(names) for p in read.points)
    if same != (found.candidate, found.stage, found.began_at) or read.metrics != names:
        return None
    return read if whole and read.points else None


def shadow(raw: Mapping[str, Any], found: JudgedTrial) -> JudgedShadow | None:
    """What the shadow step before this trial came to; None where there was none."""
    try:
        read = JudgedShadow.model_validate_json((raw.get("data") or {}).get(SHADOW_KEY) or "")
    except ValidationError:
        return None
    return read if read.trial.candidate == found.candidate else None


def course_text(found: JudgedCourse) -> str:
    """The looks, at most the last `SHOWN_LOOKS`, with what came since the one before."""
    head = ("AFTER", "SHARE", "REQUESTS", *(f"{n}: WORSE / NOT WORSE" for n in found.metrics))
    rows: list[tuple[str, ...]] = [head]
    requests = 0
    for point in found.points:
        pairs = zip(point.worse, point.not_worse, strict=True)
        row = [f"{point.at - found.began_at:.0f} s", share(point.percent, found.stage) or "-"]
        row.append(f"+{point.candidate_requests - requests}")
        rows.append((*row, *(f"{one_in(a)[5:]} / {one_in(b)[5:]}" for a, b in pairs)))
        requests = point.candidate_requests
    return "\n".join(table([head, *rows[1:][-SHOWN_LOOKS:]]))


def text(found: JudgedTrial, resource: Resource, now: datetime) -> str:
    """The table, then each metric's own words, then what was decided in the end."""
    lines = _told(found, now)
    verdict = resource.status.verdict
    if verdict is not None and verdict.hash == found.candidate:
        lines += ["", f"decided {age(verdict.at, now)} ago: {verdict.outcome} ({verdict.reason})"]
    return "\n".join(lines)


def shadow_text(found: JudgedShadow, now: datetime) -> str:
    """What was judged by copies before, which decides nothing any more."""
    lines = ["before that, by copies whose answers nobody got:", *_told(found.trial, now)]
    if found.course.points:
        lines += ["", course_text(found.course)]
    return "\n".join(lines)


def _told(found: JudgedTrial, now: datetime) -> list[str]:
    """Of a trial: where it stands, the table, and each metric's own words."""
    stage = f"{found.candidate} as {found.stage}" + (f", {found.share}" if found.share else "")
    return [
        f"{stage}, judged for "
        f"{found.at - found.began_at:.0f} s; last look {age(_stamp(found.at), now)} ago; "
        f"{found.candidate_requests} requests answered",
        "",
        *table(
            [
                ("METRIC", "OUTCOME", "BLOCKS", "WORSE", "(NEEDED)", "NOT WORSE", "(NEEDED)"),
                *(_row(metric) for metric in found.metrics),
            ]
        ),
        "",
        *(f"{metric.name}: {metric.message}" for metric in found.metrics),
    ]


def _row(metric: JudgedMetric) -> tuple[str, ...]:
    outcome = metric.outcome + (" (dry run)" if metric.dry_run else "")
    if not metric.measured:
        return metric.name, "not measured", "-", "-", "-", "-", "-"
    return (
        metric.name,
        outcome,
        str(metric.blocks or "-"),
        one_in(metric.worse),
        one_in(metric.needed_worse),
        one_in(metric.not_worse),
        one_in(metric.needed_not_worse),
    )


def _stamp(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat()
