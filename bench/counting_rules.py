"""PURE: rules that count bad measurements, tuned by simulation to a false-rollback rate.

As the neighbours do it: Flagger adds up failed checks, never reset by a good
one; Argo fails on the (limit + 1)-th failed measurement. Each measurement is
the ratio of both arms' accepted tokens per step over the last interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from bench.analysis_model import ACCEPTED, LOOK_SECONDS, STEPS, Array


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


def ratios(rule: Rule, run: Array) -> Array:
    """Candidate's accepted tokens per step over stable's, per interval; NaN without data."""
    width = int(rule.interval_seconds / LOOK_SECONDS)
    whole = run.shape[2] // width * width
    sums = run[:, :, :whole].reshape(2, run.shape[1], -1, width).sum(axis=3)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = sums[:, ACCEPTED] / sums[:, STEPS]
        found: Array = rate[0] / rate[1]
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
