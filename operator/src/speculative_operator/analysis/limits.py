"""Evidence of a trial at its start: which metrics, which limits, how much is needed.

In: `Analysis` as the user wrote it. Out: `Evidence` without any evidence yet.
Limits are frozen here; other limits are another trial. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypedDict

from speculative_api.v1alpha1 import Analysis, MetricCheck, MetricName
from speculative_api.v1alpha1.percent import share_of
from speculative_operator.analysis import failing, latency, queried, speed
from speculative_operator.analysis.bounds import Floors
from speculative_operator.analysis.evidence import Evidence
from speculative_operator.analysis.failing import FailingRun
from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.restarts import RestartEvidence
from speculative_operator.analysis.sequential import MeanEvidence
from speculative_operator.analysis.speed import SpeedEvidence
from speculative_operator.analysis.windows import Window

MIN_PERCENT_OF_STABLE: Final = 90
"""Default acceptance limit: tighter costs time, 95 is safe too (recipe, section 5.3)."""
MAX_ERROR_PERCENT: Final = 1
"""Default error limit in percent of requests."""

WORKER_WIDTH: Final = 4
GATEWAY_WIDTH: Final = 4


class _Others(TypedDict):
    rate: Floors | None
    speed: SpeedEvidence | None
    restarts: RestartEvidence | None


def begin(trial: str, analysis: Analysis, *, at: float, trials: int = 1) -> Evidence:
    """A trial with no evidence yet. `at` is unix seconds.

    The chance of a false rollback is shared equally by the tests of all
    `trials` of the rollout (union bound: 2 where a guard follows the canary),
    so each needs number of tests / chance. A metric is one test, a
    latency with an absolute bound two; a dry run counts, so that acting on it
    later moves no other metric's threshold. The hard guard has a small part of
    its own (`failing.SHARE`), whatever the metrics are.
    """
    names = tuple(str(check.name) for check in analysis.metrics)
    checks = {check.name: check for check in analysis.metrics}
    latencies = tuple(
        latency.begin(check) for check in analysis.metrics if check.name in latency.FIELDS
    )
    errors = _percent(checks.get(MetricName.ERROR_RATE), "max_percent", MAX_ERROR_PERCENT)
    chance = 100.0 * trials / float(analysis.max_false_rollback_percent)
    fresh = Evidence(
        trial=trial,
        began_at=at,
        metrics=names,
        needed_worse=0.0,
        workers=Window.empty(WORKER_WIDTH),
        gateways=Window.empty(GATEWAY_WIDTH),
        acceptance=MeanEvidence(limit=_least(checks.get(MetricName.ACCEPTANCE_LENGTH))),
        errors=ErrorEvidence(limit=errors),
        client_errors=ErrorEvidence(limit=errors),
        kinds=(),
        failing=FailingRun(limit=errors, needed=chance / failing.SHARE),
        least_acceptance=_least_acceptance(checks.get(MetricName.ACCEPTANCE_LENGTH)),
        latencies=latencies,
        queries=tuple(
            queried.begin(check.name, check.prometheus, at=at)
            for check in analysis.metrics
            if check.prometheus is not None
        ),
        dry_run=tuple(str(check.name) for check in analysis.metrics if is_advisory(check)),
        **_others(checks),
    )
    return replace(fresh, needed_worse=chance * _tests(fresh) / (1 - failing.SHARE))


def _others(checks: Mapping[str, MetricCheck]) -> _Others:
    """The metrics that are judged only where they are asked for."""
    rate = checks.get(MetricName.ACCEPTANCE_RATE)
    fast = checks.get(MetricName.TOKENS_PER_SECOND)
    crash = checks.get(MetricName.RESTARTS)
    absolute = None if rate is None or rate.min_percent is None else share_of(rate.min_percent)
    return {
        "rate": None
        if rate is None
        else Floors.of(rate.name, factor=_least(rate), absolute=absolute),
        "speed": None if fast is None else _speed(fast),
        "restarts": None if crash is None else RestartEvidence(limit=crash.max_restarts or 0),
    }


def _speed(check: MetricCheck) -> SpeedEvidence:
    least = None if check.min is None else float(check.min)
    return speed.begin(check.name, factor=_least(check), least=least)


def _percent(check: MetricCheck | None, field: str, default: int) -> float:
    value: int | str | None = getattr(check, field, None)
    return share_of(default if value is None else value)


def _least(check: MetricCheck | None) -> float:
    """The factor on stable's that is asked for."""
    return _percent(check, "min_percent_of_stable", MIN_PERCENT_OF_STABLE)


def _least_acceptance(check: MetricCheck | None) -> Floors:
    """The bound on accepted tokens per step: the token that every step yields is not among them."""
    least = None if check is None or check.min is None else float(check.min) - 1
    return Floors.of(MetricName.ACCEPTANCE_LENGTH, factor=None, absolute=least)


def _tests(evidence: Evidence) -> int:
    """How many tests share the chance of a false rollback; what is only counted is none."""
    found = len(evidence.metrics) - len(evidence.latencies) - len(evidence.queries)
    found -= evidence.restarts is not None
    found += sum(len(each.tests) for each in evidence.latencies)
    found += len(evidence.least_acceptance.tests)
    if evidence.rate is not None:
        found += len(evidence.rate.tests) - 1
    if evidence.speed is not None:
        found += len(evidence.speed.absolute.tests)
    return max(found, 1)


def is_advisory(check: MetricCheck) -> bool:
    """Whether a metric is only shown; whole requests are unless one says otherwise.

    A revision that answers at more length takes longer and is no worse for it.
    """
    if check.dry_run is not None:
        return check.dry_run
    return check.name == MetricName.END_TO_END_LATENCY


def continues(evidence: Evidence, trial: str, analysis: Analysis, *, trials: int = 1) -> bool:
    """Whether the evidence belongs to this trial and these limits; if not, begin anew."""
    fresh = begin(trial, analysis, at=evidence.began_at, trials=trials)
    return (
        evidence.trial == fresh.trial
        and evidence.metrics == fresh.metrics
        and evidence.needed_worse == fresh.needed_worse
        and evidence.acceptance.limit == fresh.acceptance.limit
        and evidence.errors.limit == fresh.errors.limit
        and evidence.least_acceptance.limits == fresh.least_acceptance.limits
        and (evidence.rate and evidence.rate.limits) == (fresh.rate and fresh.rate.limits)
        and (evidence.speed and evidence.speed.limits) == (fresh.speed and fresh.speed.limits)
        and (evidence.restarts and evidence.restarts.limit)
        == (fresh.restarts and fresh.restarts.limit)
        and [x.limits for x in evidence.queries] == [x.limits for x in fresh.queries]
        and evidence.dry_run == fresh.dry_run
        and [x.limits for x in evidence.latencies] == [x.limits for x in fresh.latencies]
    )
