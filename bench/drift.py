"""How often drift is called, and how soon: `python -m bench.drift [--runs N]`.

Simulated by the shipped evidence with its default blocks of 240 s: a revision's
baseline is measured, then its acceptance does what the scenario says, with 5
percent of noise from block to block, or noise that wanders for tens of minutes.
A table to read, figures in build/bench-drift.json.
"""

import argparse
import json
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.analysis.test_drift import REVISION, Serving, pods

from speculative_operator.decision import DriftQuestion

REPORT = Path("build/bench-drift.json")
BLOCK_SECONDS = 240.0
PER_DAY = int(86_400 / BLOCK_SECONDS)
BASE = 1.5
"""Accepted draft tokens per step in the first hours."""
NOISE = 0.05
STEPS = 20_000
"""Of decoding in a block: so many that chance within a block adds next to nothing to `NOISE`."""
QUESTION = DriftQuestion("first", REVISION, block_seconds=BLOCK_SECONDS, least_share=0.8)


@dataclass(frozen=True)
class Scenario:
    """`share` of the baseline, by hours since it was measured."""

    name: str
    days: int
    share: Callable[[float], float]
    correlation: float = 0.0
    """Of the noise of one block with that of the next."""


SCENARIOS = (
    Scenario("healthy", 2, lambda _: 1.0),
    Scenario("at the limit", 5, lambda _: 0.8),
    Scenario("falls to 70 percent", 1, lambda _: 0.7),
    Scenario("declines to 60 percent over 8 hours", 1, lambda h: max(0.6, 1 - 0.05 * h)),
    Scenario("at 85 percent, noise wanders", 5, lambda _: 0.85, correlation=0.8),
    Scenario("at the limit, noise wanders", 5, lambda _: 0.8, correlation=0.8),
)


def hours_to_alarm(scenario: Scenario, seed: int) -> float | None:
    """Hours from the end of the baseline; None: there was no alarm."""
    chance, wander = random.Random(seed), 0.0  # noqa: S311 - no secret
    chances = random.Random(seed + 10_000)  # noqa: S311
    world = Serving(pods(1), QUESTION, chance=chances, steps=STEPS)
    began: float | None = None

    def rate(_: Serving) -> float:
        nonlocal wander
        rest = (1 - scenario.correlation**2) ** 0.5
        wander = scenario.correlation * wander + rest * chance.gauss(0, NOISE)
        share = 1.0 if began is None else scenario.share((world.at - began) / 3600)
        return float(BASE * share * (1 + wander))

    world.rate = rate
    while world.look(BLOCK_SECONDS).baseline is None:
        pass
    began = world.at
    for _ in range(scenario.days * PER_DAY):
        if world.look(BLOCK_SECONDS).is_drifted:
            return (world.at - began) / 3600
    return None


def measured(scenario: Scenario, runs: int) -> dict[str, object]:
    """What became of so many runs."""
    found = [hours_to_alarm(scenario, seed) for seed in range(runs)]
    alarms = sorted(hours for hours in found if hours is not None)
    return {
        "scenario": scenario.name,
        "days": scenario.days,
        "runs": runs,
        "alarms": len(alarms),
        "hours_median": round(statistics.median(alarms), 2) if alarms else None,
        "hours_p95": round(alarms[int(0.95 * (len(alarms) - 1))], 2) if alarms else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    arguments = parser.parse_args()
    rows = []
    for scenario in SCENARIOS:
        rows.append(measured(scenario, arguments.runs))
        print(" ".join(f"{value!s:>12}" for value in rows[-1].values()), flush=True)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"written to {REPORT}")


if __name__ == "__main__":
    main()
