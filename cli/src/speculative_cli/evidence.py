"""The evidence of the last trial as a table. Pure.

Made from the raw ConfigMap `<name>-evidence`, which the operator writes every
half minute during a trial and keeps until the next one.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from speculative_api.assessment import ASSESSMENT_KEY, JudgedMetric, JudgedTrial, one_in

from .errors import CliError, NotFound
from .resource import Resource
from .screen import age, table


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


def text(found: JudgedTrial, resource: Resource, now: datetime) -> str:
    """The table, then each metric's own words, then what was decided in the end."""
    lines = [
        f"{found.candidate} as {found.stage}, judged for "
        f"{found.at - found.began_at:.0f} s; last look {age(_stamp(found.at), now)} ago; "
        f"{found.candidate_requests} requests answered",
        "",
        *table(
            [
                ("METRIC", "OUTCOME", "WORSE", "(NEEDED)", "NOT WORSE", "(NEEDED)"),
                *(_row(metric) for metric in found.metrics),
            ]
        ),
        "",
        *(f"{metric.name}: {metric.message}" for metric in found.metrics),
    ]
    verdict = resource.status.verdict
    if verdict is not None and verdict.hash == found.candidate:
        lines += ["", f"decided {age(verdict.at, now)} ago: {verdict.outcome} ({verdict.reason})"]
    return "\n".join(lines)


def _row(metric: JudgedMetric) -> tuple[str, ...]:
    outcome = metric.outcome + (" (dry run)" if metric.dry_run else "")
    if not metric.measured:
        return metric.name, "not measured", "-", "-", "-", "-"
    return (
        metric.name,
        outcome,
        one_in(metric.worse),
        one_in(metric.needed_worse),
        one_in(metric.not_worse),
        one_in(metric.needed_not_worse),
    )


def _stamp(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat()
