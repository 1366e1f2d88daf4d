"""The counting rules of the bench count as their models do."""

import numpy as np
import pytest
from bench.analysis_model import Scenario, rolled_out, simulated
from bench.counting_rules import Rule, ratios, seconds_to_rollback, tuned_limit

TWO = Rule("two", 10, 2)
NAN = float("nan")


@pytest.mark.parametrize(
    "found, seconds",
    [
        ([0.8, 0.8, 1.0], 20.0),
        ([0.8, 1.0, 0.8], 30.0),
        ([0.8, NAN, NAN], None),
        ([1.0, 1.0, 1.0], None),
    ],
    ids=["at once", "a good one does not reset", "no data is no failure", "never"],
)
def test_the_second_failure_rolls_back(found: list[float], seconds: float | None) -> None:
    assert seconds_to_rollback(TWO, np.array(found), 0.9) == seconds


def test_a_tuned_limit_rolls_back_no_more_than_allowed() -> None:
    same = [np.array([1.0, 0.5 + run / 100, 0.4 + run / 100]) for run in range(100)]
    limit = tuned_limit(TWO, same, chance=0.05)
    back = [run for run in same if seconds_to_rollback(TWO, run, limit) is not None]
    assert len(back) == 5


def test_a_measurement_is_the_ratio_of_both_arms_over_its_interval() -> None:
    run = np.ones((2, 7, 4))
    run[0, 1] = [1, 3, 0, 0]
    assert ratios(TWO, run).tolist() == [2.0, 0.0]


def test_a_run_is_the_same_for_the_same_seed() -> None:
    scenario = Scenario("s", 10, accepts=0.2)
    runs = [rolled_out(np.random.default_rng(3), scenario) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0].metric == "acceptance"


def test_the_arms_are_alike_where_the_candidate_is() -> None:
    ours, theirs = simulated(np.random.default_rng(3), Scenario("s", 50, canary=0.5)).sum(axis=2)
    assert ours[1] / ours[2] == pytest.approx(theirs[1] / theirs[2], rel=0.02)
