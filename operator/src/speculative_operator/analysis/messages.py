"""Verdicts in words: every sentence carries the arithmetic it rests on.

In: the evidence of one metric. Out: a `MetricVerdict`. Called by `verdict`.
An e-value of E is written "1 in E", rounded down: how rarely a candidate within
the limit would look like this, NOT the chance that the candidate is bad.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from speculative_api.assessment import one_in
from speculative_api.conditions import Reason
from speculative_api.gateway import STRUCTURED, TOOLS
from speculative_api.v1alpha1 import MetricName
from speculative_operator.analysis.bounds import Floors, FloorTest
from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.kinds import KindFigures
from speculative_operator.analysis.latency import LatencyFigures, SlowTest
from speculative_operator.analysis.restarts import RestartEvidence
from speculative_operator.analysis.sequential import MeanEvidence
from speculative_operator.analysis.speed import SpeedFigures
from speculative_operator.decision import MetricVerdict, Outcome


@dataclass(frozen=True, slots=True)
class Needed:
    """What the evidence of a metric is held against, and whether it has failed by it."""

    worse: float
    not_worse: float
    failed: bool


ALONE: Final = "(there is no old revision to compare with)"
ASKED_FOR: Final = {STRUCTURED: "a format", TOOLS: "tool calls"}
FAILURES_THAT_SAY_SOMETHING: Final = 3
"""Fewer failed requests are no reason to hold a rollout that proves nothing either way."""


def percent(part: float, whole: float) -> str:
    """`1.2 %`; one digit after the point below 10, two leading ones below 1."""
    value = 100 * part / whole if whole else 0.0
    if 0 < value < 1:
        return f"{value:.2g} %"
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def limit_words(limit: float) -> str:
    """`0.1 %`, `150 %`: as it was written."""
    return f"{round(100 * limit, 4):g} %"


def acceptance(
    evidence: MeanEvidence,
    least: Floors,
    needed: Needed,
    *,
    sides: tuple[float, float],
    missing: str,
) -> MetricVerdict:
    """The verdict on tokens per step; `missing` says why there is none, if there is no block."""
    total, blocks = evidence.total, evidence.blocks
    figures, outside = "", any(test.is_outside for test in least.tests)
    bounds = [f"{1 + test.limit:g} tokens per step" for test in least.tests]
    if not blocks and least.blocks:
        total, blocks = least.total, least.blocks
        ours = total.candidate_hits / total.candidate_exposure
        figures = f"acceptance length {1 + ours:.2f} tokens per step, limit {bounds[0]} {ALONE}"
    elif blocks:
        ours = total.candidate_hits / total.candidate_exposure
        theirs = total.control_hits / total.control_exposure
        outside = outside or ours < evidence.limit * theirs
        figures = (
            f"acceptance length {1 + ours:.2f} tokens per step on the candidate, "
            f"{1 + theirs:.2f} on stable: accepts {percent(ours, theirs)} of what stable does, "
            f"limit {limit_words(evidence.limit)}"
            if theirs
            else f"acceptance length {1 + ours:.2f} tokens per step on the candidate, 1.00 on "
            f"stable, limit {limit_words(evidence.limit)} of stable's accepted tokens"
        )
        figures += "".join(f" and {bound}" for bound in bounds)
    return _verdict(
        MetricName.ACCEPTANCE_LENGTH,
        worse_reason=Reason.ACCEPTANCE_WORSE,
        needed=needed,
        sides=sides,
        blocks=blocks,
        figures=figures,
        outside=outside,
        counts=f"{total.candidate_exposure:,.0f} candidate steps",
        missing=f"acceptance length not measured: {missing}",
    )


def rate(evidence: Floors, needed: Needed, *, missing: str) -> MetricVerdict:
    """The verdict on accepted of drafted tokens; `missing` says why it can't be compared now."""
    total = evidence.total
    figures = (
        f"acceptance rate {percent(total.candidate_hits, total.candidate_exposure)} on the "
        f"candidate, {percent(total.control_hits, total.control_exposure)} on stable, limit "
        f"{' and '.join(_floor_words(test) for test in evidence.tests)}"
    )
    if not total.control_exposure:
        figures += f" {ALONE}"
    return _verdict(
        MetricName.ACCEPTANCE_RATE,
        worse_reason=Reason.ACCEPTANCE_WORSE,
        needed=needed,
        sides=(evidence.worse, evidence.not_worse),
        blocks=evidence.blocks,
        figures=figures,
        outside=any(test.is_outside for test in evidence.tests),
        counts=f"{total.candidate_exposure:,.0f} candidate draft tokens",
        missing="acceptance rate not measured: "
        + (missing or "no block with enough requests of both arms yet"),
    )


