"""The arithmetic of `bench.adaptive`: paired ratios, their bound, and what is compared."""

import contextlib
import json
import math
import sys

import pytest
from bench import adaptive
from bench.adaptive import WORKLOADS, EngineGone, arms_of, lower_bound, main, summary

LOOK_UP, DRAFT = WORKLOADS[0], WORKLOADS[2]


def a_round(**seconds):
    return {
        arm.replace("k", "k="): {"tokens": 100, "cpu": value, "k": 2, "text": 1}
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
        return {"tokens": 100, "cpu": 1.0, "wall": 1.0, "k": 2, "text": 1}


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


def test_an_engine_that_ends_costs_its_own_cells_only(bench):
    code, report, _ = bench("--streams", "1", "4", "--rounds", "2", broken="perfect draft")
    assert code == 1
    finished = [(each["workload"], each["streams"]) for each in report if each.get("finished")]
    others = [each.name for each in WORKLOADS if each.name != "perfect draft"]
    assert finished == [(name, streams) for name in others for streams in (1, 4)]


def test_what_is_finished_is_not_run_again(bench):
    options = ("--streams", "1", "--rounds", "2", "--resume")
    bench(*options, broken="perfect draft")
    code, report, played = bench(*options)
    assert code == 0
    assert {each["workload"] for each in report} == {each.name for each in WORKLOADS}
    assert len(report) == len(WORKLOADS)
    assert len(played) == 1


def test_a_cell_ends_with_its_time_but_not_before_a_bound_says_something(bench):
    _, report, _ = bench("--streams", "1", "--rounds", "9", "--minutes", "0")
    assert {each["rounds"] for each in report} == {adaptive.FEWEST_ROUNDS}
