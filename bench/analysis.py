"""How often, and how soon, a canary is rolled back: `python -m bench.analysis [--quick]`.

Batches of rollouts have seeds of their own, and every result is written at once to
build/bench-analysis.jsonl: a bench that was stopped goes on where it was, and
more runs are added by asking for more. Figures go to build/bench-analysis.json,
tables to build/bench-analysis.md, a plot to build/bench-analysis.png. The model
is in bench/analysis_model.py, the scenarios in bench/analysis_scenarios.py.
"""

import argparse
import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from bench.analysis_batch import METRICS, Outcomes, judged_alone, judged_together
from bench.analysis_cost import measured_cost
from bench.analysis_model import Rollouts, Scenario, simulated
from bench.analysis_report import drawn, tables
from bench.analysis_scenarios import SCENARIOS
from bench.counting_rules import compared

BUILD = Path("build")
SOURCES = ("operator/src/speculative_operator/analysis", "bench")
BATCH: Final = 500
QUICK_BATCH: Final = 100
"""Rollouts made together."""
CHECKED: Final = 1
"""Of the first batch of every scenario, so many are judged by the shipped evidence, too."""


@dataclass(frozen=True, slots=True)
class Run:
    """One rollout: seconds to the rollback, or None, and candidate requests until then."""

    seconds: float | None
    requests: int
    metric: str


@dataclass(frozen=True, slots=True)
class Row:
    """What a scenario came to; means over the runs that were rolled back, p95 over all of them.

    The p95 has a 95 % interval by its neighbours in rank; None: later than the hour.
    """

    name: str
    runs: int
    rolled_back: int
    rolled_back_percent: float
    at_most_percent: float
    """Upper end of the rate at 95 % (Clopper and Pearson, one-sided)."""
    metrics: dict[str, int]
    mean_seconds: float | None
    p95_seconds: float | None
    p95_interval: tuple[float | None, float | None]
    p95_requests: float | None
    target_p95_seconds: float | None
    target_false_percent: float | None
    seconds: tuple[float, ...]
    """Of every run that was rolled back, for the plot."""


class Progress:
    """Results on disk, one line a batch; those of other code are not read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._code = _code()
        self.runs: dict[str, list[Run]] = defaultdict(list)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for line in lines:
            found = json.loads(line)
            if found["code"] == self._code:
                self.runs[found["scenario"]] += [Run(*run) for run in found["runs"]]

    def add(self, scenario: str, runs: list[Run]) -> None:
        self.runs[scenario] += runs
        rows = [[run.seconds, run.requests, run.metric] for run in runs]
        line = {"code": self._code, "scenario": scenario, "runs": rows}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _code() -> str:
    """A mark of the code that makes the figures."""
    digest = hashlib.sha256()
    for source in SOURCES:
        names = "analysis*.py" if source == "bench" else "*.py"
        for file in sorted(Path(source).glob(names)):
            # What only reports makes no figure.
            if file.name not in ("analysis_report.py", "messages.py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def generator(name: str, batch: int) -> np.random.Generator:
    """Its own stream for every batch, the same on every machine."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return np.random.default_rng([number, batch])


def rolled(progress: Progress, *, size: int, runs: float, seconds: float) -> Iterator[None]:
    """Adds batches in turn to every scenario, until each has its runs or the time is over."""
    end = time.monotonic() + seconds
    while True:
        due = [s for s in SCENARIOS if len(progress.runs[s.name]) < runs * s.runs_factor]
        if not due:
            return
        for scenario in due:
            batch = len(progress.runs[scenario.name]) // size
            made = simulated(generator(scenario.name, batch), scenario, runs=size)
            found = judged_together(made, error_limit=scenario.error_limit)
            if not batch:
                check(scenario, made, found)
            progress.add(scenario.name, runs_of(found))
            yield
            if time.monotonic() > end:
                return


def check(scenario: Scenario, made: Rollouts, found: Outcomes) -> None:
    """Raises SystemExit where the arrays say something else than the shipped evidence."""
    for run in range(CHECKED):
        seconds, evidence = judged_alone(made, run, error_limit=scenario.error_limit)
        same_time = np.allclose(found.seconds[run], seconds or np.nan, equal_nan=True)
        if not same_time or not np.allclose(found.evidence[run], evidence, rtol=1e-6):
            raise SystemExit(
                f"{scenario.name}, run {run}: {found.seconds[run]} s and {found.evidence[run]} "
                f"together, {seconds} s and {evidence} alone"
            )


