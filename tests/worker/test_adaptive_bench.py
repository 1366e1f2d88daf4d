"""The arithmetic of `bench.adaptive`: paired ratios, their bound, and what is compared."""

import contextlib
import json
import math
import sys

import pytest
from bench import adaptive
from bench.adaptive import WORKLOADS, EngineGone, arms_of, lower_bound, main, summary

LOOK_UP = next(each for each in WORKLOADS if each.draft == "ngram")
DRAFT = next(each for each in WORKLOADS if each.draft != "ngram")


def a_round(**seconds):
    return {
        arm.replace("k", "k="): {"tokens": 100, "cpu": value, "k": 2, "used": {2: 9}, "text": 1}
        for arm, value in seconds.items()
    }


def test_equal_ratios_have_no_spread():
    assert lower_bound([0.9, 0.9, 0.9]) == (pytest.approx(0.9), pytest.approx(0.9))


def test_the_bound_is_student_s_on_logarithms():
    mean, low = lower_bound([1.0, math.e])
    assert mean == pytest.approx(math.exp(0.5))
    assert low == pytest.approx(math.exp(0.5 - 6.31 * 0.5))


def test_one_round_has_no_bound():
    assert lower_bound([1.2]) == (pytest.approx(1.2), None)


@pytest.mark.parametrize(
    "workload, reference",
    [
        pytest.param(LOOK_UP, "none", id="n-gram: none counts, length 0 does not"),
        pytest.param(DRAFT, "k=0", id="a draft model: length 0 counts, none does not"),
    ],
)
def test_adaptive_is_compared_with_the_best_it_could_be(workload, reference):
    rounds = [a_round(none=1.0, k0=1.25, k4=2.0, adaptive=1.3)] * 2
    found = summary(workload, rounds, "cpu")
    assert found["reference"] == reference
    expected = {"none": 1.0, "k=0": 1.25}[reference] / 1.3
    assert found["ratio"] == pytest.approx(expected, abs=0.001)
    assert found["rounds_with_equal_text"] == 2


def test_every_arm_has_its_engine_and_length():
    assert arms_of([0, 4]) == {
        "none": ("none", None),
        "k=0": ("speculative", 0),
        "k=4": ("speculative", 4),
        "adaptive": ("speculative", None),
    }


class Running:
    """An engine that generates at a fixed speed; one that `ends` does so at its fifth command."""

    def __init__(self, *, ends: bool = False) -> None:
        self.commands = 0
        self._ends = ends

    def run(self, **command):
        self.commands += 1
        if self._ends and self.commands == 5:
            raise EngineGone("an engine ended; see the log")
        return {"tokens": 100, "cpu": 1.0, "wall": 1.0, "k": 2, "used": {2: 9}, "text": 1}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Runs the command over engines that are played; gives the exit code and the report."""
    report = tmp_path / "report.json"
    monkeypatch.setattr(adaptive, "REPORT", report)

    def run(*options, broken=""):
        played = []

        @contextlib.contextmanager
        def engines(workload, arguments):
            one = Running(ends=workload.name == broken)
            played.append(one)
            yield {"none": one, "speculative": one}

        monkeypatch.setattr(adaptive, "engines", engines)
        monkeypatch.setattr(sys, "argv", ["bench.adaptive", *options])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, json.loads(report.read_text()), played

    return run


def cells(report):
    return [(each["workload"], each["streams"]) for each in report if each.get("finished")]


NAMES = [each.name for each in WORKLOADS]


def test_every_workload_has_a_cell_before_any_has_two(bench):
    _, report, _ = bench("--streams", "1", "16", "--rounds", "2")
    assert cells(report) == [(name, streams) for streams in (1, 16) for name in NAMES]


def test_an_engine_that_ends_costs_its_own_cells_only(bench):
    code, report, _ = bench("--streams", "1", "4", "--rounds", "2", broken="perfect draft")
    assert code == 1
    others = [name for name in NAMES if name != "perfect draft"]
    assert cells(report) == [(name, streams) for streams in (1, 4) for name in others]


def test_what_is_finished_is_not_run_again(bench):
    options = ("--streams", "1", "--rounds", "2", "--resume")
    bench(*options, broken="perfect draft")
    code, report, played = bench(*options)
    assert code == 0
    assert sorted(cells(report)) == sorted((name, 1) for name in NAMES)
    assert len(report) == len(WORKLOADS)
    assert len(played) == 1


def test_a_cell_of_other_options_is_run_again(bench):
    bench("--streams", "1", "--quick")
    _, report, played = bench("--streams", "1", "--rounds", "4", "--resume")
    assert len(played) == len(report) == len(WORKLOADS)
    assert not any(each["options"]["quick"] for each in report)


@pytest.mark.parametrize("options", [(), ("--resume",)], ids=["anew", "resumed"])
def test_a_finished_cell_stays_until_it_is_finished_anew(bench, options):
    bench("--streams", "1", "--quick")
    ran = ("--streams", "1", "--only", "perfect", "--rounds", "4", *options)
    _, report, _ = bench(*ran, broken="perfect draft")
    assert sorted(cells(report)) == sorted((name, 1) for name in NAMES)
    _, report, _ = bench(*ran)
    assert sorted(cells(report)) == sorted((name, 1) for name in NAMES)
    assert [each["workload"] for each in report if not each["options"]["quick"]] == [
        "perfect draft"
    ]


def test_a_report_is_whole_whenever_the_bench_is_killed(bench, monkeypatch):
    bench("--streams", "1", "--rounds", "2")

    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        adaptive.written([])
    assert len(json.loads(adaptive.REPORT.read_text())) == len(WORKLOADS)


def test_finished_cells_are_a_table(bench, capsys, monkeypatch):
    bench("--streams", "1", "--quick", broken="useless draft")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["bench.adaptive", "--table"])
    main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(WORKLOADS) - 1
    assert rows[0] == "| perfect draft | 1 | 100.0 (k=0) | 100.0 | 1.000 (1.000) | 3, quick |"


def test_a_cell_ends_with_its_time_but_not_before_a_bound_says_something(bench):
    _, report, _ = bench("--streams", "1", "--rounds", "9", "--minutes", "0")
    assert {each["rounds"] for each in report} == {adaptive.FEWEST_ROUNDS}
