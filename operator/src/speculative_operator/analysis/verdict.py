"""The evidence of one trial: begun once, fed with every look, read at any moment.

In: `Sample`s, one per look, from whoever keeps the trial (`reconcile`). Out: an
`Assessment` for `rollout`. `Evidence` is opaque to both; it survives a restart
of the operator through `to_json` and `from_json`, bit by bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from speculative_api.v1alpha1 import Analysis, MetricCheck, MetricName
from speculative_operator.analysis import latency, messages
from speculative_operator.analysis.latency import LatencyEvidence
from speculative_operator.analysis.sequential import Contrast, ErrorEvidence, MeanEvidence
from speculative_operator.analysis.windows import (
    ALONE,
    CANDIDATE,
    CONTROL,
    Block,
    Reading,
    Sample,
    Window,
    advance,
    gateway_readings,
    worker_readings,
)
from speculative_operator.decision import Assessment, MetricVerdict

__all__ = ["Evidence", "Sample", "assess", "begin", "continues", "observe"]

SCHEMA: Final = 1
MIN_PERCENT_OF_STABLE: Final = 90
"""Default acceptance limit: tighter costs time, 95 is safe too (recipe, section 5.3)."""
MAX_ERROR_PERCENT: Final = 1
"""Default error limit in percent of requests."""
NEEDED_NOT_WORSE: Final = 20.0
"""Evidence for 'not worse': 5 % per metric. Advancing needs every metric, so no correction."""

WORKER_WIDTH: Final = 4
GATEWAY_WIDTH: Final = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is remembered of a trial. Limits and thresholds are frozen at its start."""

    trial: str
    began_at: float
    metrics: tuple[str, ...]
    needed_worse: float
    workers: Window
    gateways: Window
    acceptance: MeanEvidence
    errors: ErrorEvidence
    failed_requests: int = 0
    """Candidate requests that failed since the beginning."""
    carried: tuple[int, int] = (0, 0)
    """Failures (candidate, control) whose answer began in an earlier block: a stream that is cut
    counts as a response when it begins and as a failure when it breaks."""
    methods: tuple[str, str] = ("", "")
    """Last seen method of candidate and control; empty: no digest yet."""
    latencies: tuple[LatencyEvidence, ...] = ()
    dry_run: tuple[str, ...] = ()
    """Metrics that are judged and shown, and never acted on."""
    alone: bool = False
    """There is no control: only absolute bounds are judged."""
    failed: tuple[str, ...] = ()
    """Metrics that reached `needed_worse`; they stay failed and take no more data."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` of a parsed dump gives back an equal value."""
        return {
            "schema": SCHEMA,
            "trial": self.trial,
            "beganAt": self.began_at,
            "metrics": list(self.metrics),
            "neededWorse": self.needed_worse,
            "workers": self.workers.to_json(),
            "gateways": self.gateways.to_json(),
            "acceptance": self.acceptance.to_json(),
            "errors": self.errors.to_json(),
            "failedRequests": self.failed_requests,
            "carried": self.carried,
            "methods": self.methods,
            "latencies": [found.to_json() for found in self.latencies],
            "dryRun": self.dry_run,
            "alone": self.alone,
            "failed": self.failed,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Evidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"evidence of schema {data['schema']}, {SCHEMA} is known")
        return cls(
            trial=data["trial"],
            began_at=data["beganAt"],
            metrics=tuple(data["metrics"]),
            needed_worse=data["neededWorse"],
            workers=Window.from_json(data["workers"]),
            gateways=Window.from_json(data["gateways"]),
            acceptance=MeanEvidence.from_json(data["acceptance"]),
            errors=ErrorEvidence.from_json(data["errors"]),
            failed_requests=data["failedRequests"],
            carried=(data["carried"][0], data["carried"][1]),
            methods=(data["methods"][0], data["methods"][1]),
            latencies=tuple(LatencyEvidence.from_json(x) for x in data.get("latencies", [])),
            dry_run=tuple(data.get("dryRun", [])),
            alone=data.get("alone", False),
            failed=tuple(data["failed"]),
        )


