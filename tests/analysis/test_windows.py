"""Counters become increments and blocks: resets, loss, weights, freshness."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.looks import CANDIDATE as NEW
from tests.analysis.looks import CONTROL as OLD
from tests.analysis.looks import Engine, Proxy, Trial

from speculative_operator.analysis import observe
from speculative_operator.analysis.windows import (
    CANDIDATE,
    CONTROL,
    Block,
    Reading,
    Seen,
    Window,
    advance,
    increment,
)

FEW = settings(max_examples=40, deadline=None)


def served(trial: Trial, *, blocks: int = 1, accepted: tuple[int, int] = (60, 60)) -> None:
    for _ in range(blocks):
        trial.new.serve(4, 40, accepted[0])
        trial.old.serve(6, 50, accepted[1])
        trial.look()


@pytest.mark.parametrize(
    "mark, counters, expected",
    [
        pytest.param(0.0, (30, 900), (10, 400), id="ordinary"),
        pytest.param(0.0, (3, 120), (3, 120), id="fallen value"),
        pytest.param(7.0, (40, 600), (40, 600), id="new process overtook the old value"),
        pytest.param(0.2, (30, 900), (10, 400), id="start time rounded differently"),
        pytest.param(0.0, (25, 100), (25, 100), id="one fallen value resets all"),
    ],
)
def test_increment_after_a_reset_is_the_new_value_alone(mark, counters, expected):
    before = Seen("candidate", 0.0, 1.0, 1.0, 0.0, (20, 500))
    assert increment(before, Reading("p", "candidate", mark, 2.0, counters)) == expected


@FEW
@given(
    before=st.tuples(st.integers(0, 10**15), st.integers(0, 10**15)),
    now=st.tuples(st.integers(0, 10**15), st.integers(0, 10**15)),
    mark=st.sampled_from([0.0, 9.0]),
)
def test_increment_is_never_negative(before, now, mark):
    seen = Seen("candidate", 0.0, 1.0, 1.0, 0.0, before)
    assert min(increment(seen, Reading("p", "candidate", mark, 2.0, now))) >= 0


def test_first_sample_of_a_pod_is_a_baseline():
    trial = Trial(
        engines=[
            Engine(NEW, "new", requests=500, generated=9000, accepted=10, drafted=9000),
            Engine(OLD, "old", requests=9000, generated=10**6, accepted=10**5, drafted=10**6),
        ]
    )
    served(trial)
    total = trial.evidence.acceptance.total
    assert (total.candidate_hits, total.candidate_exposure) == (60, 40)
    assert (total.control_hits, total.control_exposure) == (60, 50)


def test_restart_that_overtook_the_old_value_gives_no_false_window():
    """H13's trap: a plain difference would say 1 accepted of 35 instead of 7 of 35."""
    trial = Trial()
    trial.new.serve(4, 28, 6, drafted=100)
    trial.look(5)
    trial.new.restart(trial.at)
    trial.new.serve(5, 35, 7, drafted=110)
    trial.old.serve(6, 50, 50)
    trial.look(5)
    total = trial.evidence.acceptance.total
    assert (total.candidate_hits, total.candidate_exposure) == (13, 63)


def test_pods_of_one_arm_are_pooled_not_averaged():
    """H12: sums over engines, then one ratio; an idle engine adds nothing."""
    trial = Trial(
        engines=[
            Engine(NEW, "new"),
            Engine(OLD, "old"),
            Engine(NEW, "new-busy"),
            Engine(NEW, "idle"),
        ]
    )
    trial.new.serve(3, 10, 18)
    trial.engines[2].serve(30, 1000, 300)
    trial.old.serve(6, 50, 60)
    trial.look()
    total = trial.evidence.acceptance.total
    assert total.candidate_hits / total.candidate_exposure == pytest.approx(318 / 1010)


def test_splitting_a_pod_in_two_changes_nothing():
    one, two = (
        Trial(),
        Trial(engines=[Engine(NEW, "a"), Engine(OLD, "old"), Engine(NEW, "b")]),
    )
    for step in range(12):
        for trial in (one, two):
            trial.old.serve(6, 50, 55 + step)
        one.new.serve(6, 40 + step, 45)
        two.new.serve(2, 10, 13)
        two.engines[2].serve(4, 30 + step, 32)
        one.look()
        two.look()
    assert one.evidence.acceptance == two.evidence.acceptance
    assert one.evidence.acceptance.blocks == 12


