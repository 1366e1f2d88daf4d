"""A whole trial: thresholds, outcomes, messages, restart, latch."""

import json

import pytest
from tests.analysis.looks import CANDIDATE as NEW
from tests.analysis.looks import CONTROL as OLD
from tests.analysis.looks import NEEDED, Engine, Trial

from speculative_api.assessment import one_in
from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import Analysis, MetricCheck, MetricName
from speculative_operator.analysis import assess, begin, continues
from speculative_operator.decision import MetricVerdict, Outcome

ACCEPTANCE, ERRORS = 0, 1


def go(trial: Trial, blocks: int, *, accepted: int, drafted: int | None = None) -> None:
    """Blocks with 4 candidate and 6 control requests; stable accepts about 2 per step."""
    for block in range(blocks):
        trial.new.serve(4, 60, accepted + block % 3 * bool(accepted), drafted)
        trial.old.serve(6, 50, 100 + block % 4)
        trial.proxies[0].answer(NEW, good=4)
        trial.proxies[0].answer(OLD, good=6)
        trial.look()


def verdict(trial: Trial, index: int = ACCEPTANCE) -> MetricVerdict:
    return assess(trial.evidence).metrics[index]


def test_useless_draft_fails_with_the_arithmetic():
    trial = Trial()
    go(trial, 6, accepted=0)
    found = verdict(trial)
    assert assess(trial.evidence).failed == found
    assert (found.outcome, found.reason) == (Outcome.FAILED, Reason.ACCEPTANCE_WORSE)
    assert found.worse >= found.needed_worse == NEEDED
    assert "acceptance length 1.00 tokens per step on the candidate, 3.03 on stable" in (
        found.message
    )
    assert "0 % of what stable does, limit 90 %" in found.message
    assert "(needed 1 in 200)" in found.message


def test_equal_draft_passes():
    trial = Trial()
    go(trial, 20, accepted=120)
    assert verdict(trial).outcome == Outcome.PASSED
    assert verdict(trial).reason == Reason.NOT_WORSE
    assert not assess(trial.evidence).all_passed  # errors need about a thousand requests


def test_larger_k_with_a_lower_rate_passes():
    """H10 a: rate 0.60 -> 0.36, length 2.8 -> 3.5."""
    trial = Trial()
    trial.new.k, trial.old.k = 7, 3
    for block in range(20):
        trial.new.serve(4, 1000, 2500 + 20 * (block % 3), drafted=7000)
        trial.old.serve(6, 1000, 1800 + 20 * (block % 4), drafted=3000)
        trial.look()
    assert verdict(trial).outcome == Outcome.PASSED


def test_shorter_length_at_the_same_k_fails():
    """H10 b: length 3.5 -> 2.6, only the engine differs."""
    trial = Trial()
    for block in range(20):
        trial.new.serve(4, 1000, 1600 + 20 * (block % 3), drafted=7000)
        trial.old.serve(6, 1000, 2500 + 20 * (block % 4), drafted=7000)
        trial.look()
    assert verdict(trial).outcome == Outcome.FAILED


def test_candidate_without_drafts_is_inconclusive():
    """H14 d: 60 requests whose prompts were too short to draft anything."""
    trial = Trial()
    go(trial, 15, accepted=0, drafted=0)
    found = verdict(trial)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    assert not found.measured
    assert "drafted no token in 60 requests" in found.message
    assert verdict(trial, ERRORS).measured


def test_first_draft_brings_in_all_the_steps_before_it():
    trial = Trial()
    go(trial, 3, accepted=0, drafted=0)
    go(trial, 1, accepted=9, drafted=20)
    assert trial.evidence.acceptance.total.candidate_exposure == 4 * 60


@pytest.mark.parametrize(
    "change, words",
    [
        pytest.param({"method": "None"}, "the candidate does not speculate", id="method None"),
        pytest.param({"accepted": None}, "no block with enough requests", id="counter absent"),
        pytest.param({"silent": True}, "no digest from the candidate yet", id="silent"),
    ],
)
def test_absent_counters_are_not_zero(change, words):
    trial = Trial(engines=[Engine(NEW, "new", **change), Engine(OLD, "old")])
    for _ in range(10):
        if "accepted" not in change:
            trial.new.serve(4, 60, 0)
        trial.old.serve(6, 50, 100)
        trial.look()
    found = verdict(trial)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    assert words in found.message


def test_stable_without_speculation_is_nothing_to_compare_with():
    trial = Trial(engines=[Engine(NEW, "new"), Engine(OLD, "old", method="None")])
    go(trial, 10, accepted=60)
    assert "stable does not speculate" in verdict(trial).message
    assert verdict(trial).outcome == Outcome.INCONCLUSIVE


