"""AcceptanceRate, TokensPerSecond, Restarts and the bounds that stand for themselves."""

from typing import Any

import pytest
from tests.analysis.looks import CANDIDATE as NEW
from tests.analysis.looks import CONTROL as OLD
from tests.analysis.looks import NEEDED, Engine, Trial

from speculative_api.conditions import Reason, WorkerReason
from speculative_api.v1alpha1 import Analysis, MetricCheck
from speculative_api.worker import Termination
from speculative_operator.analysis import assess, begin, continues
from speculative_operator.decision import MetricVerdict, Outcome


def judged_by(*checks: dict[str, Any]) -> Analysis:
    return Analysis(metrics=[MetricCheck.model_validate(check) for check in checks])


def a_trial(
    check: dict[str, Any],
    *,
    new: dict[str, Any] | None = None,
    old: dict[str, Any] | None = None,
) -> Trial:
    engines = [Engine(NEW, "new", **(new or {})), Engine(OLD, "old", **(old or {}))]
    return Trial(engines=engines, analysis=judged_by(check))


def verdict(trial: Trial) -> MetricVerdict:
    return assess(trial.evidence).metrics[0]


def draft(
    trial: Trial, *, accepted: int, stable: int = 200, drafted: int = 400, blocks: int = 30
) -> MetricVerdict:
    """Blocks in which both arms draft; each accepts so many of what it drafts."""
    for block in range(blocks):
        trial.new.serve(5, 100, accepted + block % 5, drafted)
        trial.old.serve(9, 100, stable + block % 4, 400)
        trial.look()
    return verdict(trial)


RATE = {"name": "AcceptanceRate"}


@pytest.mark.parametrize(
    "accepted, outcome", [(202, Outcome.PASSED), (120, Outcome.FAILED)], ids=["equal", "less"]
)
def test_rate_is_compared_with_stable(accepted, outcome):
    found = draft(a_trial(RATE), accepted=accepted)
    assert found.outcome == outcome
    assert f"acceptance rate {(accepted + 2) / 4:.0f} % on the candidate, 50 % on stable" in (
        found.message
    )


@pytest.mark.parametrize(
    "new, words",
    [
        pytest.param({"k": 7}, "NGram with 4 draft tokens, NGram with 7 draft tokens", id="k"),
        pytest.param({"method": "DraftModel"}, "same method and numSpeculativeTokens", id="method"),
        pytest.param({"k": None}, "same method and numSpeculativeTokens", id="k unknown"),
        pytest.param({"silent": True}, "no digest from the candidate yet", id="silent"),
    ],
)
def test_rates_of_unlike_drafting_are_not_compared(new, words):
    """H10 a: rate 0.60 -> 0.36 with a larger k is no regression."""
    found = draft(a_trial(RATE, new=new), accepted=20)
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    assert not found.measured
    assert words in found.message


def test_a_rate_without_drafted_tokens_is_not_measured():
    trial = a_trial(RATE)
    for _ in range(10):
        for engine in (trial.new, trial.old):
            engine.serve(5, 100, 200)
            engine.drafted = None
        trial.look()
    assert not verdict(trial).measured
    assert "does not count what it drafts" in verdict(trial).message


@pytest.mark.parametrize("least, outcome", [(60, Outcome.FAILED), (40, Outcome.PASSED)])
def test_rate_has_a_bound_of_its_own(least, outcome):
    found = draft(a_trial(RATE | {"minPercent": least}), accepted=200)
    assert found.outcome == outcome
    assert f"limit 90 % of stable's and {least} %" in found.message


@pytest.mark.parametrize("least, outcome", [("3.5", Outcome.FAILED), ("2.5", Outcome.PASSED)])
def test_length_has_a_bound_of_its_own(least, outcome):
    found = draft(a_trial({"name": "AcceptanceLength", "min": least}), accepted=200)
    assert found.outcome == outcome
    assert f"limit 90 % and {least} tokens per step" in found.message


