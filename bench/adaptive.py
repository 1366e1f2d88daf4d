"""Adaptive draft length against fixed ones, on real vLLM: `python -m bench.adaptive`.

For each workload one engine without speculation and one with it run beside each
other. In each round every arm (none, each fixed length, adaptive) generates the
same prompts in turn, in an order that rotates, so that slow drifts of the machine
hit all alike. Reported are tokens per second of each arm and, for adaptive
against the reference, the geometric mean of the paired ratios with the lower end
of a one-sided 95 % interval (t distribution). The reference is the best of no
speculation and the fixed lengths above 0 for n-gram, and the best fixed length,
0 included, for draft models: at 0 a drafter still costs one pass per step.

Time is that of the processor (`--clock cpu`, on machines without a GPU, where
other jobs would hide everything) or of the wall. Engines run in `--python`;
results go to build/bench-adaptive.json after every round, with the minutes of each
cell. It needs nobody: a cell ends after `--rounds` or, from its fourth round on,
after `--minutes`; an engine that ends costs its cell and no others. The cells that tell
most come first: every workload at the first number of streams before any at the second.
What an earlier run has finished stays in the report until the same cell is finished
anew; `--resume` leaves out those that were finished with the same options. `--table`
prints the report as it stands in docs/adaptive.md.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPORT = Path("build/bench-adaptive.json")
ENGINE = Path(__file__).with_name("adaptive_engine.py")
PACKAGE_PARENT = Path(__file__).parents[1] / "worker/src/speculative_worker"
LARGEST = 4
FEWEST_ROUNDS = 4
"""A bound of fewer says nothing, however long they take."""
STUDENT_95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
"""One-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; 1.66 beyond."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One drafter and one kind of text."""

    name: str
    draft: str
    """`ngram`, or the folder of a draft model beside the target."""
    kind: str
    temperature: float


TARGET = "SmolLM2-135M-Instruct"
WORKLOADS = (
    Workload("useless draft", "SmolLM2-135M-8layers", "free", 0.0),
    Workload("perfect draft", TARGET, "free", 0.0),
    Workload("n-gram, copy-heavy", "ngram", "copy", 0.0),
    Workload("n-gram, free text", "ngram", "free", 1.0),
)
"""The most that can be lost first, then the most that can be won."""


class EngineGone(Exception):
    """An engine ended; its last words are in the log."""


