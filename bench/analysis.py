"""How often, and how soon, a canary is rolled back: `python -m bench.analysis [--quick]`.

Every run has a seed of its own, and every result is written at once to
build/bench-analysis.jsonl: a bench that was stopped goes on where it was, and
more runs are added by asking for more. Figures go to build/bench-analysis.json,
tables to build/bench-analysis.md. The model is in bench/analysis_model.py.
"""

import argparse
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.analysis_cost import measured_cost
from bench.analysis_model import FIVE_TESTS, Run, Scenario, judged, rolled_out, simulated
from bench.counting_rules import RULES, ratios, seconds_to_rollback, tuned_limit

from speculative_api.v1alpha1 import Analysis, MetricCheck, MetricName

BUILD = Path("build")
SOURCES = ("operator/src/speculative_operator/analysis", "bench")

AT_LIMITS = Scenario(
    "at every limit", 10, accepts=0.9, candidate_errors=0.01, late_first=1.5, late_token=1.5
)
SCENARIOS = (
    Scenario("A/A, 2 req/s", 2),
    Scenario("A/A, 10 req/s", 10),
    Scenario("A/A, 50 req/s", 50),
    Scenario("A/A, 50 req/s, canary 1 %", 50, canary=0.01),
    Scenario("A/A, 50 req/s, canary 50 %", 50, canary=0.5),
    replace(AT_LIMITS, name="at every limit, 2 req/s", requests_per_second=2),
    replace(AT_LIMITS, name="at every limit, 10 req/s"),
    replace(AT_LIMITS, name="at every limit, 50 req/s", requests_per_second=50),
    Scenario("acceptance halved, 2 req/s", 2, accepts=0.5),
    Scenario("acceptance halved, 10 req/s", 10, accepts=0.5, target_p95_seconds=120),
    Scenario("acceptance halved, 50 req/s", 50, accepts=0.5, target_p95_seconds=60),
    Scenario("acceptance .70 -> .55, 10 req/s", 10, accepts=0.55 / 0.70, target_p95_seconds=600),
    Scenario("acceptance .70 -> .55, 50 req/s", 50, accepts=0.55 / 0.70, target_p95_seconds=180),
    Scenario("the same from minute 30, 50 req/s", 50, accepts=0.55 / 0.70, from_minute=30),
    Scenario("errors .1 -> 2 %, 50 req/s", 50, candidate_errors=0.02, target_p95_seconds=1300),
    Scenario("errors 20 %, 10 req/s", 10, candidate_errors=0.20, target_p95_seconds=210),
    Scenario(
        "errors 20 %, canary 50 %, 50 req/s",
        50,
        canary=0.5,
        candidate_errors=0.20,
        target_p95_seconds=40,
    ),
    Scenario("20 % answered 4xx, 10 req/s", 10, candidate_refuses=0.20),
    Scenario("slow tokens 5 -> 12 %, 10 req/s", 10, late_token=2.4),
    Scenario("slow tokens 5 -> 12 %, 50 req/s", 50, late_token=2.4, target_p95_seconds=600),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What a scenario came to; seconds and requests over the runs that were rolled back."""

    name: str
    runs: int
    rolled_back: int
    rolled_back_percent: float
    metrics: dict[str, int]
    mean_seconds: float | None
    p95_seconds: float | None
    mean_requests: float | None
    p95_requests: float | None
    target_p95_seconds: float | None


class Progress:
    """Results on disk, one line a run; those of other code are not read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._code = _code()
        self.runs: dict[str, list[Run]] = defaultdict(list)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for line in lines:
            found = json.loads(line)
            if found["code"] == self._code:
                self.runs[found["scenario"]].append(Run(**found["run"]))

    def add(self, scenario: str, run: Run) -> None:
        self.runs[scenario].append(run)
        line = {"code": self._code, "scenario": scenario, "run": asdict(run)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _code() -> str:
    """A mark of the code that makes the figures."""
    digest = hashlib.sha256()
    for source in SOURCES:
        for file in sorted(Path(source).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _generator(scenario: str, run: int) -> np.random.Generator:
    """Its own stream for every run, the same on every machine."""
    name = int.from_bytes(hashlib.sha256(scenario.encode()).digest()[:8], "big")
    return np.random.default_rng([name, run])


def rolled(progress: Progress, *, runs: int, seconds: float) -> Iterator[None]:
    """Adds runs in turn to every scenario, until each has `runs` or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        due = [s for s in SCENARIOS if len(progress.runs[s.name]) < runs]
        if not due:
            return
        for scenario in due:
            index = len(progress.runs[scenario.name])
            progress.add(scenario.name, rolled_out(_generator(scenario.name, index), scenario))
            yield


def row_of(scenario: Scenario, runs: list[Run]) -> Row:
    """The figures of one scenario."""
    back = [run for run in runs if run.seconds is not None]
    times = [run.seconds for run in back if run.seconds is not None]
    requests = [run.requests for run in back]
    return Row(
        name=scenario.name,
        runs=len(runs),
        rolled_back=len(back),
        rolled_back_percent=100 * len(back) / len(runs),
        metrics={
            name: sum(run.metric == name for run in back) for name in {r.metric for r in back}
        },
        mean_seconds=float(np.mean(times)) if times else None,
        p95_seconds=float(np.percentile(times, 95)) if times else None,
        mean_requests=float(np.mean(requests)) if back else None,
        p95_requests=float(np.percentile(requests, 95)) if back else None,
        target_p95_seconds=scenario.target_p95_seconds,
    )


def acceptance_only(percent: int) -> Analysis:
    """The shipped evidence with the acceptance limit alone deciding, at a fifth of the chance."""
    checks = [check.model_copy() for check in FIVE_TESTS.metrics]
    checks[0] = MetricCheck(name=MetricName.ACCEPTANCE_LENGTH, min_percent_of_stable=percent)
    return Analysis(metrics=checks)


def compared(requests_per_second: float, *, runs: int) -> list[dict[str, Any]]:
    """Counting rules tuned to 1 % of A/A runs rolled back, and ours, on the same rollouts."""
    kinds = {"same": 1.0, "halved": 0.5, ".55": 0.55 / 0.70}
    made: dict[str, list[Any]] = {}
    for kind, factor in kinds.items():
        scenario = Scenario(kind, requests_per_second, accepts=factor)
        made[kind] = [
            simulated(_generator(f"{kind} {requests_per_second}", index), scenario)
            for index in range(runs)
        ]
    rows = []
    for rule in RULES:
        same = [ratios(rule, run) for run in made["same"]]
        limit = tuned_limit(rule, same, chance=0.01)
        untuned = [seconds_to_rollback(rule, run, 0.9) is not None for run in same]
        row: dict[str, Any] = {
            "rule": rule.name,
            "false_at_90_percent": 100 * sum(untuned) / runs,
            "tuned_limit": limit,
        }
        for kind in ("halved", ".55"):
            times = [seconds_to_rollback(rule, ratios(rule, run), limit) for run in made[kind]]
            row[kind] = _times(times)
        rows.append(row)
    for percent in (90, 100):
        analysis = acceptance_only(percent)
        found = {
            kind: [judged(np.cumsum(run, axis=2), analysis=analysis).seconds for run in all_runs]
            for kind, all_runs in made.items()
        }
        rows.append(
            {
                "rule": f"ours, limit {percent} %",
                "false_at_90_percent": 100 * sum(t is not None for t in found["same"]) / runs,
                "tuned_limit": percent / 100,
                "halved": _times(found["halved"]),
                ".55": _times(found[".55"]),
            }
        )
    return [{"requests_per_second": requests_per_second, "runs": runs} | row for row in rows]


def _times(times: list[float | None]) -> dict[str, float | None]:
    known = [each for each in times if each is not None]
    return {
        "found_percent": 100 * len(known) / len(times),
        "mean_seconds": float(np.mean(known)) if known else None,
        "p95_seconds": float(np.percentile(known, 95)) if known else None,
    }


def tables(rows: list[Row], rules: list[dict[str, Any]], cost: dict[str, float]) -> str:
    """Markdown for the documents."""
    lines = [
        "| scenario | runs | rolled back | mean s | p95 s | target p95 | requests, mean / p95 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        back = f"{row.rolled_back_percent:.3g} %"
        if not row.rolled_back:
            # Rule of three: none in n is compatible with 3 / n, at 95 %.
            back = f"0 (< {300 / row.runs:.2g} %)"
        requests = f"{_number(row.mean_requests)} / {_number(row.p95_requests)}"
        lines.append(
            f"| {row.name} | {row.runs} | {back} | {_number(row.mean_seconds)} | "
            f"{_number(row.p95_seconds)} | {_number(row.target_p95_seconds)} | {requests} |"
        )
    lines += [
        "",
        "| req/s | rule | A/A at .90 | limit | halved: mean / p95 s | .70 -> .55: mean / p95 s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for rule in rules:
        lines.append(
            f"| {rule['requests_per_second']:g} | {rule['rule']} | "
            f"{rule['false_at_90_percent']:.3g} % | {rule['tuned_limit']:.2f} | "
            f"{_detected(rule['halved'])} | {_detected(rule['.55'])} |"
        )
    lines += ["", *(f"{name}: {value:.3g}" for name, value in cost.items())]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _detected(times: dict[str, float | None]) -> str:
    found = times["found_percent"] or 0.0
    share = "" if found == 100 else f" ({found:.0f} %)"
    return f"{_number(times['mean_seconds'])} / {_number(times['p95_seconds'])}{share}"


def main() -> None:
    """Runs what is missing, and reports all that there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about two minutes")
    parser.add_argument("--runs", type=int, default=1000, help="rollouts of every scenario")
    parser.add_argument("--seconds", type=float, default=7200, help="longest time for them")
    parser.add_argument("--fresh", action="store_true", help="forget former results")
    options = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    file = BUILD / ("bench-analysis-quick.jsonl" if options.quick else "bench-analysis.jsonl")
    if options.fresh:
        file.unlink(missing_ok=True)
    progress = Progress(file)
    seconds = 75.0 if options.quick else options.seconds
    began, shown = time.monotonic(), 0.0
    for count, _ in enumerate(rolled(progress, runs=options.runs, seconds=seconds), start=1):
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            print(f"{shown - began:6.0f} s, {count} rollouts", flush=True)
    rows = [row_of(s, progress.runs[s.name]) for s in SCENARIOS if progress.runs[s.name]]
    rules = []
    for rate in (2, 10, 50):
        rules += compared(rate, runs=12 if options.quick else min(options.runs, 200))
    cost = measured_cost()
    text = tables(rows, rules, cost)
    report = {"scenarios": [asdict(row) for row in rows], "rules": rules, "cost": cost}
    (BUILD / "bench-analysis.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    (BUILD / "bench-analysis.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
