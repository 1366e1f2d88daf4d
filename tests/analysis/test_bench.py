"""What the bench makes and counts: rollouts, the rules beside ours, and the bounds of its rates."""

from dataclasses import replace

import numpy as np
import pytest
from bench.analysis import highest_percent, p95_of
from bench.analysis_batch import judged_alone, judged_together
from bench.analysis_model import ACCEPTED, FAILED, REQUESTS, STEPS, Scenario, simulated
from bench.counting_rules import Rule, ratios, seconds_to_rollback, tuned_limit

TWO = Rule("two", 10, 2)
NAN = float("nan")
BAD = Scenario("s", 10, accepts=0.7, candidate_errors=0.05, late_first=2, late_token=2)


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
    arms = np.ones((4, 1, 2, 8))
    arms[:, 0, 0, ACCEPTED] = [1, 3, 0, 0]
    assert ratios(TWO, arms).tolist() == [[2.0, 0.0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        BAD,
        replace(BAD, requests_per_second=2, stable_pods=1),
        replace(BAD, late_first=1, late_token=2.4, timed_per_request=60, accepts=1),
        Scenario("a kind of prompt in fifty", 10, accepts=0.9, hot=0.02),
        Scenario("same", 10, lost=0.2),
    ],
    ids=["bad", "one stable pod", "steps", "hot", "same"],
)
def test_many_at_a_time_are_judged_like_each_alone(scenario: Scenario) -> None:
    """The arrays of the bench and the evidence that is shipped say the same."""
    rollouts = simulated(np.random.default_rng(3), scenario, runs=2, hours=0.4)
    together = judged_together(rollouts)
    for run in range(2):
        seconds, evidence = judged_alone(rollouts, run)
        assert together.seconds[run] == pytest.approx(seconds or NAN, nan_ok=True)
        assert together.evidence[run] == pytest.approx(evidence, rel=1e-6)


def test_a_run_is_the_same_for_the_same_seed() -> None:
    scenario = Scenario("s", 10, accepts=0.2)
    first, again = (
        judged_together(simulated(np.random.default_rng(3), scenario, runs=2, hours=0.1))
        for _ in range(2)
    )
    assert first.seconds.tolist() == again.seconds.tolist()
    assert (first.metric == 0).all()


def test_the_model_makes_what_a_scenario_says() -> None:
    scenario = Scenario("s", 50, canary=0.5, accepts=0.9, candidate_errors=0.02)
    arms = simulated(np.random.default_rng(3), scenario, runs=2).arms.sum(axis=(0, 1))
    lengths = arms[:, ACCEPTED] / arms[:, STEPS]
    assert lengths[0] / lengths[1] == pytest.approx(0.9, rel=0.01)
    assert arms[0, FAILED] / arms[0, REQUESTS] == pytest.approx(0.02, rel=0.2)
    assert arms[0, REQUESTS] == pytest.approx(arms[1, REQUESTS], rel=0.02)


@pytest.mark.parametrize(
    "found, runs, percent",
    [(0, 3000, 0.0998), (0, 100, 2.95), (5, 1000, 1.05), (10, 10, 100.0)],
)
def test_a_rate_is_at_most_so_much_at_95_percent(found: int, runs: int, percent: float) -> None:
    """Clopper and Pearson's, one-sided; none in n is the rule of three."""
    assert highest_percent(found, runs) == pytest.approx(percent, rel=0.01)


def test_a_p95_counts_runs_that_were_never_rolled_back() -> None:
    assert p95_of([10.0] * 94 + [None] * 6) == (10.0, None, None)
    low, middle, high = p95_of([float(each) for each in range(1, 1001)])
    assert middle == 950
    assert low is not None
    assert high is not None
    assert 930 < low < 950 < high < 970