def speed(evidence: SpeedFigures, needed: Needed, *, sides: tuple[float, float]) -> MetricVerdict:
    """The verdict on tokens per second and pod."""
    seen = evidence.relative if evidence.relative.blocks else evidence.absolute
    total, tests = seen.total, (*evidence.relative.tests, *evidence.absolute.tests)
    figures = ""
    if seen.blocks:
        ours = total.candidate_hits / total.candidate_exposure
        theirs = total.control_hits / total.control_exposure if total.control_exposure else 0.0
        figures = (
            f"{ours:.1f} tokens per second and pod on the candidate, {theirs:.1f} on stable "
            f"({percent(ours, theirs)}), limit {' and '.join(_speed_words(test) for test in tests)}"
            f"; {evidence.load[0]:.1f} requests at a time in a pod of the candidate, "
            f"{evidence.load[1]:.1f} in one of stable, and valid up to that"
        )
        if not total.control_exposure:
            figures += f" {ALONE}"
        if evidence.absolute.tests and not evidence.absolute.blocks:
            figures += "; no pod of the candidate was full, so its own bound was not tested"
    return _verdict(
        MetricName.TOKENS_PER_SECOND,
        worse_reason=Reason.SPEED_WORSE,
        needed=needed,
        sides=sides,
        blocks=seen.blocks,
        figures=figures,
        outside=any(test.is_outside for test in tests),
        counts=f"{total.candidate_exposure:,.0f} s of candidate pods",
        missing=f"tokens per second not measured: {evidence.missing}",
    )


def restarts(evidence: RestartEvidence, needed: Needed) -> MetricVerdict:
    """The verdict on container restarts: a count, no evidence."""
    (ours, theirs), (pods, their_pods) = evidence.restarts, evidence.pods
    figures = (
        f"{ours} container restarts of {pods} pods of the candidate, {theirs} of {their_pods} of "
        f"stable in {evidence.watched_seconds:.0f} s, limit {evidence.limit} or twice stable's "
        "per pod"
    )
    outcome, reason = Outcome.INCONCLUSIVE, Reason.NOT_MEASURED
    if needed.failed:
        outcome, reason = Outcome.FAILED, Reason.RESTARTS_WORSE
    elif evidence.measured and evidence.restarts[0] <= evidence.limit:
        outcome, reason = Outcome.PASSED, Reason.NOT_WORSE
    elif evidence.measured:
        reason = Reason.ANALYSIS_INCONCLUSIVE
    return MetricVerdict(
        name=MetricName.RESTARTS,
        outcome=outcome,
        reason=reason,
        worse=needed.worse if needed.failed else 1.0,
        not_worse=needed.not_worse if outcome == Outcome.PASSED else 1.0,
        needed_worse=needed.worse,
        needed_not_worse=needed.not_worse,
        measured=evidence.measured or needed.failed,
        message=figures,
    )


def errors(
    evidence: ErrorEvidence,
    refused: ErrorEvidence,
    kinds: Sequence[KindFigures],
    needed: Needed,
    *,
    sides: tuple[float, float],
    sticky: bool,
    missing: str,
) -> MetricVerdict:
    """The verdict on failed requests; `missing` says why there is none, if there is no block."""
    total = evidence.total
    figures = (
        f"errors {total.candidate_hits:,.0f} of {total.candidate_exposure:,.0f} requests "
        f"({percent(total.candidate_hits, total.candidate_exposure)}) on the candidate, "
        f"{total.control_hits:,.0f} of {total.control_exposure:,.0f} "
        f"({percent(total.control_hits, total.control_exposure)}) on stable, limit "
        f"{limit_words(evidence.limit)} or twice stable's"
        if total.control_exposure
        else f"errors {total.candidate_hits:,.0f} of {total.candidate_exposure:,.0f} requests "
        f"({percent(total.candidate_hits, total.candidate_exposure)}), limit "
        f"{limit_words(evidence.limit)} {ALONE}"
    )
    figures += "; 4xx not counted, since sessions stay with a revision" if sticky else ""
    if refused.total.pooled:
        total = refused.total
        figures += (
            f"; answered 4xx: {percent(total.candidate_hits, total.candidate_exposure)} and "
            f"{percent(total.control_hits, total.control_exposure)}"
        )
    figures += "".join(_kind_words(kind) for kind in kinds if kind.total.pooled)
    return _verdict(
        MetricName.ERROR_RATE,
        worse_reason=Reason.ERRORS_WORSE,
        needed=needed,
        sides=sides,
        blocks=evidence.blocks,
        figures=figures,
        outside=errors_outside(evidence)
        or errors_outside(refused)
        or any(kind.is_outside for kind in kinds),
        counts=f"{evidence.total.candidate_exposure:,.0f} candidate requests",
        missing=f"errors not measured: {missing}",
    )