class Engine:
    """A child process that generates on command."""

    def __init__(self, told: dict[str, Any], *, python: str, log: Any) -> None:
        read_end, write_end = os.pipe()
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            # As the worker sets it: threads that only poll are time of the processor too.
            "NUMBA_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._process = subprocess.Popen(  # noqa: S603
            [python, str(ENGINE), json.dumps(told), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(write_end,),
            env=environment,
            text=True,
        )
        os.close(write_end)
        self._answers = os.fdopen(read_end)
        self._next()

    def run(self, **command: Any) -> dict[str, Any]:
        """One command's answer."""
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._next()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._answers.close()

    def _next(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise EngineGone(f"an engine ended; see {REPORT.with_suffix('.log')}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def engines(workload: Workload, arguments: argparse.Namespace) -> Iterator[dict[str, Engine]]:
    """One without and one with speculation."""
    models = Path(arguments.models)
    options: dict[str, Any] = {
        "max_model_len": 512,
        "max_num_seqs": 16,
        "enable_prefix_caching": False,
    }
    options |= {"disable_log_stats": False}
    if arguments.clock == "cpu":
        options |= {"dtype": "float32", "enforce_eager": True}
        options |= {"distributed_executor_backend": "uni"}
    speculative = {
        "num_speculative_tokens": LARGEST,
        "num_speculative_tokens_per_batch_size": [[1, 16, LARGEST]],
    }
    if workload.draft == "ngram":
        speculative |= {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    else:
        speculative |= {"method": "draft_model", "model": str(models / workload.draft)}
    common = {
        "target": str(models / TARGET),
        "options": options,
        "clock": arguments.clock,
        "package_parent": str(PACKAGE_PARENT),
    }
    REPORT.parent.mkdir(exist_ok=True)
    with REPORT.with_suffix(".log").open("a") as log:
        found: dict[str, Engine] = {}
        try:
            for name, told in (("none", None), ("speculative", speculative)):
                told = {**common, "speculative": told}
                found[name] = Engine(told, python=arguments.python, log=log)
            yield found
        finally:
            for engine in found.values():
                engine.close()


def arms_of(lengths: Sequence[int]) -> dict[str, tuple[str, int | None]]:
    """Arm to engine and pinned length."""
    fixed: dict[str, tuple[str, int | None]] = {f"k={k}": ("speculative", k) for k in lengths}
    return {"none": ("none", None), **fixed, "adaptive": ("speculative", None)}


def lower_bound(ratios: Sequence[float]) -> tuple[float, float | None]:
    """Geometric mean of ratios, and the lower end of its one-sided 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), None
    freedom = len(logs) - 1
    quantile = STUDENT_95[freedom - 1] if freedom <= len(STUDENT_95) else 1.66
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half)


def summary(
    workload: Workload, rounds: list[dict[str, dict[str, Any]]], clock: str
) -> dict[str, Any]:
    """Speeds of all arms, and adaptive against its reference."""
    speeds = {arm: [each[arm]["tokens"] / each[arm][clock] for each in rounds] for arm in rounds[0]}
    means = {arm: statistics.geometric_mean(values) for arm, values in speeds.items()}
    left_out = "k=0" if workload.draft == "ngram" else "none"
    candidates = [arm for arm in means if arm not in ("adaptive", left_out)]
    reference = max(candidates, key=lambda arm: means[arm])
    paired = zip(speeds["adaptive"], speeds[reference], strict=True)
    ratios = [ours / theirs for ours, theirs in paired]
    mean, low = lower_bound(ratios)
    return {
        "tokens_per_second": {arm: round(value, 2) for arm, value in means.items()},
        "reference": reference,
        "ratio": round(mean, 3),
        "lower_95": None if low is None else round(low, 3),
        "ratios": [round(each, 3) for each in ratios],
        "chosen": [each["adaptive"]["k"] for each in rounds],
        "steps_by_length": [each["adaptive"]["used"] for each in rounds],
        "rounds": len(rounds),
        # At temperature 0 every arm must say the same.
        "rounds_with_equal_text": sum(
            len({arm["text"] for arm in each.values()}) == 1 for each in rounds
        ),
    }


def measure(
    workload: Workload, streams: int, arguments: argparse.Namespace, results: list[Any]
) -> None:
    """One cell, unless it is finished. Raises `EngineGone`."""
    options = options_of(arguments)
    if arguments.resume and any(
        is_of(each, workload, streams) and each.get("finished") and each.get("options") == options
        for each in results
    ):
        return
    # Finished ones of an earlier run make place only for a finished one.
    results[:] = [e for e in results if e.get("finished") or not is_of(e, workload, streams)]
    entry: dict[str, Any] = {"workload": workload.name, "streams": streams, "options": options}
    results.append(entry)
    with engines(workload, arguments) as running:
        _cell(workload, arguments, running, entry, results)
    results[:] = [e for e in results if e is entry or not is_of(e, workload, streams)]
    entry["finished"] = True
    written(results)
    print(json.dumps(entry), flush=True)


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a cell's figures depend on; its time is not among it, its rounds are in the entry."""
    names = ("clock", "tokens", "lengths", "learning", "quick")
    return {name: getattr(arguments, name) for name in names}


def _cell(
    workload: Workload,
    arguments: argparse.Namespace,
    running: dict[str, Engine],
    entry: dict[str, Any],
    results: list[Any],
) -> None:
    """Rounds of one workload at one number of streams, until there are enough."""
    arms, began = arms_of(arguments.lengths), time.monotonic()
    tokens = arguments.tokens if entry["streams"] <= 4 else max(16, arguments.tokens // 2)
    command = {"kind": workload.kind, "temperature": workload.temperature}
    command |= {"streams": entry["streams"], "tokens": tokens}
    for number in range(arguments.learning):
        running["speculative"].run(**command, pinned=None, seed=1000 + number)
    running["none"].run(**command, pinned=None, seed=999)
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(arguments.rounds):
        turn = number % len(arms)
        order = [*list(arms)[turn:], *list(arms)[:turn]]
        found = {
            arm: running[arms[arm][0]].run(**command, pinned=arms[arm][1], seed=number)
            for arm in order
        }
        rounds.append({arm: found[arm] for arm in arms})
        minutes = (time.monotonic() - began) / 60
        entry |= summary(workload, rounds, arguments.clock)
        entry |= {"minutes": round(minutes, 1)}
        entry["load_average"] = [round(each, 1) for each in os.getloadavg()]
        written(results)
        if len(rounds) >= FEWEST_ROUNDS and minutes >= arguments.minutes:
            return


def is_of(entry: dict[str, Any], workload: Workload, streams: int) -> bool:
    """Whether an entry is of this cell."""
    return (entry.get("workload"), entry.get("streams")) == (workload.name, streams)


def written(results: list[Any]) -> None:
    """Replaces the report, whole at every moment."""
    beside = REPORT.with_suffix(".new")
    beside.write_text(json.dumps(results, indent=2) + "\n")
    beside.replace(REPORT)


def table(results: Sequence[dict[str, Any]]) -> str:
    """The finished cells in Markdown."""
    lines = ["| workload | streams | best of the others | Online | ratio (95 % bound) | rounds |"]
    lines.append("|---|---|---|---|---|---|")
    for workload in WORKLOADS:
        of_workload = (e for e in results if e["workload"] == workload.name and e.get("finished"))
        for entry in sorted(of_workload, key=lambda each: each["streams"]):
            speeds, best = entry["tokens_per_second"], entry["reference"]
            bound = "unknown" if entry["lower_95"] is None else f"{entry['lower_95']:.3f}"
            said = ", quick" if entry.get("options", {}).get("quick") else ""
            lines.append(
                f"| {workload.name} | {entry['streams']} | {speeds[best]:.1f} ({best}) | "
                f"{speeds['adaptive']:.1f} | {entry['ratio']:.3f} ({bound}) | "
                f"{entry['rounds']}{said} |"
            )
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="models", help="folder with target and drafts")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has vLLM")
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="two rounds of short answers")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--learning", type=int, default=3, help="runs before the first round")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of a cell, after which no round begins"
    )
    parser.add_argument("--resume", action="store_true", help="leave out finished cells")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 4])
    parser.add_argument("--lengths", type=int, nargs="+", default=[0, 1, 2, LARGEST])
    parser.add_argument("--only", nargs="+", default=[], help="parts of workloads' names")
    parser.add_argument("--table", action="store_true", help="print the report and run nothing")
    arguments = parser.parse_args()
    results: list[Any] = json.loads(REPORT.read_text()) if REPORT.exists() else []
    if arguments.table:
        print(table(results))
        return
    if arguments.quick:
        arguments.rounds, arguments.learning, arguments.tokens = 3, 2, 48
        arguments.lengths = [0, LARGEST]
    failed = False
    wanted = [
        w for w in WORKLOADS if not arguments.only or any(p in w.name for p in arguments.only)
    ]
    for streams, workload in itertools.product(arguments.streams, wanted):
        try:
            measure(workload, streams, arguments, results)
        except EngineGone as error:
            failed = True
            print(f"{workload.name}, {streams} streams: {error}", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
