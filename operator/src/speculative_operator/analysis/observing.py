"""One more look at a trial: what it adds to the evidence of every metric.

In: a `Sample`. Out: the next `Evidence`, with who failed latched. `verdict`
puts it into words. Pure.
"""

from collections.abc import Callable
from dataclasses import replace
from operator import sub
from typing import Any, Final

from speculative_api.v1alpha1 import MetricName
from speculative_api.worker import Digest
from speculative_operator.analysis import kinds, latency, queried, restarts, speed
from speculative_operator.analysis.contrast import spread_of
from speculative_operator.analysis.evidence import Evidence
from speculative_operator.analysis.messages import errors_outside
from speculative_operator.analysis.sequential import Contrast
from speculative_operator.analysis.windows import (
    ALONE,
    CANDIDATE,
    CONTROL,
    Block,
    Counters,
    Reading,
    Sample,
    Window,
    advance,
    gateway_readings,
    longest_draft,
    steps_of,
    worker_readings,
)

CLIENT_STAKE: Final = 0.1
"""Part of the evidence of ErrorRate that 4xx have. A mean of two e-values is one, so that the two
share one test."""
CLIENT_POINTS_TO_WORSE: Final = 3.0
"""Evidence of 4xx from which errors are not shown 'not worse'."""


def observe(evidence: Evidence, sample: Sample) -> Evidence:
    """The evidence after one more look.

    The same look twice changes nothing. A metric that failed takes no more data.
    """
    failed = evidence.failed
    changes: dict[str, Any] = {
        "methods": _methods(evidence.methods, sample),
        "sticky": sample.sticky,
        "alone": sample.arms == ALONE,
        "weight": sample.weight,
        "problem": sample.problem,
        "rate_missing": "" if evidence.rate is None else why_no_rate(sample),
        "latencies": latency.observe(evidence.latencies, sample, failed=failed),
    }
    if evidence.speed is not None and MetricName.TOKENS_PER_SECOND not in failed:
        changes["speed"] = speed.observe(evidence.speed, sample)
    if evidence.restarts is not None:
        changes["restarts"] = restarts.observe(evidence.restarts, sample)
    changes["queries"] = tuple(
        found
        if found.name in failed
        else queried.observe(
            found,
            sample.measurements.get(found.name),
            at=sample.at,
            period_seconds=sample.period_seconds,
        )
        for found in evidence.queries
    )
    changes |= _acceptance(evidence, sample, rate_missing=changes["rate_missing"])
    changes |= _errors(evidence, sample)
    # One copy for all: copies were a third of what a look cost.
    return _latched(replace(evidence, **changes))


def _acceptance(evidence: Evidence, sample: Sample, *, rate_missing: str) -> dict[str, Any]:
    readings = worker_readings(sample.pods, candidate=sample.candidate, control=sample.control)
    present = {pod.uid for pod in sample.pods if not pod.terminating}
    begun = evidence.acceptance.blocks > 0

    def drafts(block: Block) -> bool:
        """Nothing drafted yet is nothing to judge (short prompts); the block stays open."""
        return begun or block.candidate[3] > 0

    window, block = _look(evidence.workers, readings, sample, present, drafts)
    if block is None:
        return {"workers": window}
    changes: dict[str, Any] = {"workers": window}
    _, _, accepted, drafted = block.candidate
    _, _, control_accepted, control_drafted = block.control
    if MetricName.ACCEPTANCE_LENGTH not in evidence.failed:
        longest = _longest_drafts(sample)
        contrast = Contrast(
            accepted,
            steps_of(block.candidate, longest[CANDIDATE]),
            control_accepted,
            steps_of(block.control, longest[CONTROL]),
        )
        changes["least_acceptance"] = evidence.least_acceptance.add(contrast)
        if sample.arms != ALONE:
            pods = ((pod[2], steps_of(pod, longest[CONTROL])) for pod in block.pods)
            changes["acceptance"] = evidence.acceptance.add(contrast, spread=spread_of(pods))
    rate = evidence.rate
    if rate and not rate_missing and MetricName.ACCEPTANCE_RATE not in evidence.failed:
        rates = Contrast(accepted, drafted, control_accepted, control_drafted)
        spread = spread_of((ours, all_) for _, _, ours, all_ in block.pods)
        changes["rate"] = rate.add(rates, spread=spread)
    return changes


def _longest_drafts(sample: Sample) -> dict[str, int | None]:
    """Tokens of a draft at most, by arm; None where its engines do not say what they draft."""
    found: dict[str, list[Digest]] = {CANDIDATE: [], CONTROL: []}
    for pod in sample.pods:
        arm = sample.arm(pod.revision)
        if arm is not None and pod.digest is not None and not pod.terminating:
            found[arm].append(pod.digest)
    return {arm: longest_draft(digests) for arm, digests in found.items()}


