"""Failures of one kind of requests among many that are fine."""

import random

import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, Trial
from tests.analysis.test_alone import alone

from speculative_operator.analysis import assess
from speculative_operator.analysis.kinds import KindEvidence
from speculative_operator.analysis.observing import error_sides
from speculative_operator.analysis.windows import Window
from speculative_operator.decision import MetricVerdict, Outcome

FORMAT = "structured"
LOOKS, SECONDS = 60, 5.0


def errors(trial: Trial) -> MetricVerdict:
    return next(m for m in assess(trial.evidence).metrics if m.name == "ErrorRate")


def five_minutes(
    trial: Trial,
    *,
    failures: int = 6,
    stable_failures: int = 0,
    kind: str = FORMAT,
    shown: bool = True,
) -> MetricVerdict:
    """H05 c: 400 plain requests and 40 for a format on the canary, 1,600 and 160 on stable."""
    proxy = trial.proxies[0]
    sent = [0, 0]
    for look in range(1, LOOKS + 1):
        for arm, (revision, many, bad) in enumerate(
            ((CANDIDATE, 40, failures), (CONTROL, 160, stable_failures))
        ):
            due = many * look // LOOKS - many * (look - 1) // LOOKS
            # In the middle of each of so many parts.
            half = LOOKS // 2
            failed = (bad * look + half) // LOOKS - (bad * (look - 1) + half) // LOOKS
            answer = proxy.answer_kind if shown else lambda r, _, **n: proxy.answer(r, **n)
            answer(revision, kind, good=due - failed, bad=failed)
            proxy.answer(revision, good=10 * due)
            sent[arm] += 11 * due
        trial.look(SECONDS)
    assert sent == [440, 1760]
    return errors(trial)


def test_a_failing_kind_is_rolled_back_though_all_others_are_fine():
    found = five_minutes(Trial())
    assert found.outcome == Outcome.FAILED
    assert "errors 6 of " in found.message
    assert "of requests for a format 6 of 3" in found.message
    assert "(0 %) on stable, limit 1 % or stable's" in found.message


def test_it_needs_the_evidence_that_every_metric_needs():
    trial = Trial()
    five_minutes(trial)
    (kind,) = trial.evidence.kinds
    assert kind.stake == 0.25
    with_a_guard = 2 * trial.evidence.needed_worse
    assert 0.9 * 0.25 * kind.worse > with_a_guard > 0.9 * trial.evidence.errors.worse


@pytest.mark.parametrize(
    ("change", "outside"),
    [
        pytest.param({"shown": False}, True, id="kinds not told apart"),
        pytest.param({"failures": 0}, False, id="H05 d: log lines alone"),
        pytest.param({"failures": 2}, False, id="two"),
        pytest.param({"stable_failures": 24}, False, id="stable fails them as often"),
        pytest.param({"kind": "unheard-of"}, True, id="a kind that nobody knows"),
    ],
)
def test_what_is_not_rolled_back(change, outside):
    found = five_minutes(Trial(), **change)
    assert (found.outcome, found.outside_limit) == (Outcome.INCONCLUSIVE, outside)


def test_where_sessions_stay_with_a_revision_kinds_are_not_judged():
    trial = Trial()
    trial.sticky = True
    assert five_minutes(trial).outcome == Outcome.INCONCLUSIVE
    assert trial.evidence.kinds == ()


def test_without_a_control_the_limit_alone_counts():
    found = five_minutes(alone())
    assert found.outcome == Outcome.FAILED


def test_a_burst_is_no_proof_but_holds():
    trial = Trial()
    proxy = trial.proxies[0]
    for look in range(30):
        proxy.answer_kind(CANDIDATE, FORMAT, good=5, bad=20 if look == 9 else 0)
        proxy.answer_kind(CONTROL, FORMAT, good=20)
        trial.look()
    assert errors(trial).outcome == Outcome.INCONCLUSIVE
    assert trial.evidence.kinds[0].worse == 0


def test_many_requests_of_a_kind_are_not_hidden_by_their_number():
    """15 percent of 1,000 a block, in a sea of others."""
    trial = Trial()
    proxy = trial.proxies[0]
    for _ in range(20):
        proxy.answer(CANDIDATE, good=20_000)
        proxy.answer_kind(CANDIDATE, FORMAT, good=850, bad=150)
        proxy.answer_kind(CONTROL, FORMAT, good=4_000)
        trial.look()
    assert errors(trial).outcome == Outcome.FAILED


def test_an_incident_of_both_at_a_larger_weight_is_nobody_s_fault():
    trial = Trial()
    proxy = trial.proxies[0]
    for look in range(120):
        large = look > 60
        trial.weight = 50 if large else 5
        ours, theirs = (100, 100) if large else (10, 190)
        bad = 10 if 70 < look < 90 else 0
        proxy.answer_kind(CANDIDATE, FORMAT, good=ours - bad, bad=bad)
        proxy.answer_kind(CONTROL, FORMAT, good=theirs - bad, bad=bad)
        trial.look()
    assert errors(trial).outcome != Outcome.FAILED
    assert trial.evidence.kinds[0].worse < 1


def test_a_kind_that_begins_to_fail_late_is_found():
    trial = Trial()
    proxy = trial.proxies[0]
    for look in range(240):
        proxy.answer_kind(CANDIDATE, FORMAT, good=3, bad=look > 180 and look % 2)
        proxy.answer_kind(CONTROL, FORMAT, good=13)
        trial.look()
    assert errors(trial).outcome == Outcome.FAILED


def test_a_kind_s_stake_is_taken_from_that_of_all_requests():
    """The whole is what all requests have, at the moment at which a kind is first seen."""
    trial = Trial()
    proxy = trial.proxies[0]
    for _ in range(10):
        proxy.answer(CANDIDATE, good=50, bad=1)
        proxy.answer(CONTROL, good=50)
        trial.look()
    before = trial.evidence
    proxy.answer_kind(CANDIDATE, FORMAT, good=1)
    proxy.answer_kind(CANDIDATE, "tools", good=1)
    trial.look(1)
    after = trial.evidence
    assert [kind.name for kind in after.kinds] == [FORMAT, "tools"]
    assert error_sides(after)[0] == pytest.approx(error_sides(before)[0])


def test_a_restarted_operator_goes_on():
    plain, reloaded = Trial(), Trial()
    for trial in (plain, reloaded):
        five_minutes(trial, failures=4)
    reloaded.reload()
    assert reloaded.evidence == plain.evidence
    assert five_minutes(reloaded) == five_minutes(plain)


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), [(0.01, 0.001), (0.03, 0.03), (0.2, 0.2)])
def test_at_the_limit_a_kind_reaches_e_in_one_of_e_trials(ours: float, theirs: float) -> None:
    """400 seeded trials of 50 blocks, failures in pairs; looked at after each."""
    reached = sum(_ever(random.Random(seed), ours=ours, theirs=theirs) for seed in range(400))
    assert reached <= 400 / 20


def _ever(chance: random.Random, *, ours: float, theirs: float) -> bool:
    """Whether evidence of 20 was ever reached."""
    kind = KindEvidence(FORMAT, 0.01, 1.0, Window.empty(2))
    for _ in range(50):
        requests, control = chance.randint(3, 12), chance.randint(10, 40)
        failures = 2 * sum(chance.random() < ours / 2 for _ in range(requests))
        failed = 2 * sum(chance.random() < theirs / 2 for _ in range(control))
        kind = kind.with_block(
            (requests, min(failures, requests)), (control, min(failed, control)), weight=20
        )
        if kind.worse >= 20:
            return True
    return False