def begin(trial: str, analysis: Analysis, *, at: float, trials: int = 1) -> Evidence:
    """A trial with no evidence yet. `at` is unix seconds.

    The chance of a false rollback is shared equally by the tests of all
    `trials` of the rollout (union bound: 2 where a guard follows the canary),
    so each needs number of tests / chance. A metric is one test, a
    latency with an absolute bound two; a dry run counts, so that acting on it
    later moves no other metric's threshold.
    """
    acceptance, errors = MIN_PERCENT_OF_STABLE, MAX_ERROR_PERCENT
    for check in analysis.metrics:
        if check.min_percent_of_stable is not None:
            acceptance = check.min_percent_of_stable
        if check.max_percent is not None:
            errors = check.max_percent
    names = tuple(check.name.value for check in analysis.metrics)
    latencies = tuple(
        latency.begin(check) for check in analysis.metrics if check.name in latency.FIELDS
    )
    tests = len(names) - len(latencies) + sum(len(found.tests) for found in latencies)
    return Evidence(
        trial=trial,
        began_at=at,
        metrics=names,
        needed_worse=100.0 * tests * trials / analysis.max_false_rollback_percent,
        workers=Window.empty(WORKER_WIDTH),
        gateways=Window.empty(GATEWAY_WIDTH),
        acceptance=MeanEvidence(limit=acceptance / 100),
        errors=ErrorEvidence(limit=errors / 100),
        latencies=latencies,
        dry_run=tuple(check.name.value for check in analysis.metrics if is_advisory(check)),
    )


def is_advisory(check: MetricCheck) -> bool:
    """Whether a metric is only shown; whole requests are unless one says otherwise.

    A revision that answers at more length takes longer and is no worse for it.
    """
    if check.dry_run is not None:
        return check.dry_run
    return check.name is MetricName.END_TO_END_LATENCY


def continues(evidence: Evidence, trial: str, analysis: Analysis, *, trials: int = 1) -> bool:
    """Whether the evidence belongs to this trial and these limits; if not, begin anew."""
    fresh = begin(trial, analysis, at=evidence.began_at, trials=trials)
    return (
        evidence.trial == fresh.trial
        and evidence.metrics == fresh.metrics
        and evidence.needed_worse == fresh.needed_worse
        and evidence.acceptance.limit == fresh.acceptance.limit
        and evidence.errors.limit == fresh.errors.limit
        and evidence.dry_run == fresh.dry_run
        and [x.limits for x in evidence.latencies] == [x.limits for x in fresh.latencies]
    )


def observe(evidence: Evidence, sample: Sample) -> Evidence:
    """The evidence after one more look.

    The same look twice changes nothing. A metric that failed takes no more data.
    """
    after = replace(evidence, alone=sample.arms == ALONE)
    after = _errors(_acceptance(after, sample), sample)
    latencies = tuple(
        found if found.name in evidence.failed else latency.observe(found, sample)
        for found in evidence.latencies
    )
    methods = _methods(evidence.methods, sample)
    return _latched(replace(after, latencies=latencies, methods=methods))


def _acceptance(evidence: Evidence, sample: Sample) -> Evidence:
    readings = worker_readings(sample.pods, candidate=sample.candidate, control=sample.control)
    present = {pod.uid for pod in sample.pods if not pod.terminating}
    begun = evidence.acceptance.blocks > 0

    def drafts(block: Block) -> bool:
        """Nothing drafted yet is nothing to judge (short prompts); the block stays open."""
        return begun or block.candidate[3] > 0

    window, block = _look(evidence.workers, readings, sample, present, drafts)
    after = replace(evidence, workers=window)
    if block is None or after.alone or MetricName.ACCEPTANCE_LENGTH in evidence.failed:
        return after
    _, generated, accepted, _ = block.candidate
    _, control_generated, control_accepted, _ = block.control
    contrast = Contrast(
        accepted, generated - accepted, control_accepted, control_generated - control_accepted
    )
    return replace(after, acceptance=evidence.acceptance.add(contrast))