def test_block_that_straddles_a_weight_change_is_dropped():
    trial = Trial()
    trial.new.serve(4, 40, 0)
    trial.look(5)
    trial.weight = 100
    trial.new.serve(4, 40, 0)
    trial.old.serve(6, 50, 60)
    trial.look(5)
    assert trial.evidence.acceptance.blocks == 0
    assert trial.evidence.workers.dropped == 1
    served(trial)
    assert trial.evidence.acceptance.total.candidate_hits == 60


@pytest.mark.parametrize(
    "requests, seconds, closes",
    [
        pytest.param((3, 3), 10.0, True, id="enough"),
        pytest.param((2, 30), 10.0, False, id="two candidate requests"),
        pytest.param((30, 2), 10.0, False, id="two control requests"),
        pytest.param((30, 30), 9.9, False, id="too short"),
    ],
)
def test_block_closes_by_exposure(requests, seconds, closes):
    trial = Trial()
    trial.new.serve(requests[0], 40, 50)
    trial.old.serve(requests[1], 40, 50)
    trial.look(seconds)
    assert trial.evidence.acceptance.blocks == closes


def test_silent_pod_holds_the_block_and_merges_when_it_is_back():
    trial = Trial()
    trial.new.silent = True
    served(trial, blocks=2)
    assert trial.evidence.acceptance.blocks == 0
    trial.new.silent = False
    served(trial)
    assert trial.evidence.acceptance.blocks == 1
    assert trial.evidence.acceptance.total.candidate_hits == 180


def test_pod_silent_for_a_minute_costs_the_block():
    trial = Trial()
    trial.new.silent = True
    served(trial, blocks=7)
    trial.new.silent = False
    served(trial, blocks=2)
    assert trial.evidence.workers.dropped == 1
    assert trial.evidence.acceptance.total.candidate_hits == 60


def test_pod_that_appears_inside_a_block_counts_from_the_next():
    trial = Trial()
    trial.engines.append(Engine(NEW, "later", requests=100, generated=900, drafted=900))
    trial.look(5)
    trial.engines[2].serve(50, 500, 0)
    trial.new.serve(4, 40, 60)
    trial.old.serve(6, 50, 60)
    trial.look(5)
    assert trial.evidence.acceptance.total.candidate_exposure == 40
    trial.engines[2].serve(4, 30, 45)
    served(trial)
    assert trial.evidence.acceptance.total.candidate_exposure == 40 + 40 + 30


def test_arm_without_pods_closes_nothing():
    trial = Trial()
    trial.new.serve(4, 40, 0)
    trial.look(5)
    trial.new.gone = True
    trial.old.serve(9, 80, 90)
    trial.look(5)
    trial.look()
    assert trial.evidence.acceptance.blocks == 0
    assert trial.evidence.workers.block is None


def test_the_same_answer_twice_adds_nothing():
    trial = Trial()
    trial.new.serve(4, 40, 60)
    trial.old.serve(6, 50, 60)
    sample = trial.sample()
    trial.look(5)
    again = observe(trial.evidence, replace(trial.sample(), at=trial.at))
    assert again.workers.candidate == trial.evidence.workers.candidate
    late = observe(trial.evidence, replace(sample, at=trial.at + 1))
    assert late.workers.candidate == trial.evidence.workers.candidate


def test_envoy_restart_counts_its_new_values_alone():
    trial = Trial()
    trial.proxies[0].answer(NEW, good=90)
    trial.proxies[0].answer(OLD, good=90)
    trial.look()
    trial.proxies[0] = Proxy(started_at=trial.at)
    trial.proxies[0].answer(NEW, good=95, bad=1)
    trial.proxies[0].answer(OLD, good=91)
    trial.look()
    total = trial.evidence.errors.total
    assert (total.candidate_hits, total.candidate_exposure) == (1, 90 + 96)


def test_gateways_are_pooled():
    trial = Trial(proxies=[Proxy("first"), Proxy("second")])
    for proxy in trial.proxies:
        proxy.answer(NEW, good=5, bad=1)
        proxy.answer(OLD, good=10)
    trial.look()
    total = trial.evidence.errors.total
    assert (total.candidate_hits, total.candidate_exposure) == (2, 12)


