"""All requests of the candidate fail: when the hard guard takes it for a catastrophe."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.looks import CANDIDATE, CONTROL, Trial
from tests.analysis.test_alone import alone

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import assess, begin, observe
from speculative_operator.analysis.failing import FailingRun


def look(trial: Trial, candidate: dict[str, int], control: dict[str, int], seconds: float = 5):
    trial.proxies[0].answer(CANDIDATE, **candidate)
    trial.proxies[0].answer(CONTROL, **control)
    trial.look(seconds)
    return assess(trial.evidence).all_fail


@pytest.mark.parametrize(
    ("candidate", "control", "is_one"),
    [
        pytest.param({"bad": 10}, {"good": 190}, True, id="all refused"),
        pytest.param({"good": 10, "cut": 10}, {"good": 190}, True, id="all cut"),
        pytest.param({"bad": 9}, {"good": 190}, False, id="too few"),
        pytest.param({"bad": 19, "good": 1}, {"good": 190}, False, id="one succeeded"),
        pytest.param({"client": 10}, {"good": 190}, False, id="the clients' own"),
        pytest.param({}, {"good": 190}, False, id="nobody asked"),
        pytest.param({"bad": 10}, {"good": 3}, False, id="too little of stable"),
        pytest.param({"bad": 10}, {"bad": 190}, False, id="all fail everywhere"),
        pytest.param({"bad": 10}, {"good": 95, "bad": 95}, False, id="half fail on stable"),
        pytest.param({"bad": 10}, {"good": 189, "bad": 1}, True, id="one fails on stable"),
        pytest.param({"bad": 10}, {"good": 10}, False, id="ten at even shares"),
        pytest.param({"bad": 40}, {"good": 40}, True, id="forty at even shares"),
        pytest.param({"bad": 900}, {"good": 10}, False, id="few on a small stable"),
        pytest.param({"bad": 900}, {"good": 50}, True, id="enough on a small stable"),
    ],
)
def test_a_catastrophe_of_one_look(candidate, control, is_one):
    assert bool(look(Trial(), candidate, control)) is is_one


def test_it_says_the_arithmetic():
    assert look(Trial(), {"bad": 10}, {"good": 90}) == (
        "all of its last 10 requests failed while 0 of 90 on stable did. Evidence 1 in 170,000 "
        "(needed 1 in 10,000): a candidate that fails at most 1 % or twice stable's would do so, "
        "at any time, in fewer than 1 in 170,000 rollouts"
    )


def test_it_may_come_after_any_time_and_then_takes_a_few_more():
    trial = Trial()
    assert not look(trial, {"good": 10}, {"good": 190})
    assert trial.evidence.failing.ended == 1
    an_hour = replace(trial.evidence.failing, ended=720)
    trial.evidence = replace(trial.evidence, failing=an_hour)
    assert not look(trial, {"bad": 10}, {"good": 190})
    assert "all of its last 20 requests" in look(trial, {"bad": 10}, {"good": 190})


def test_few_requests_add_up_while_the_candidate_is_asked():
    trial = Trial()
    for _ in range(9):
        assert not look(trial, {"bad": 1}, {"good": 19})
        assert not look(trial, {}, {"good": 19})
    assert look(trial, {"bad": 1}, {"good": 19})


def test_what_stable_did_while_nobody_asked_the_candidate_does_not_count():
    trial = Trial()
    look(trial, {"bad": 1}, {"good": 1})
    for _ in range(20):
        look(trial, {}, {"good": 190})
    assert not look(trial, {"bad": 9}, {"good": 1, "bad": 8})
    assert trial.evidence.failing.requests == 9


def test_without_a_control_the_limit_alone_counts():
    trial = alone()
    trial.proxies[0].answer(CANDIDATE, bad=12)
    trial.look()
    assert assess(trial.evidence).all_fail.startswith("all of its last 12 requests failed. Evid")


@pytest.mark.parametrize(("percent", "needed"), [(1, 10_000), (50, 200)])
def test_its_part_of_the_chance(percent, needed):
    analysis = Analysis(max_false_rollback_percent=percent)
    assert begin("t", analysis, at=0).failing.needed == needed
    assert begin("t", analysis, at=0, trials=2).failing.needed == 2 * needed


def test_the_same_look_twice_changes_nothing_and_a_restart_neither():
    trial = Trial()
    look(trial, {"bad": 6}, {"good": 80})
    before = trial.evidence
    assert observe(before, trial.sample()) == before
    trial.reload()
    assert trial.evidence == before
    assert look(trial, {"bad": 6}, {"good": 80})


@given(
    requests=st.integers(1, 20),
    control=st.integers(0, 20),
    rate=st.floats(0, 1),
    limit=st.sampled_from([0.001, 0.01, 0.05, 0.5, 1.0]),
)
def test_a_candidate_at_its_limit_has_evidence_of_one_half_at_most(requests, control, rate, limit):
    """The mean over all outcomes, whatever stable's rate: so it reaches E in 1 of E rollouts."""
    fails = min(1.0, max(limit, 2 * rate))
    mean = 0.0
    for failed in range(control + 1):
        chance = math.comb(control, failed) * rate**failed * (1 - rate) ** (control - failed)
        run = FailingRun(limit, 1.0).add((requests, requests), (control, failed), at=0)
        mean += fails**requests * chance * run.evidence
    assert mean <= 0.5 + 1e-9