def _errors(evidence: Evidence, sample: Sample) -> dict[str, Any]:
    readings = gateway_readings(
        sample.gateways,
        candidate=sample.candidate,
        control=sample.control,
        shadow=sample.shadow,
    )
    present = {pod.uid for pod in sample.gateways if not pod.terminating}
    window, block = _look(evidence.gateways, readings, sample, present, lambda _: True)
    before = evidence.gateways
    changes: dict[str, Any] = {
        "gateways": window,
        "failing": evidence.failing.add(
            _answered(before.candidate, window.candidate),
            _answered(before.control, window.control),
            at=sample.at,
            alone=sample.arms == ALONE,
        ),
    }
    if MetricName.ERROR_RATE in evidence.failed:
        return changes
    changes["kinds"] = kinds.observe(evidence.kinds, sample, errors=evidence.errors)
    if block is None:
        return changes
    ours, theirs = evidence.carried
    candidate, ours = _failures(block.candidate, ours)
    control, theirs = _failures(block.control, theirs)
    contrast = Contrast(candidate, block.candidate[0], control, block.control[0])
    changes["carried"] = (ours, theirs)
    changes["errors"] = evidence.errors.add(contrast, alone=sample.arms == ALONE)
    if not sample.sticky:
        refused = Contrast(
            block.candidate[3], block.candidate[0], block.control[3], block.control[0]
        )
        changes["client_errors"] = evidence.client_errors.add(refused)
    return changes


def _look(
    window: Window,
    readings: list[Reading],
    sample: Sample,
    present: set[str],
    closable: Callable[[Block], bool],
) -> tuple[Window, Block | None]:
    return advance(
        window,
        readings,
        at=sample.at,
        weight=sample.weight,
        present=present,
        closable=closable,
        silent_seconds=sample.silent_seconds,
        arms=sample.arms,
    )


def _answered(before: Counters, after: Counters) -> tuple[int, int]:
    """Requests since a look, and how many of them failed."""
    requests, errors, cut, _ = map(sub, after, before)
    return requests, errors + cut


def _failures(counters: tuple[int, ...], carried: int) -> tuple[int, int]:
    """Failures of this block, at most its responses, and what is left for the next."""
    failures = counters[1] + counters[2] + carried
    now = min(failures, counters[0])
    return now, failures - now


def _latched(evidence: Evidence) -> Evidence:
    values: dict[str, float] = {
        MetricName.ACCEPTANCE_LENGTH: acceptance_sides(evidence)[0],
        MetricName.ERROR_RATE: error_sides(evidence)[0],
        **{found.name: found.worse for found in evidence.latencies},
    }
    if evidence.rate is not None:
        values[MetricName.ACCEPTANCE_RATE] = evidence.rate.worse
    if evidence.speed is not None:
        values[MetricName.TOKENS_PER_SECOND] = evidence.speed.worse
    if evidence.restarts is not None:
        failed_now = evidence.restarts.failed
        values[MetricName.RESTARTS] = evidence.needed_worse if failed_now else 1.0
    for found in evidence.queries:
        values[found.name] = evidence.needed_worse if found.failed else 1.0
    failed = tuple(
        name
        for name in evidence.metrics
        if name in evidence.failed or values[name] >= evidence.needed_worse
    )
    return evidence if failed == evidence.failed else replace(evidence, failed=failed)


def _methods(before: tuple[str, str], sample: Sample) -> tuple[str, str]:
    latest = {CANDIDATE: before[0], CONTROL: before[1]}
    arms = {sample.candidate: CANDIDATE, sample.control: CONTROL}
    for pod in sample.pods:
        if pod.digest is not None and pod.revision in arms and not pod.terminating:
            latest[arms[pod.revision]] = pod.digest.method
    return latest[CANDIDATE], latest[CONTROL]


def acceptance_sides(evidence: Evidence) -> tuple[float, float]:
    """E-values (worse, not worse) of AcceptanceLength with all its bounds."""
    bound = evidence.least_acceptance
    if evidence.alone:
        return (bound.worse, bound.not_worse) if bound.tests else (1.0, 1.0)
    return (
        max(evidence.acceptance.worse, bound.worse),
        min(evidence.acceptance.not_worse, bound.not_worse),
    )


def error_sides(evidence: Evidence) -> tuple[float, float]:
    """E-values (worse, not worse) of ErrorRate, 4xx and kinds of requests included."""
    refused = evidence.client_errors
    of_all = kinds.left(evidence.kinds) * evidence.errors.worse
    of_all += sum(kind.stake * kind.worse for kind in evidence.kinds)
    worse = (1 - CLIENT_STAKE) * of_all + CLIENT_STAKE * refused.worse
    shown = evidence.errors.not_worse
    if (
        refused.worse >= CLIENT_POINTS_TO_WORSE
        or errors_outside(refused)
        or any(kind.is_outside for kind in evidence.kinds)
    ):
        shown = 0.0
    return worse, shown


def why_no_rate(sample: Sample) -> str:
    """Why accepted of drafted can't be compared: only like drafting has like rates."""
    found: dict[str, set[tuple[str, int | None]]] = {CANDIDATE: set(), CONTROL: set()}
    for pod in sample.pods:
        arm, digest = sample.arm(pod.revision), pod.digest
        if arm is None or pod.terminating or digest is None:
            continue
        found[arm].add((digest.method, digest.num_speculative_tokens))
        if digest.draft_tokens is None:
            return f"{pod.name} does not count what it drafts"
    for arm, words in ((CANDIDATE, "the candidate"), (CONTROL, "stable")):
        if arm in sample.arms and not found[arm]:
            return f"no digest from {words} yet"
    (method, tokens), *more = sorted(found[CANDIDATE] | found[CONTROL], key=str)
    if more:
        said = ", ".join(f"{each} with {k} draft tokens" for each, k in [(method, tokens), *more])
        return f"rates compare only at the same method and numSpeculativeTokens, not {said}"
    if method == "None":
        return "neither revision speculates"
    return "" if tokens is not None else "the engines do not say how many tokens they draft"