def test_a_few_steady_blocks_below_a_bound_are_judged_by_how_much_stable_moves():
    """Three requests that copy nothing look steady; where stable jumps, they prove nothing."""
    trial = a_trial({"name": "AcceptanceLength", "min": "2"})
    for block in range(6):
        trial.new.serve(3, 90, 0)
        trial.old.serve(3, 90, 300 * (block % 2))
        trial.look()
    assert verdict(trial).outcome == Outcome.INCONCLUSIVE
    assert verdict(trial).outside_limit


SPEED = {"name": "TokensPerSecond"}


def work(
    trial: Trial,
    *,
    tokens: int,
    running: tuple[int, int] = (8, 8),
    waiting: int = 0,
    blocks: int = 30,
    stable: int = 3000,
) -> MetricVerdict:
    """Blocks of 30 s after the warm-up; stable makes 100 tokens a second."""
    trial.new.running, trial.old.running = running
    trial.new.waiting = waiting
    trial.look(100)
    for block in range(blocks):
        trial.new.serve(20, tokens + 30 * (block % 3), 0)
        trial.old.serve(20, stable + 30 * (block % 4), 0)
        for _ in range(3):
            trial.look()
    return verdict(trial)


@pytest.mark.parametrize(
    "tokens, outcome, words",
    [(3000, Outcome.PASSED, "101.0 tokens"), (1980, Outcome.FAILED, "66.8 tokens")],
    ids=["equal", "slow"],
)
def test_speed_per_pod_is_compared_at_like_load(tokens, outcome, words):
    found = work(a_trial(SPEED), tokens=tokens)
    assert found.outcome == outcome
    assert f"{words} per second and pod on the candidate, 101." in found.message
    assert "8.0 requests at a time in a pod of the candidate, 8.0 in one of stable" in found.message


def test_slow_at_less_work_is_not_held_against_the_candidate():
    found = work(a_trial(SPEED), tokens=1000, running=(3, 8))
    assert found.outcome == Outcome.INCONCLUSIVE
    assert found.worse <= 1
    assert not found.outside_limit


def test_fast_at_more_work_is_no_proof():
    found = work(a_trial(SPEED), tokens=3300, running=(16, 8))
    assert (found.outcome, found.not_worse) == (Outcome.INCONCLUSIVE, pytest.approx(1.0))


def test_slow_at_more_work_fails():
    """An engine that falls behind collects requests: its own queue must not excuse it."""
    assert work(a_trial(SPEED), tokens=2000, running=(16, 8)).outcome == Outcome.FAILED


def test_good_alone_is_not_promoted_and_bad_in_a_crowd_fails():
    """H27: at 5 % the canary's pod has 8 requests where stable's have 20, and looks fine."""
    trial = a_trial(SPEED)
    alone = work(trial, tokens=2500, running=(8, 20), blocks=10)
    assert alone.outcome == Outcome.INCONCLUSIVE
    assert "8.0 requests at a time in a pod of the candidate, 20.0 in one of stable" in (
        alone.message
    )
    crowd = work(trial, tokens=2200, running=(20, 20), blocks=20)
    assert crowd.outcome == Outcome.FAILED


def test_idle_pods_have_no_speed():
    found = work(a_trial(SPEED), tokens=100, running=(0, 0), stable=3000)
    assert (found.outcome, found.measured) == (Outcome.INCONCLUSIVE, False)


def test_a_pod_that_is_warming_up_does_not_count():
    trial = a_trial(SPEED)
    for engine in trial.engines:
        engine.started_at = 1e9
    assert "no digest of the candidate" in work(trial, tokens=2000).message


@pytest.mark.parametrize("waiting, outcome", [(3, Outcome.FAILED), (0, Outcome.INCONCLUSIVE)])
def test_a_bound_on_speed_holds_for_full_pods_only(waiting, outcome):
    found = work(a_trial(SPEED | {"min": "150"}), tokens=3000, waiting=waiting)
    assert found.outcome == outcome
    assert "150 of a full pod" in found.message


RESTARTS = {"name": "Restarts"}


