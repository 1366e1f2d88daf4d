"""Numbers that Prometheus was asked for, judged by counting.

In: `Measurement`s, a number or why there is none. Out: a `MetricVerdict`. A
query may be anything, so that nothing is known of how its numbers vary: no
evidence, but so many in a row beyond a bound. What is not known is never a
pass and never a failure, and time does not advance a canary over it. Pure.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import PrometheusQuery
from speculative_operator.decision import MetricVerdict, Outcome

IN_A_ROW: Final = 3
"""Numbers in a row that decide; an answer without a number does not interrupt the row."""
FRESH_SECONDS: Final = 60.0
"""An older number (or one of two and a half periods ago, if that is longer) says nothing."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer: a finite number, or the problem in words."""

    at: float
    """Unix seconds."""
    value: float | None = None
    problem: str = ""
    is_away: bool = False
    """The source itself has the problem, not the query or its data."""


@dataclass(frozen=True, slots=True)
class QueryEvidence:
    """What is remembered of one query; `since` is unix seconds of the last number."""

    name: str
    query: str
    least: float | None
    most: float | None
    outside: int = 0
    inside: int = 0
    """Numbers in a row beyond and within the bounds."""
    value: float | None = None
    since: float = 0.0
    asked_at: float = 0.0
    problem: str = "not asked yet"
    is_away: bool = False
    stale: bool = True

    @property
    def limits(self) -> tuple[str, str, float | None, float | None]:
        """What makes it another test when it changes."""
        return self.name, self.query, self.least, self.most

    @property
    def failed(self) -> bool:
        """Whether enough numbers in a row are beyond a bound."""
        return self.outside >= IN_A_ROW

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal value."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "QueryEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(**{name: data[name] for name in _FIELDS})


_FIELDS: Final = QueryEvidence.__slots__


def begin(name: str, asked: PrometheusQuery, *, at: float) -> QueryEvidence:
    """Nothing known yet; an answer to a question from before `at` is one about another trial."""
    return QueryEvidence(
        name=name,
        query=asked.query,
        least=None if asked.min is None else float(asked.min),
        most=None if asked.max is None else float(asked.max),
        asked_at=at,
    )


def observe(
    evidence: QueryEvidence, found: Measurement | None, *, at: float, period_seconds: float
) -> QueryEvidence:
    """The evidence after one more look; the same answer again counts once."""
    after = evidence if found is None else _with(evidence, found)
    age = at - after.since
    return replace(after, stale=age > max(FRESH_SECONDS, 2.5 * period_seconds))


def _with(evidence: QueryEvidence, found: Measurement) -> QueryEvidence:
    if found.at <= evidence.asked_at:
        return evidence
    if found.value is None or not math.isfinite(found.value):
        problem = found.problem or "no finite number"
        return replace(evidence, asked_at=found.at, problem=problem, is_away=found.is_away)
    low = evidence.least is not None and found.value < evidence.least
    high = evidence.most is not None and found.value > evidence.most
    return replace(
        evidence,
        asked_at=found.at,
        since=found.at,
        value=found.value,
        problem="",
        is_away=False,
        outside=evidence.outside + 1 if low or high else 0,
        inside=0 if low or high else evidence.inside + 1,
    )


def verdict(
    evidence: QueryEvidence, *, failed: bool, needed_worse: float, needed_not_worse: float
) -> MetricVerdict:
    """What the numbers say now."""
    known = evidence.value is not None and not evidence.problem and not evidence.stale
    outcome, reason = Outcome.INCONCLUSIVE, Reason.NOT_MEASURED
    if failed:
        outcome, reason = Outcome.FAILED, Reason.QUERY_OUTSIDE
    elif evidence.is_away:
        outcome, reason = Outcome.ERRORED, Reason.SOURCE_AWAY
    elif known and evidence.inside >= IN_A_ROW:
        outcome, reason = Outcome.PASSED, Reason.NOT_WORSE
    elif known:
        reason = Reason.ANALYSIS_INCONCLUSIVE
    return MetricVerdict(
        name=evidence.name,
        outcome=outcome,
        reason=reason,
        worse=needed_worse if failed else 1.0,
        not_worse=needed_not_worse if outcome == Outcome.PASSED else 1.0,
        needed_worse=needed_worse,
        needed_not_worse=needed_not_worse,
        measured=known or failed,
        message=_message(evidence),
        outside_limit=evidence.outside > 0,
        holds=not known,
    )


def _message(evidence: QueryEvidence) -> str:
    bounds = [
        f"{word} {value:g}"
        for word, value in (("at least", evidence.least), ("at most", evidence.most))
        if value is not None
    ]
    wanted = f"wanted {' and '.join(bounds)}"
    if evidence.problem:
        last = "" if evidence.value is None else f"; {evidence.value:g} before that"
        return f"{evidence.name} not measured: {evidence.problem} ({wanted}{last})"
    if evidence.value is None or evidence.stale:
        return f"{evidence.name} not measured: no new number ({wanted})"
    row = f"{evidence.outside} in a row beyond it, {IN_A_ROW} fail"
    if not evidence.outside:
        row = f"{evidence.inside} in a row within it, {IN_A_ROW} pass"
    return f"{evidence.name} is {evidence.value:g}, {wanted}; {row}"