def runs_of(found: Outcomes) -> list[Run]:
    """The outcomes one by one."""
    return [
        Run(
            None if math.isnan(seconds) else seconds,
            int(requests),
            METRICS[metric] if metric >= 0 else "",
        )
        for seconds, requests, metric in zip(
            found.seconds.tolist(), found.requests.tolist(), found.metric.tolist(), strict=True
        )
    ]


def highest_percent(found: int, runs: int, *, chance: float = 0.05) -> float:
    """The highest rate at which `found` or fewer of `runs` still happen with this chance."""
    if found >= runs:
        return 100.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if _at_most(found, runs, middle) > chance:
            low = middle
        else:
            high = middle
    return 100 * high


def _at_most(found: int, runs: int, rate: float) -> float:
    return sum(
        math.exp(
            math.lgamma(runs + 1)
            - math.lgamma(k + 1)
            - math.lgamma(runs - k + 1)
            + k * math.log(rate)
            + (runs - k) * math.log1p(-rate)
        )
        for k in range(found + 1)
    )


def p95_of(
    times: Sequence[float | None],
) -> tuple[float | None, float | None, float | None]:
    """Lower end, p95 and upper end, of all runs; None: never within the hour."""
    ordered = sorted(math.inf if each is None else each for each in times)
    count = len(ordered)
    spread = 1.96 * math.sqrt(count * 0.95 * 0.05)
    ranks = (0.95 * count - spread, 0.95 * count, 0.95 * count + spread)
    found = [ordered[min(max(math.ceil(rank), 1), count) - 1] for rank in ranks]
    low, middle, high = (each if math.isfinite(each) else None for each in found)
    return low, middle, high


def row_of(scenario: Scenario, runs: list[Run]) -> Row:
    """The figures of one scenario."""
    times = [run.seconds for run in runs if run.seconds is not None]
    back = [run for run in runs if run.seconds is not None]
    low, p95, high = p95_of([run.seconds for run in runs])
    _, requests, _ = p95_of([None if r.seconds is None else float(r.requests) for r in runs])
    return Row(
        name=scenario.name,
        runs=len(runs),
        rolled_back=len(back),
        rolled_back_percent=100 * len(back) / len(runs),
        at_most_percent=highest_percent(len(back), len(runs)),
        metrics={
            name: sum(run.metric == name for run in back)
            for name in sorted({run.metric for run in back})
        },
        mean_seconds=float(np.mean(times)) if times else None,
        p95_seconds=p95,
        p95_interval=(low, high),
        p95_requests=requests,
        target_p95_seconds=scenario.target_p95_seconds,
        target_false_percent=scenario.target_false_percent,
        seconds=tuple(times),
    )


def main() -> None:
    """Runs what is missing, and reports all that there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about two minutes")
    parser.add_argument(
        "--runs", type=int, default=1000, help="rollouts of a scenario; A/A 3 times"
    )
    parser.add_argument("--seconds", type=float, default=7200, help="longest time for them")
    parser.add_argument("--fresh", action="store_true", help="forget former results")
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    name = "bench-analysis-quick" if options.quick else "bench-analysis"
    file = BUILD / f"{name}.jsonl"
    if options.fresh:
        file.unlink(missing_ok=True)
    progress = Progress(file)
    seconds = 75.0 if options.quick else options.seconds
    began, shown, spent = time.monotonic(), time.monotonic(), time.process_time()
    size = QUICK_BATCH if options.quick else BATCH
    batches = rolled(progress, size=size, runs=options.runs, seconds=seconds)
    for count, _ in enumerate(batches, start=1):
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            print(f"{shown - began:6.0f} s, {count * size} rollouts", flush=True)
    rows = [row_of(s, progress.runs[s.name]) for s in SCENARIOS if progress.runs[s.name]]
    rules: list[dict[str, Any]] = []
    for rate in (2, 10, 50):
        rules += compared(rate, generator, runs=size)
    cost = measured_cost() | {"processor seconds of this call": time.process_time() - spent}
    text = tables(rows, rules, cost)
    report = {"scenarios": [asdict(row) for row in rows], "rules": rules, "cost": cost}
    (BUILD / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    (BUILD / f"{name}.md").write_text(text, "utf-8")
    drawn(rows, BUILD / f"{name}.png")
    print(text)


if __name__ == "__main__":
    main()
