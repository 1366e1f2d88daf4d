"""The arithmetic of `bench.adaptive`: paired ratios, their bound, and what is compared."""

import math

import pytest
from bench.adaptive import WORKLOADS, arms_of, lower_bound, summary

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