def test_silent_gateways_leave_errors_not_measured():
    trial = Trial()
    trial.proxies[0].silent = True
    trial.evidence = begin("r2", trial.analysis, at=trial.at)
    go(trial, 10, accepted=120)
    found = verdict(trial, ERRORS)
    assert (found.outcome, found.measured) == (Outcome.INCONCLUSIVE, False)
    assert found.message == "errors not measured: no gateway agent has answered"
    assert assess(trial.evidence).candidate_requests == 36  # the first look is the baseline


def test_nothing_at_all_is_inconclusive():
    trial = Trial()
    for _ in range(30):
        trial.look()
    assert {m.outcome for m in assess(trial.evidence).metrics} == {Outcome.INCONCLUSIVE}
    assert assess(trial.evidence).candidate_requests == 0


def test_failing_requests_fail_and_name_both_arms():
    trial = Trial()
    for _ in range(12):
        trial.proxies[0].answer(NEW, good=5, bad=4, cut=1)
        trial.proxies[0].answer(OLD, good=9)
        trial.look()
    found = verdict(trial, ERRORS)
    assert (found.outcome, found.reason) == (Outcome.FAILED, Reason.ERRORS_WORSE)
    assert "(56 %) on the candidate" in found.message
    assert "(0 %) on stable, limit 1 % or twice stable's" in found.message


def answers(trial: Trial, blocks: int, *, client: int, stable_client: int) -> MetricVerdict:
    """Blocks of 50 requests each, some of them answered 4xx."""
    for _ in range(blocks):
        trial.proxies[0].answer(NEW, good=50 - client, client=client)
        trial.proxies[0].answer(OLD, good=50 - stable_client, client=stable_client)
        trial.look()
    return verdict(trial, ERRORS)


@pytest.mark.parametrize(
    "client, stable_client, outcome",
    [
        pytest.param(10, 0, Outcome.FAILED, id="only the canary refuses"),
        pytest.param(10, 9, Outcome.PASSED, id="clients do it everywhere"),
        pytest.param(0, 9, Outcome.PASSED, id="only stable refuses"),
        pytest.param(0, 0, Outcome.PASSED, id="none"),
    ],
)
def test_a_4xx_share_that_only_the_candidate_shows_counts(client, stable_client, outcome):
    found = answers(Trial(), 30, client=client, stable_client=stable_client)
    assert found.outcome == outcome
    if client or stable_client:
        shares = f"answered 4xx: {2 * client} % and {2 * stable_client} %"
        assert shares in found.message


def test_4xx_do_not_count_where_sessions_stay_with_a_revision():
    trial = Trial()
    trial.sticky = True
    found = answers(trial, 30, client=10, stable_client=0)
    assert found.outcome == Outcome.PASSED
    assert "4xx not counted, since sessions stay with a revision" in found.message


def test_refused_requests_are_no_failed_start():
    trial = Trial()
    answers(trial, 12, client=50, stable_client=0)
    assert trial.evidence.errors.total.candidate_hits == 0
    assert assess(trial.evidence).all_fail == ""


@pytest.mark.parametrize("failures, outside", [(6, True), (2, False)])
def test_a_failing_minority_holds_whatever_the_other_metrics_say(failures, outside):
    """H05 c: 40 of 440 requests of a kind that fails in 6 of 40; acceptance is fine."""
    trial = Trial()
    for block in range(20):
        bad = 1 if block < failures else 0
        trial.new.serve(22, 60, 200 + block % 3)
        trial.old.serve(88, 240, 500 + block % 4)
        trial.proxies[0].answer(NEW, good=22 - bad, bad=bad)
        trial.proxies[0].answer(OLD, good=88)
        trial.look()
    assert verdict(trial).outcome == Outcome.PASSED
    assert verdict(trial, ERRORS).outcome == Outcome.INCONCLUSIVE
    assert verdict(trial, ERRORS).outside_limit is outside
    assert f"errors {failures} of 440 requests" in verdict(trial, ERRORS).message


def test_incident_that_both_arms_share_rolls_nothing_back():
    trial = Trial()
    for _ in range(60):
        trial.proxies[0].answer(NEW, good=4, bad=4)
        trial.proxies[0].answer(OLD, good=4, bad=4)
        trial.look()
    assert verdict(trial, ERRORS).outcome == Outcome.INCONCLUSIVE


