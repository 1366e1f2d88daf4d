"""How often, and how soon, a canary is rolled back: `python bench/analysis.py SECONDS`.

Simulates whole rollouts (one hour, a look each 5 s) against the shipped
evidence, as many as fit into SECONDS, and prints a table; the same figures go
to build/bench-analysis.json. Model: requests of 120 tokens on average with an
acceptance of their own (Beta, concentration 6), half of whose tokens fall into
the next look; load moves by 30 %, acceptance drifts by 5 %; errors come in pairs;
one run in five has a minute in which 20 % fail on both arms.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis.sequential import Contrast
from speculative_operator.analysis.verdict import begin
from speculative_operator.analysis.windows import BLOCK_REQUESTS, BLOCK_SECONDS

Array = NDArray[np.float64]
LOOK_SECONDS = 5.0
TOKENS_PER_STEP_DRAFTED = 4
REPORT = Path("build/bench-analysis.json")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the candidate does, relative to stable; rates per second, shares between 0 and 1."""

    name: str
    requests_per_second: float
    canary: float = 0.05
    acceptance: float = 0.70
    candidate_factor: float = 1.0
    """Candidate's accepted tokens per step, as a factor of stable's."""
    errors: float = 0.001
    candidate_errors: float = 0.001
    hours: float = 1.0


SCENARIOS = (
    Scenario("A/A, 2 req/s", 2),
    Scenario("A/A, 10 req/s", 10),
    Scenario("A/A, 50 req/s", 50),
    Scenario("at the limits, 10 req/s", 10, candidate_factor=0.9, candidate_errors=0.01),
    Scenario("at the limits, 50 req/s", 50, candidate_factor=0.9, candidate_errors=0.01),
    Scenario("acceptance halved, 10 req/s", 10, candidate_factor=0.5),
    Scenario("acceptance halved, 50 req/s", 50, candidate_factor=0.5),
    Scenario("acceptance .70 -> .55, 10 req/s", 10, candidate_factor=0.55 / 0.70),
    Scenario("acceptance .70 -> .55, 50 req/s", 50, candidate_factor=0.55 / 0.70),
    Scenario("errors 20 %, 10 req/s", 10, candidate_errors=0.20),
    Scenario("errors 20 %, canary 50 %, 50 req/s", 50, canary=0.5, candidate_errors=0.20),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One rollout: seconds and candidate requests to the rollback, or None."""

    seconds: float | None
    requests: int
    metric: str


def _arm(
    rng: np.random.Generator, scenario: Scenario, *, share: float, factor: float, errors: Array
) -> Array:
    """Rows of requests, accepted, steps and failed, per look."""
    looks = len(errors)
    now = np.arange(looks) * LOOK_SECONDS
    load = 1 + 0.3 * np.sin(now / 300)
    drift = 1 + 0.05 * np.sin(now / 700)
    mean = scenario.requests_per_second * share * LOOK_SECONDS * load
    requests = rng.poisson(mean)
    which = np.repeat(np.arange(looks), requests)
    tokens = np.maximum(8.0, rng.gamma(2, 60, len(which)))
    p = scenario.acceptance
    per_step = TOKENS_PER_STEP_DRAFTED * rng.beta(6 * p, 6 * (1 - p), len(which))
    # Stable's pooled ratio stays what it is; the candidate's is exactly `factor` of it.
    steps = tokens / (1 + per_step)
    accepted = per_step * steps * factor * drift[which]
    halves = [np.bincount(which, weights, looks) / 2 for weights in (accepted, steps)]
    accepted_sum, steps_sum = (half + np.concatenate(([0.0], half[:-1])) for half in halves)
    pairs = rng.binomial(requests // 2, errors)
    return np.array([requests, accepted_sum, steps_sum, 2.0 * pairs], dtype=np.float64)


def simulate(rng: np.random.Generator, scenario: Scenario) -> Run:
    """One rollout, until it is rolled back or its time is over."""
    looks = int(scenario.hours * 3600 / LOOK_SECONDS)
    incident = np.zeros(looks)
    if rng.random() < 0.2:
        first = int(rng.integers(0, looks))
        incident[first : first + 12] = 0.20
    arms = [
        _arm(rng, scenario, share=share, factor=factor, errors=np.maximum(incident, errors))
        for share, factor, errors in (
            (scenario.canary, scenario.candidate_factor, scenario.candidate_errors),
            (1 - scenario.canary, 1.0, scenario.errors),
        )
    ]
    sums = np.cumsum(np.array(arms), axis=2)
    evidence = begin("bench", Analysis(), at=0.0)
    acceptance, errors = evidence.acceptance, evidence.errors
    began, before = 0.0, np.zeros((2, 4))
    for look in range(looks):
        at = (look + 1) * LOOK_SECONDS
        gained = sums[:, :, look] - before
        if at - began < BLOCK_SECONDS or min(gained[:, 0]) < BLOCK_REQUESTS:
            continue
        began, before = at, sums[:, :, look]
        (requests, accepted, steps, bad), (other, others, their_steps, their_bad) = gained.tolist()
        acceptance = acceptance.add(Contrast(accepted, steps, others, their_steps))
        errors = errors.add(Contrast(bad, requests, their_bad, other))
        for metric, worse in (("acceptance", acceptance.worse), ("errors", errors.worse)):
            if worse >= evidence.needed_worse:
                return Run(at, int(sums[0, 0, look]), metric)
    return Run(None, int(sums[0, 0, -1]), "")


@dataclass(frozen=True, slots=True)
class Row:
    """What a scenario came to; seconds and requests over the runs that were rolled back."""

    name: str
    runs: int
    rolled_back_percent: float
    mean_seconds: float | None
    p95_seconds: float | None
    mean_requests: float | None


def measure(scenario: Scenario, *, seconds: float, seed: int = 1) -> Row:
    """As many runs as fit into `seconds`, at least one."""
    rng = np.random.default_rng(seed)
    end = time.monotonic() + seconds
    runs = [simulate(rng, scenario)]
    while time.monotonic() < end:
        runs.append(simulate(rng, scenario))
    back = [run for run in runs if run.seconds is not None]
    times = [run.seconds for run in back if run.seconds is not None]
    return Row(
        name=scenario.name,
        runs=len(runs),
        rolled_back_percent=100 * len(back) / len(runs),
        mean_seconds=float(np.mean(times)) if times else None,
        p95_seconds=float(np.percentile(times, 95)) if times else None,
        mean_requests=float(np.mean([run.requests for run in back])) if back else None,
    )


def main() -> None:
    """Runs every scenario for an equal part of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=120.0)
    total = parser.parse_args().seconds
    print(f"{'scenario':38} {'runs':>6} {'rolled back':>12} {'mean s':>8} {'p95 s':>7} {'req':>6}")
    rows = []
    for scenario in SCENARIOS:
        row = measure(scenario, seconds=total / len(SCENARIOS))
        rows.append(asdict(row))
        figures = [
            "-" if value is None else f"{value:.0f}"
            for value in (row.mean_seconds, row.p95_seconds, row.mean_requests)
        ]
        print(
            f"{row.name:38} {row.runs:6} {row.rolled_back_percent:10.2f} % "
            f"{figures[0]:>8} {figures[1]:>7} {figures[2]:>6}",
            flush=True,
        )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"seconds": total, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
