"""What the evidence of one trial says at a moment, in words.

In: `Evidence`, which `observing` feeds. Out: an `Assessment` for `rollout`.
Sentences cost more than the evidence that they rest on, and most looks end no
block: `tell` says again what it said before where nothing of that changed. Pure.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import MetricName
from speculative_operator.analysis import messages, queried
from speculative_operator.analysis.evidence import Evidence
from speculative_operator.analysis.limits import begin, continues
from speculative_operator.analysis.observing import acceptance_sides, error_sides, observe
from speculative_operator.analysis.windows import Sample
from speculative_operator.decision import Assessment, MetricVerdict, Outcome

__all__ = ["Evidence", "Sample", "assess", "begin", "continues", "observe", "tell"]

NEEDED_NOT_WORSE: Final = 20.0
"""Evidence for 'not worse': 5 % per metric. Advancing needs every metric, so no correction."""

OF_ENGINES: Final = frozenset(MetricName) - {MetricName.ERROR_RATE, MetricName.RESTARTS}
"""Metrics whose figures are the engines' own: the others come from gateways and Kubernetes."""


class _Grounds(NamedTuple):
    """All that a verdict is made of: who puts it into words, and from what."""

    said: "partial[MetricVerdict]"
    problem: str
    dry_run: bool

    def alike(self, other: "_Grounds") -> bool:
        """Whether both give the same verdict; what no look changed is the same object."""
        mine, theirs = self.said, other.said
        return (
            mine.func is theirs.func
            and mine.args == theirs.args
            and mine.keywords == theirs.keywords
            and self[1:] == other[1:]
        )

    def verdict(self) -> MetricVerdict:
        """The verdict, with why it is not acted on, if it is not."""
        found = self.said()
        if self.problem and found.outcome != Outcome.FAILED:
            found = replace(
                found,
                outcome=Outcome.ERRORED,
                reason=Reason.SOURCE_AWAY,
                holds=True,
                message=f"{self.problem}; before that {found.message}",
            )
        if not self.dry_run:
            return found
        return replace(found, dry_run=True, message=f"dry run, not acted on: {found.message}")


@dataclass(frozen=True, slots=True)
class Told:
    """An assessment, and what each of its verdicts was made of."""

    assessment: Assessment
    grounds: tuple[_Grounds, ...]


def assess(evidence: Evidence) -> Assessment:
    """What the evidence says now. Absent data is Inconclusive, never Passed or Failed."""
    return tell(evidence).assessment


def tell(evidence: Evidence, before: Told | None = None) -> Told:
    """The same, with the words of an earlier moment where they still hold."""
    grounds = tuple(_grounds(evidence, name) for name in evidence.metrics)
    earlier = (*zip(before.grounds, before.assessment.metrics, strict=True),) if before else ()
    metrics = tuple(
        earlier[place][1]
        if place < len(earlier) and earlier[place][0].alike(each)
        else each.verdict()
        for place, each in enumerate(grounds)
    )
    assessment = Assessment(
        metrics=metrics,
        candidate_requests=_requests(evidence),
        all_fail=evidence.failing.words,
    )
    return Told(assessment, grounds)


def _grounds(evidence: Evidence, name: str) -> _Grounds:
    problem = evidence.problem if name in OF_ENGINES else ""
    return _Grounds(_said(evidence, name), problem, name in evidence.dry_run)


def _said(evidence: Evidence, name: str) -> "partial[MetricVerdict]":
    """Who puts a metric's evidence into words, given all that they need: what is not among it
    can't change them."""
    failed = name in evidence.failed
    for asked in evidence.queries:
        if asked.name == name:
            return partial(
                queried.verdict,
                asked,
                failed=failed,
                needed_worse=evidence.needed_worse,
                needed_not_worse=NEEDED_NOT_WORSE,
            )
    needed = messages.Needed(evidence.needed_worse, NEEDED_NOT_WORSE, failed=failed)
    for judged in evidence.latencies:
        if judged.name == name:
            sides = (judged.worse, judged.not_worse)
            return partial(messages.latency, judged.figures, needed, sides=sides)
    if name == MetricName.ACCEPTANCE_RATE and evidence.rate is not None:
        return partial(messages.rate, evidence.rate, needed, missing=evidence.rate_missing)
    if name == MetricName.TOKENS_PER_SECOND and evidence.speed is not None:
        sides = (evidence.speed.worse, evidence.speed.not_worse)
        return partial(messages.speed, evidence.speed.figures, needed, sides=sides)
    if name == MetricName.RESTARTS and evidence.restarts is not None:
        return partial(messages.restarts, evidence.restarts, needed)
    if name == MetricName.ACCEPTANCE_LENGTH:
        return partial(
            messages.acceptance,
            evidence.acceptance,
            evidence.least_acceptance,
            needed,
            sides=acceptance_sides(evidence),
            missing=_why_no_acceptance(evidence),
        )
    return partial(
        messages.errors,
        evidence.errors,
        evidence.client_errors,
        tuple(kind.figures for kind in evidence.kinds),
        needed,
        sides=error_sides(evidence),
        sticky=evidence.sticky,
        missing=_why_no_errors(evidence),
    )


def _requests(evidence: Evidence) -> int:
    """Counted by the gateways; by the workers as long as no gateway has answered."""
    if evidence.gateways.seen or any(evidence.gateways.candidate):
        return evidence.gateways.candidate[0]
    return evidence.workers.candidate[0]


def _why_no_acceptance(evidence: Evidence) -> str:
    if evidence.alone:
        return "nothing of the old revision is kept to compare with"
    candidate, control = evidence.methods
    requests, _, _, drafted = evidence.workers.candidate
    if candidate == "None":
        return "the candidate does not speculate"
    if control == "None":
        return "stable does not speculate, so there is nothing to compare with"
    if not candidate or not control:
        return f"no digest from {'the candidate' if not candidate else 'stable'} yet"
    if requests and not drafted:
        return f"the candidate drafted no token in {requests} requests"
    return "no block with enough requests of both arms yet"


def _why_no_errors(evidence: Evidence) -> str:
    if not evidence.gateways.seen:
        return "no gateway agent has answered"
    return "no block with enough requests of both arms yet"