@pytest.mark.parametrize(
    "limit, ours, theirs, outcome",
    [
        pytest.param(0, 0, 0, Outcome.PASSED, id="none"),
        pytest.param(0, 1, 0, Outcome.FAILED, id="one is too many"),
        pytest.param(1, 1, 0, Outcome.PASSED, id="one is allowed"),
        pytest.param(0, 2, 1, Outcome.INCONCLUSIVE, id="stable's restart too"),
        pytest.param(0, 3, 1, Outcome.FAILED, id="far more than stable's"),
        pytest.param(0, 0, 2, Outcome.PASSED, id="only stable's"),
    ],
)
def test_restarts_are_counted_against_a_number_and_stable(limit, ours, theirs, outcome):
    """H02 c, H05 b: one crash under load fails a canary whose figures are fine."""
    trial = a_trial(RESTARTS | {"maxRestarts": limit})
    trial.look(100)
    trial.new.restarts, trial.old.restarts = ours, theirs
    trial.look()
    found = verdict(trial)
    assert found.outcome == outcome
    assert f"{ours} container restarts of 1 pods of the candidate, {theirs} of 1" in found.message


def test_restarts_before_a_pod_was_seen_do_not_count():
    trial = a_trial(RESTARTS, new={"restarts": 2})
    trial.look(100)
    assert verdict(trial).outcome == Outcome.PASSED


def test_restarts_for_want_of_a_hub_do_not_count():
    away = Termination(reason=WorkerReason.HUB_UNREACHABLE, retryable=True, detail="")
    trial = a_trial(RESTARTS, new={"end": away})
    trial.look(100)
    trial.new.restarts = 2
    trial.look()
    assert verdict(trial).outcome == Outcome.PASSED


def test_restarts_are_not_judged_before_a_minute():
    trial = a_trial(RESTARTS)
    trial.look(30)
    assert (verdict(trial).outcome, verdict(trial).measured) == (Outcome.INCONCLUSIVE, False)


def test_a_failed_count_stays_failed():
    trial = a_trial(RESTARTS)
    trial.look()
    trial.new.restarts = 1
    trial.look()
    trial.new.gone = True
    trial.old.restarts = 9
    trial.look()
    assert verdict(trial).outcome == Outcome.FAILED


@pytest.mark.parametrize(
    "checks, needed",
    [
        ([RATE], 100),
        ([RATE | {"minPercent": 30}], 200),
        ([{"name": "AcceptanceLength", "min": "2"}], 200),
        ([SPEED], 100),
        ([SPEED | {"min": "100"}], 200),
        ([RESTARTS], 100),
        ([RATE, RESTARTS], 100),
        ([RATE, SPEED, {"name": "ErrorRate"}], 300),
    ],
)
def test_every_bound_is_a_test_and_a_count_is_none(checks, needed):
    assert begin("r2", judged_by(*checks), at=0).needed_worse == pytest.approx(
        NEEDED * needed / 200
    )


@pytest.mark.parametrize(
    "before, after",
    [
        (RATE, RATE | {"minPercent": 30}),
        (SPEED, SPEED | {"minPercentOfStable": 80}),
        (RESTARTS, RESTARTS | {"maxRestarts": 1}),
        ({"name": "AcceptanceLength"}, {"name": "AcceptanceLength", "min": "2"}),
    ],
)
def test_changed_limits_are_a_new_test(before, after):
    evidence = begin("r2", judged_by(before), at=0)
    assert continues(evidence, "r2", judged_by(before))
    assert not continues(evidence, "r2", judged_by(after))


def test_reloading_after_every_look_gives_identical_bits():
    analysis = judged_by(
        {"name": "AcceptanceLength", "min": "2"}, RATE | {"minPercent": 30}, SPEED, RESTARTS
    )
    plain, reloaded = Trial(analysis=analysis), Trial(analysis=analysis)
    for trial in (plain, reloaded):
        for engine in trial.engines:
            engine.running = 4
    for block in range(40):
        for trial in (plain, reloaded):
            trial.new.restarts = block // 30
            draft(trial, accepted=150 + block, blocks=1)
        reloaded.reload()
    assert reloaded.evidence == plain.evidence
    assert assess(reloaded.evidence) == assess(plain.evidence)
