"""Rules that count bad measurements, tuned by simulation to a false-rollback rate.

As the neighbours do it: Flagger adds up failed checks, never reset by a good
one; Argo fails on the (limit + 1)-th failed measurement. Each measurement is
the ratio of both arms' accepted tokens per step over the last interval.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.analysis_batch import FIVE_TESTS, judged_together
from bench.analysis_model import ACCEPTED, LOOK_SECONDS, STEPS, Array, Scenario, simulated

from speculative_api.v1alpha1 import Analysis, MetricCheck, MetricName


@dataclass(frozen=True, slots=True)
class Rule:
    """Rolls back at the `failures`-th interval below the limit."""

    name: str
    interval_seconds: float
    failures: int


RULES = (
    Rule("Flagger-like, 60 s, 5 failures", 60, 5),
    Rule("Flagger-like, 10 s, 5 failures", 10, 5),
    Rule("Argo-like, 30 s, failureLimit 3", 30, 4),
)


def ratios(rule: Rule, arms: Array) -> Array:
    """Candidate's accepted tokens per step over stable's, by run and interval; NaN without data.

    `arms` are those of `Rollouts`.
    """
    width = int(rule.interval_seconds / LOOK_SECONDS)
    whole = arms.shape[0] // width * width
    sums = arms[:whole].reshape(-1, width, *arms.shape[1:]).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = sums[..., ACCEPTED] / sums[..., STEPS]
        found: Array = (rate[:, :, 0] / rate[:, :, 1]).T
    return found


def seconds_to_rollback(rule: Rule, found: Array, limit: float) -> float | None:
    """When the rule has counted enough; no data is no failure."""
    below = np.nonzero(found < limit)[0]
    if len(below) < rule.failures:
        return None
    return float((below[rule.failures - 1] + 1) * rule.interval_seconds)


def tuned_limit(rule: Rule, same: Sequence[Array], *, chance: float) -> float:
    """The tightest limit at which at most `chance` of the A/A runs are rolled back."""
    worst = sorted(float(np.sort(run)[rule.failures - 1]) for run in same)
    allowed = int(chance * len(worst))
    return worst[allowed]


def acceptance_at(percent: int) -> Analysis:
    """The shipped rules with another acceptance limit, at a fifth of the chance."""
    checks = [check.model_copy() for check in FIVE_TESTS.metrics]
    checks[0] = MetricCheck(name=MetricName.ACCEPTANCE_LENGTH, min_percent_of_stable=percent)
    return Analysis(metrics=checks)


def compared(
    requests_per_second: float,
    generator: Callable[[str, int], np.random.Generator],
    *,
    runs: int,
) -> list[dict[str, Any]]:
    """Counting rules tuned to 1 % of A/A runs rolled back, and ours, on the same rollouts."""
    kinds = {"same": 1.0, "halved": 0.5, ".55": 0.55 / 0.70}
    made = {
        kind: simulated(
            generator(f"{kind} {requests_per_second}", 0),
            Scenario(kind, requests_per_second, accepts=factor),
            runs=runs,
        )
        for kind, factor in kinds.items()
    }
    rows = []
    for rule in RULES:
        same = list(ratios(rule, made["same"].arms))
        limit = tuned_limit(rule, same, chance=0.01)
        untuned = [seconds_to_rollback(rule, run, 0.9) is not None for run in same]
        times = {
            kind: [seconds_to_rollback(rule, run, limit) for run in ratios(rule, made[kind].arms)]
            for kind in ("halved", ".55")
        }
        rows.append(_row(rule.name, limit, untuned, times))
    for percent in (90, 100):
        analysis = acceptance_at(percent)
        seconds = {
            kind: [
                None if np.isnan(each) else float(each)
                for each in judged_together(rollouts, analysis=analysis).seconds
            ]
            for kind, rollouts in made.items()
        }
        false = [each is not None for each in seconds["same"]]
        rows.append(_row(f"ours, limit {percent} %", percent / 100, false, seconds))
    return [{"requests_per_second": requests_per_second, "runs": runs} | row for row in rows]


def _row(
    rule: str, limit: float, false: Iterable[bool], times: dict[str, list[float | None]]
) -> dict[str, Any]:
    return {
        "rule": rule,
        "false_at_90_percent": 100 * float(np.mean(list(false))),
        "tuned_limit": limit,
        "halved": _times(times["halved"]),
        ".55": _times(times[".55"]),
    }


def _times(times: list[float | None]) -> dict[str, float | None]:
    known = [each for each in times if each is not None]
    return {
        "found_percent": 100 * len(known) / len(times),
        "mean_seconds": float(np.mean(known)) if known else None,
        "p95_seconds": float(np.percentile(known, 95)) if known else None,
    }
