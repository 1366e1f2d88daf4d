"""Verdicts in words: every sentence carries the arithmetic it rests on.

In: the evidence of one metric. Out: a `MetricVerdict`. Called by `verdict`.
An e-value of E is written "1 in E", rounded down: how rarely a candidate within
the limit would look like this, NOT the chance that the candidate is bad.
"""

from typing import Final

from speculative_api.assessment import one_in
from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import MetricName
from speculative_operator.analysis.latency import LatencyEvidence, SlowTest
from speculative_operator.analysis.sequential import ErrorEvidence, MeanEvidence
from speculative_operator.decision import MetricVerdict, Outcome

FAILURES_THAT_SAY_SOMETHING: Final = 3
"""Fewer failed requests are no reason to hold a rollout that proves nothing either way."""


def percent(part: float, whole: float) -> str:
    """`1.2 %`; one digit after the point below 10."""
    value = 100 * part / whole if whole else 0.0
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def acceptance(
    evidence: MeanEvidence,
    *,
    failed: bool,
    needed_worse: float,
    needed_not_worse: float,
    missing: str,
) -> MetricVerdict:
    """The verdict on tokens per step; `missing` says why there is none, if there is no block."""
    total = evidence.total
    figures, outside = "", False
    if evidence.blocks:
        ours = total.candidate_hits / total.candidate_exposure
        theirs = total.control_hits / total.control_exposure
        outside = ours < evidence.limit * theirs
        figures = (
            f"acceptance length {1 + ours:.2f} tokens per step on the candidate, "
            f"{1 + theirs:.2f} on stable: accepts {percent(ours, theirs)} of what stable does, "
            f"limit {100 * evidence.limit:.0f} %"
            if theirs
            else f"acceptance length {1 + ours:.2f} tokens per step on the candidate, 1.00 on "
            f"stable, limit {100 * evidence.limit:.0f} % of stable's accepted tokens"
        )
    return _verdict(
        MetricName.ACCEPTANCE_LENGTH,
        worse_reason=Reason.ACCEPTANCE_WORSE,
        failed=failed,
        worse=evidence.worse,
        not_worse=evidence.not_worse,
        needed=(needed_worse, needed_not_worse),
        blocks=evidence.blocks,
        figures=figures,
        outside=outside,
        counts=f"{total.candidate_exposure:,.0f} candidate steps",
        missing=f"acceptance length not measured: {missing}",
    )


def errors(
    evidence: ErrorEvidence,
    *,
    failed: bool,
    needed_worse: float,
    needed_not_worse: float,
    missing: str,
) -> MetricVerdict:
    """The verdict on failed requests; `missing` says why there is none, if there is no block."""
    total = evidence.total
    figures = (
        f"errors {total.candidate_hits:,.0f} of {total.candidate_exposure:,.0f} requests "
        f"({percent(total.candidate_hits, total.candidate_exposure)}) on the candidate, "
        f"{total.control_hits:,.0f} of {total.control_exposure:,.0f} "
        f"({percent(total.control_hits, total.control_exposure)}) on stable, limit "
        f"{100 * evidence.limit:.0f} % or twice stable's"
        if total.control_exposure
        else f"errors {total.candidate_hits:,.0f} of {total.candidate_exposure:,.0f} requests "
        f"({percent(total.candidate_hits, total.candidate_exposure)}), limit "
        f"{100 * evidence.limit:.0f} % (there is no old revision to compare with)"
    )
    return _verdict(
        MetricName.ERROR_RATE,
        worse_reason=Reason.ERRORS_WORSE,
        failed=failed,
        worse=evidence.worse,
        not_worse=evidence.not_worse,
        needed=(needed_worse, needed_not_worse),
        blocks=evidence.blocks,
        figures=figures,
        outside=_errors_outside(evidence),
        counts=f"{total.candidate_exposure:,.0f} candidate requests",
        missing=f"errors not measured: {missing}",
    )


def latency(
    evidence: LatencyEvidence, *, failed: bool, needed_worse: float, needed_not_worse: float
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
        failed=failed,
        worse=evidence.worse,
        not_worse=evidence.not_worse,
        needed=(needed_worse, needed_not_worse),
        blocks=evidence.blocks,
        figures=figures,
        outside=any(_slow_outside(test) for test in evidence.tests),
        counts=f"{total.candidate_exposure:,.0f} candidate observations",
        missing=f"{evidence.name} not measured: {evidence.missing}",
    )


def _bound_words(test: SlowTest) -> str:
    words = f"{100 * test.limit:.0f} %"
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
    failed: bool,
    worse: float,
    not_worse: float,
    needed: tuple[float, float],
    blocks: int,
    figures: str,
    counts: str,
    missing: str,
    outside: bool,
) -> MetricVerdict:
    if failed:
        outcome, reason = Outcome.FAILED, worse_reason
        text = (
            f"{figures}. Evidence of worse {one_in(worse)} (needed {one_in(needed[0])}): a "
            "candidate within the limit would look this bad, at any time in the rollout, in "
            f"fewer than {one_in(worse)} rollouts. {_blocks(blocks)}, {counts}"
        )
    elif not blocks:
        outcome, reason, text = Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, missing
    else:
        passed = not_worse >= needed[1]
        outcome = Outcome.PASSED if passed else Outcome.INCONCLUSIVE
        reason = Reason.NOT_WORSE if passed else Reason.ANALYSIS_INCONCLUSIVE
        text = (
            f"{figures}. Not worse {one_in(not_worse)} (needs {one_in(needed[1])}), worse "
            f"{one_in(worse)} (needs {one_in(needed[0])}). {_blocks(blocks)}, {counts}"
        )
    return MetricVerdict(
        name=name.value,
        outcome=outcome,
        reason=reason,
        worse=worse,
        not_worse=not_worse,
        needed_worse=needed[0],
        needed_not_worse=needed[1],
        measured=blocks > 0,
        message=text,
        outside_limit=outside,
    )


def _errors_outside(evidence: ErrorEvidence) -> bool:
    """Whether the plain error share is beyond the limit; one or two failures say nothing."""
    total = evidence.total
    if total.candidate_hits < FAILURES_THAT_SAY_SOMETHING or total.candidate_exposure <= 0:
        return False
    ours = total.candidate_hits / total.candidate_exposure
    theirs = total.control_hits / total.control_exposure if total.control_exposure else 0.0
    return ours > max(evidence.limit, 2 * theirs)


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