def _errors(evidence: Evidence, sample: Sample) -> Evidence:
    readings = gateway_readings(sample.gateways, candidate=sample.candidate, control=sample.control)
    present = {pod.uid for pod in sample.gateways if not pod.terminating}
    window, block = _look(evidence.gateways, readings, sample, present, lambda _: True)
    after = replace(evidence, gateways=window, failed_requests=sum(window.candidate[1:]))
    if block is None or MetricName.ERROR_RATE in evidence.failed:
        return after
    ours, theirs = evidence.carried
    candidate, ours = _failures(block.candidate, ours)
    control, theirs = _failures(block.control, theirs)
    contrast = Contrast(candidate, block.candidate[0], control, block.control[0])
    return replace(
        after, carried=(ours, theirs), errors=evidence.errors.add(contrast, alone=evidence.alone)
    )


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


def _failures(counters: tuple[int, ...], carried: int) -> tuple[int, int]:
    """Failures of this block, at most its responses, and what is left for the next."""
    failures = counters[1] + counters[2] + carried
    now = min(failures, counters[0])
    return now, failures - now


def _latched(evidence: Evidence) -> Evidence:
    values: dict[str, float] = {
        MetricName.ACCEPTANCE_LENGTH: evidence.acceptance.worse,
        MetricName.ERROR_RATE: evidence.errors.worse,
        **{found.name: found.worse for found in evidence.latencies},
    }
    failed = tuple(
        name
        for name in evidence.metrics
        if name in evidence.failed or values[name] >= evidence.needed_worse
    )
    return replace(evidence, failed=failed)


def _methods(before: tuple[str, str], sample: Sample) -> tuple[str, str]:
    latest = {CANDIDATE: before[0], CONTROL: before[1]}
    arms = {sample.candidate: CANDIDATE, sample.control: CONTROL}
    for pod in sample.pods:
        if pod.digest is not None and pod.revision in arms and not pod.terminating:
            latest[arms[pod.revision]] = pod.digest.method
    return latest[CANDIDATE], latest[CONTROL]


def assess(evidence: Evidence) -> Assessment:
    """What the evidence says now. Absent data is Inconclusive, never Passed or Failed."""
    return Assessment(
        metrics=tuple(_shown(evidence, name) for name in evidence.metrics),
        candidate_requests=_requests(evidence),
        failed_requests_in_a_row=_failed_in_a_row(evidence),
    )


def _shown(evidence: Evidence, name: str) -> MetricVerdict:
    found = _verdict(evidence, name)
    if name not in evidence.dry_run:
        return found
    return replace(found, dry_run=True, message=f"dry run, not acted on: {found.message}")


def _verdict(evidence: Evidence, name: str) -> MetricVerdict:
    judged = next((found for found in evidence.latencies if found.name == name), None)
    if judged is not None:
        return messages.latency(
            judged,
            failed=name in evidence.failed,
            needed_worse=evidence.needed_worse,
            needed_not_worse=NEEDED_NOT_WORSE,
        )
    if name == MetricName.ACCEPTANCE_LENGTH:
        return messages.acceptance(
            evidence.acceptance,
            failed=name in evidence.failed,
            needed_worse=evidence.needed_worse,
            needed_not_worse=NEEDED_NOT_WORSE,
            missing=_why_no_acceptance(evidence),
        )
    return messages.errors(
        evidence.errors,
        failed=name in evidence.failed,
        needed_worse=evidence.needed_worse,
        needed_not_worse=NEEDED_NOT_WORSE,
        missing=_why_no_errors(evidence),
    )


def _requests(evidence: Evidence) -> int:
    """Counted by the gateways; by the workers as long as no gateway has answered."""
    if evidence.gateways.seen or any(evidence.gateways.candidate):
        return evidence.gateways.candidate[0]
    return evidence.workers.candidate[0]


def _failed_in_a_row(evidence: Evidence) -> int:
    responses = evidence.gateways.candidate[0]
    return evidence.failed_requests if evidence.failed_requests >= responses else 0


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