def latency(
    evidence: LatencyFigures, needed: Needed, *, sides: tuple[float, float]
) -> MetricVerdict:
    """The verdict on the share of slow ones; every bound is named."""
    total = evidence.total
    bound = 1000 * (evidence.bound_seconds or 0.0)
    bucket = f"{bound:g} ms"
    if bound != evidence.threshold_milliseconds:
        bucket += f" (threshold {evidence.threshold_milliseconds} ms, rounded up to a bucket)"
    ours, theirs = evidence.load
    figures = (
        f"{evidence.name}: {percent(total.candidate_hits, total.candidate_exposure)} of "
        f"{total.candidate_exposure:,.0f} above {bucket} on the candidate, "
        f"{percent(total.control_hits, total.control_exposure)} of "
        f"{total.control_exposure:,.0f} on stable, limit "
        f"{' and '.join(_bound_words(test) for test in evidence.tests)}; load per pod "
        f"{ours:.1f} requests a minute on the candidate, {theirs:.1f} on stable"
    )
    return _verdict(
        MetricName(evidence.name),
        worse_reason=Reason.LATENCY_WORSE,
        needed=needed,
        sides=sides,
        blocks=evidence.blocks,
        figures=figures,
        outside=any(_slow_outside(test) for test in evidence.tests),
        counts=f"{total.candidate_exposure:,.0f} candidate observations",
        missing=f"{evidence.name} not measured: {evidence.missing}",
    )


def _kind_words(kind: KindFigures) -> str:
    total = kind.total
    beside = (
        f", {total.control_hits:,.0f} of {total.control_exposure:,.0f} "
        f"({percent(total.control_hits, total.control_exposure)}) on stable, limit "
        f"{limit_words(kind.limit)} or stable's"
        if total.control_exposure
        else ""
    )
    return (
        f"; of requests for {ASKED_FOR[kind.name]} {total.candidate_hits:,.0f} of "
        f"{total.candidate_exposure:,.0f} "
        f"({percent(total.candidate_hits, total.candidate_exposure)}) on the candidate{beside}"
    )


def _floor_words(test: FloorTest) -> str:
    words = limit_words(test.limit)
    return words if test.is_absolute else f"{words} of stable's"


def _speed_words(test: FloorTest) -> str:
    return f"{test.limit:g} of a full pod" if test.is_absolute else _floor_words(test)


def _bound_words(test: SlowTest) -> str:
    words = limit_words(test.limit)
    return words if test.is_absolute else f"{words} of stable's share"


def _slow_outside(test: SlowTest) -> bool:
    """Whether the plain share is beyond the bound, over the blocks that count for worse."""
    total = test.worse_side.total
    if total.candidate_hits < FAILURES_THAT_SAY_SOMETHING or total.is_empty:
        return False
    ours = total.candidate_hits / total.candidate_exposure
    return ours > test.worse_side.limit * total.control_hits / total.control_exposure


def _verdict(
    name: MetricName,
    *,
    worse_reason: Reason,
    needed: Needed,
    sides: tuple[float, float],
    blocks: int,
    figures: str,
    counts: str,
    missing: str,
    outside: bool,
) -> MetricVerdict:
    worse, not_worse = sides
    if needed.failed:
        outcome, reason = Outcome.FAILED, worse_reason
        text = (
            f"{figures}. Evidence of worse {one_in(worse)} (needed {one_in(needed.worse)}): a "
            "candidate within the limit would look this bad, at any time in the rollout, in "
            f"fewer than {one_in(worse)} rollouts. {_blocks(blocks)}, {counts}"
        )
    elif not blocks:
        outcome, reason, text = Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, missing
    else:
        passed = not_worse >= needed.not_worse
        outcome = Outcome.PASSED if passed else Outcome.INCONCLUSIVE
        reason = Reason.NOT_WORSE if passed else Reason.ANALYSIS_INCONCLUSIVE
        text = (
            f"{figures}. Not worse {one_in(not_worse)} (needs {one_in(needed.not_worse)}), worse "
            f"{one_in(worse)} (needs {one_in(needed.worse)}). {_blocks(blocks)}, {counts}"
        )
    return MetricVerdict(
        name=name.value,
        outcome=outcome,
        reason=reason,
        worse=worse,
        not_worse=not_worse,
        needed_worse=needed.worse,
        needed_not_worse=needed.not_worse,
        measured=blocks > 0,
        message=text,
        blocks=blocks,
        outside_limit=outside,
    )


def errors_outside(evidence: ErrorEvidence) -> bool:
    """Whether the plain error share is beyond the limit; one or two failures say nothing."""
    total = evidence.total
    if total.candidate_hits < FAILURES_THAT_SAY_SOMETHING or total.candidate_exposure <= 0:
        return False
    ours = total.candidate_hits / total.candidate_exposure
    theirs = total.control_hits / total.control_exposure if total.control_exposure else 0.0
    return ours > max(evidence.limit, 2 * theirs)


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