def test_stream_cut_in_a_later_block_still_counts_once():
    trial = Trial()
    trial.proxies[0].answer(NEW, good=3)
    trial.proxies[0].answer(OLD, good=3)
    trial.look()
    trial.proxies[0].answer(NEW, good=3, cut=6)
    trial.proxies[0].answer(OLD, good=3)
    trial.look()
    assert trial.evidence.errors.total.candidate_hits == 3
    assert trial.evidence.carried == (3, 0)
    trial.proxies[0].answer(NEW, good=4)
    trial.proxies[0].answer(OLD, good=4)
    trial.look()
    assert trial.evidence.errors.total.candidate_hits == 6


def test_failed_stays_failed_whatever_comes_after():
    trial = Trial()
    go(trial, 6, accepted=0)
    before = verdict(trial)
    go(trial, 60, accepted=300)
    assert verdict(trial) == before
    trial.reload()
    assert verdict(trial) == before


def test_reloading_after_every_look_gives_identical_bits():
    plain, reloaded = Trial(), Trial()
    for block in range(70):
        for trial in (plain, reloaded):
            go(trial, 1, accepted=100 + block % 5)
        reloaded.reload()
    assert reloaded.evidence == plain.evidence
    assert assess(reloaded.evidence) == assess(plain.evidence)


def test_evidence_of_a_long_trial_with_many_pods_is_small():
    engines = [Engine(NEW, f"{i:036d}") for i in range(2)]
    engines += [Engine(OLD, f"{i:036d}") for i in range(10, 18)]
    trial = Trial(engines=engines)
    for step in range(400):
        for engine in engines:
            engine.serve(5, 70, 100 + step % 7)
        trial.proxies[0].answer(NEW, good=9)
        trial.proxies[0].answer(OLD, good=40, bad=step % 17 == 0)
        trial.look()
    assert trial.evidence.acceptance.blocks == 400
    text = json.dumps(trial.evidence.to_json(), separators=(",", ":"))
    assert len(text) < 10_000


def test_limits_and_chance_are_shared_by_the_metrics():
    one = Analysis(metrics=[MetricCheck(name=MetricName.ERROR_RATE, max_percent=5)])
    evidence = begin("r2", one, at=0)
    assert evidence.needed_worse == NEEDED / 2
    assert evidence.errors.limit == 0.05
    assert [m.name for m in assess(evidence).metrics] == ["ErrorRate"]
    assert begin("r2", Analysis(max_false_rollback_percent=4), at=0).needed_worse == NEEDED / 4


def test_limits_may_have_decimals():
    tight = Analysis.model_validate(
        {
            "maxFalseRollbackPercent": "0.5",
            "metrics": [{"name": "ErrorRate", "maxPercent": "0.1"}],
        }
    )
    trial = Trial(analysis=tight)
    assert trial.evidence.needed_worse == NEEDED
    for _ in range(12):
        trial.proxies[0].answer(NEW, good=980, bad=20)
        trial.proxies[0].answer(OLD, good=1000)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.FAILED
    assert "limit 0.1 % or twice stable's" in found.message


@pytest.mark.parametrize("written", [2, "2", "2.0"])
def test_a_limit_is_the_same_however_it_is_written(written):
    metric = {"name": "ErrorRate", "maxPercent": 2}
    before = begin("r2", Analysis.model_validate({"metrics": [metric]}), at=0)
    other = Analysis.model_validate({"metrics": [metric | {"maxPercent": written}]})
    assert continues(before, "r2", other)


@pytest.mark.parametrize(
    "trial, analysis, same",
    [
        pytest.param("r2", Analysis(), True, id="same"),
        pytest.param("r2", Analysis(period_seconds=30), True, id="other period"),
        pytest.param("r3", Analysis(), False, id="other trial"),
        pytest.param("r2", Analysis(max_false_rollback_percent=2), False, id="other chance"),
        pytest.param(
            "r2",
            Analysis(
                metrics=[
                    MetricCheck(name=MetricName.ACCEPTANCE_LENGTH, min_percent_of_stable=95),
                    MetricCheck(name=MetricName.ERROR_RATE),
                ]
            ),
            False,
            id="other limit",
        ),
    ],
)
def test_changed_limits_are_a_new_test(trial, analysis, same):
    assert continues(begin("r2", Analysis(), at=0), trial, analysis) is same


@pytest.mark.parametrize(
    "evidence, words",
    [
        (0.3, "1 in 1"),
        (8.9, "1 in 8"),
        (20, "1 in 20"),
        (4321.9, "1 in 4,300"),
        (1e99, "1 in 1,000,000"),
    ],
)
def test_evidence_is_rounded_down(evidence, words):
    assert one_in(evidence) == words