@FEW
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([3.0, 5.0, 12.0])),
        max_size=25,
    ),
    st.data(),
)
def test_block_boundaries_depend_on_exposure_only(looks, data):
    def ends(hits: list[tuple[int, int]]) -> list[float]:
        window, at, closed = Window.empty(2), 0.0, []
        counts = {CANDIDATE: [0, 0], CONTROL: [0, 0]}
        for (ours, theirs, seconds), (bad, other) in zip(looks, hits, strict=True):
            at += seconds
            for arm, requests, more in ((CANDIDATE, ours, bad), (CONTROL, theirs, other)):
                counts[arm][0] += requests
                counts[arm][1] += more
            readings = [
                Reading(arm, arm, 0.0, at, (requests, hit))
                for arm, (requests, hit) in counts.items()
            ]
            window, block = advance(window, readings, at=at, weight=5, present={CANDIDATE, CONTROL})
            if block is not None:
                closed.append(at)
        return closed

    outcome = st.tuples(st.integers(0, 99), st.integers(0, 99))
    same_length = st.lists(outcome, min_size=len(looks), max_size=len(looks))
    assert ends(data.draw(same_length)) == ends(data.draw(same_length))


@FEW
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["serve", "restart", "silent", "back", "gone", "weight", "look"]),
            st.integers(0, 1),
        ),
        max_size=40,
    )
)
def test_whatever_happens_no_block_is_short_negative_or_one_sided(events):
    trial = Trial()
    blocks: list[Block] = []
    for event, index in events:
        engine = trial.engines[index]
        if event == "serve":
            engine.serve(5, 40, 30)
        elif event == "restart":
            engine.restart(trial.at)
        elif event in ("silent", "back"):
            engine.silent = event == "silent"
        elif event == "gone":
            engine.gone = not engine.gone
        elif event == "weight":
            trial.weight = 60 if trial.weight == 50 else 50
        before = trial.evidence
        trial.look(5)
        if trial.evidence.acceptance.blocks > before.acceptance.blocks:
            assert before.workers.block is not None
            blocks.append(before.workers.block)
            assert trial.at - before.workers.block.began_at >= 10
            assert before.workers.block.weight == trial.weight
            assert not any(e.silent and not e.gone for e in trial.engines)
    total = trial.evidence.acceptance.total
    assert total.candidate_exposure >= len(blocks)
    assert min(total.candidate_hits, total.control_hits, total.control_exposure) >= 0


def _counted(window: Window, at: float, **counters: tuple[int, int]) -> tuple[Window, Block | None]:
    """A look at two pods of control, `a` and `b`, and one of the candidate."""
    arms = {"a": CONTROL, "b": CONTROL, "new": CANDIDATE}
    readings = [Reading(pod, arms[pod], 0.0, at, seen) for pod, seen in counters.items()]
    return advance(window, readings, at=at, weight=5, present=set(arms))


def test_a_block_knows_what_every_pod_of_control_gained_in_it():
    window, _ = _counted(Window.empty(2), 0, a=(10, 1), b=(20, 2), new=(0, 0))
    window, _ = _counted(window, 5, a=(13, 2), b=(20, 2), new=(4, 0))
    window = Window.from_json(json.loads(json.dumps(window.to_json())))
    window, block = _counted(window, 10, a=(14, 4), b=(25, 3), new=(8, 0))
    assert block is not None
    assert sorted(block.pods) == [(4, 3), (5, 1)]
    window, _ = _counted(window, 15, a=(15, 4), b=(26, 3), new=(12, 0))
    window, block = _counted(window, 20, a=(17, 4), b=(28, 9), new=(16, 0))
    assert block is not None
    assert sorted(block.pods) == [(3, 0), (3, 6)]


def test_the_window_of_an_older_operator_is_read():
    window, _ = _counted(Window.empty(2), 0, a=(10, 1), b=(20, 2), new=(0, 0))
    window, _ = _counted(window, 5, a=(13, 2), b=(20, 2), new=(4, 0))
    old = window.to_json()
    old["seen"] = {key: seen[:6] for key, seen in old["seen"].items()}
    read = Window.from_json(json.loads(json.dumps(old)))
    assert read.seen["a"].counters == (13, 2)
    assert read.block == window.block
    _, block = _counted(read, 10, a=(14, 4), b=(25, 3), new=(8, 0))
    assert block is not None
    assert block.control == (9, 4)
