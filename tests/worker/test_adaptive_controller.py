"""The controller over engines of formulas: it finds the best length, follows, and costs little."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worker.adaptive_model import Engine, a_cost

from speculative_worker.adaptive.acceptance import Acceptance
from speculative_worker.adaptive.controller import (
    LOOK_SECONDS,
    TRIAL_STEPS,
    Controller,
    _bucket_of,
    ranges_of,
)
from speculative_worker.adaptive.cost import StepCost

GPU = a_cost(0.02, 0.0015, 0.00002)
PROCESSOR = a_cost(0.05, 0.012, 0.004)
BIG_DRAFT = a_cost(0.045, 0.02, 0.004)
LOOK_UP = a_cost(0.05, 0.0003, 0.008)
CLIFF = a_cost(0.02, 0.001, 0.002, free=32)
"""Verifying is free up to 32 tokens in a batch, then dear."""
COSTS = {"gpu": GPU, "processor": PROCESSOR, "big": BIG_DRAFT, "look-up": LOOK_UP, "cliff": CLIFF}
DRAFTS = {
    "perfect": [1.0],
    "useless": [0.014],
    "good": [0.8],
    "falling": [0.9, 0.6, 0.3],
    "copied": [0.7, 0.95],
    "rarely found": [0.08, 0.5],
}


def a_controller(**words):
    return Controller(**{"largest": 5, "max_batch": 64} | words)


def used(engine, batch, before):
    """Share of the best rate that the lengths used since would have on average."""
    steps = {k: engine.lengths[k] - before.get(k, 0) for k in engine.lengths}
    seconds = {k: count * engine.cost(batch, k, k) for k, count in steps.items()}
    tokens = sum(engine.rate(batch, k) * seconds[k] for k in seconds)
    return tokens / sum(seconds.values()) / engine.best(batch)[1]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("cost", COSTS)
def test_it_converges_to_within_3_percent_of_the_best_length(cost, draft, batch):
    engine, controller = Engine(COSTS[cost], DRAFTS[draft], seed=batch), a_controller()
    engine.run(controller, batch=batch, seconds=30)
    before = dict(engine.lengths)
    engine.run(controller, batch=batch, seconds=60)
    assert used(engine, batch, before) >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize(
    "first, then",
    [
        ("useless", "perfect"),
        ("perfect", "useless"),
        ("rarely found", "copied"),
        ("copied", "rarely found"),
    ],
)
@pytest.mark.parametrize("cost", ["gpu", "processor", "big", "look-up"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_changed_workload_is_followed_within_30_seconds(cost, first, then, batch, seed):
    engine = Engine(COSTS[cost], DRAFTS[first], seed=batch + seed, noise=0.1)
    controller = a_controller()
    engine.run(controller, batch=batch, seconds=60)
    engine.chances = DRAFTS[then]
    engine.run(controller, batch=batch, seconds=30)
    before = dict(engine.lengths)
    engine.run(controller, batch=batch, seconds=30)
    assert used(engine, batch, before) >= 0.93


@settings(max_examples=10, deadline=None)
@given(
    base=st.floats(0.01, 0.08),
    draft=st.floats(0.0, 0.03),
    token=st.floats(0.0, 0.004),
    chances=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5),
    batch=st.sampled_from([1, 3, 8]),
    noise=st.sampled_from([0.0, 0.1]),
)
def test_whatever_the_engine_is_like_it_is_never_much_worse_than_the_best(
    base, draft, token, chances, batch, noise
):
    engine = Engine(a_cost(base, draft, token), chances, noise=noise)
    controller = a_controller()
    engine.run(controller, batch=batch, seconds=40)
    before = dict(engine.lengths)
    engine.run(controller, batch=batch, seconds=40)
    assert set(engine.lengths) <= set(range(6))
    assert used(engine, batch, before) >= (0.93 if noise == 0 else 0.88)


def test_lengths_follow_the_batch_size():
    engine, controller = Engine(CLIFF, [1.0]), a_controller()
    for _ in range(40):
        for batch in (1, 48):
            engine.run(controller, batch=batch, seconds=2)
    assert controller.choice(1).k == 5
    assert controller.choice(48).k == 0


def test_a_machine_that_gets_slower_changes_no_estimate():
    slower = a_cost(0.05, 0.012, 0.004)
    engine, controller = Engine(PROCESSOR, [0.8]), a_controller()
    engine.run(controller, batch=1, seconds=40)
    before = controller.choice(1)
    engine.cost = lambda batch, verified, drafted: 3 * slower(batch, verified, drafted)
    engine.run(controller, batch=1, seconds=40)
    # Lengths 2 and 3 are equal within a percent here.
    assert abs(controller.choice(1).k - before.k) <= 1
    assert controller.choice(1).gain == pytest.approx(before.gain, rel=0.1)


def test_the_gain_is_that_over_plain_decoding():
    engine, controller = Engine(GPU, [1.0]), a_controller()
    engine.run(controller, batch=1, seconds=60)
    found = controller.choice(1)
    assert found.k == 5
    assert found.gain == pytest.approx(engine.rate(1, 5) / engine.rate(1, 0), rel=0.05)


def test_lengths_that_accept_less_than_the_threshold_are_not_used():
    engine = Engine(a_cost(0.05, 0.0, 0.0), [0.9, 0.5, 0.1])
    free, held = a_controller(), a_controller(min_acceptance_percent=60)
    for controller in (free, held):
        engine.run(controller, batch=1, seconds=60)
    # 0.9, 0.68 and 0.47 of 1, 2 and 3 tokens are accepted; here a longer draft costs nothing.
    assert free.choice(1).k >= 3
    assert held.choice(1).k == 2


def test_at_length_0_trials_lose_little():
    engine, controller = Engine(BIG_DRAFT, [0.0]), a_controller()
    engine.run(controller, batch=4, seconds=30)
    before = dict(engine.lengths)
    engine.run(controller, batch=4, seconds=300)
    assert used(engine, 4, before) >= 0.98
    assert engine.lengths[1] > before.get(1, 0), "it still looks now and then"


def test_a_length_too_dear_to_try_keeps_no_other_one_waiting():
    """Length 4 takes five times as long as 0, and 1 is about as good."""
    engine = Engine(a_cost(0.01, 0.0, 0.01), [0.9, 0.05], largest=4)
    engine.run(a_controller(largest=4), batch=16, seconds=100)
    looks = 100 / LOOK_SECONDS
    assert engine.lengths[1] >= looks + 4 * TRIAL_STEPS


def test_two_lengths_that_are_close_are_told_apart_by_more_trials():
    """One is 8 percent better, and five noisy steps of each say nothing."""
    shares = []
    for seed in range(4):
        engine = Engine(look_up_here, [0.75, 0.9], largest=4, seed=seed, noise=0.15)
        controller = a_controller(largest=4, max_batch=16)
        for _ in range(200):
            engine.step(controller, 16)
        before = dict(engine.lengths)
        for _ in range(200):
            engine.step(controller, 16)
        shares.append(used(engine, 16, before))
    assert sum(shares) / len(shares) >= 0.96


def plain(batch):
    """Seconds of a step without drafts: SmolLM2-135M on one core, 22 tokens/s alone, 43 of 4."""
    return 0.029 + 0.0157 * batch


def drafting_here(share):
    """A step that verifies on that core; each pass of the drafter costs a share of a plain one."""

    def seconds(batch, verified, drafted):
        return plain(batch * (1 + verified)) + share * plain(batch) * max(1, drafted)

    return seconds


def look_up_here(batch, verified, drafted):
    return plain(batch * (1 + verified))


CELLS = {
    "n-gram, copies": (look_up_here, [0.75, 0.9]),
    "n-gram, free text": (look_up_here, [0.05, 0.3]),
    "perfect draft": (drafting_here(1.0), [1.0]),
    "useless draft": (drafting_here(8 / 30), [0.014]),
}


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 4, 16])
@pytest.mark.parametrize("cell", CELLS)
def test_the_cells_of_the_bench_as_long_as_the_bench_runs_them(cell, streams):
    """make bench-adaptive: three runs to learn, eight that count, 96 or 48 tokens a stream."""
    cost, chances = CELLS[cell]
    tokens, shares = 96 if streams <= 4 else 48, []
    for seed in range(4):
        engine = Engine(cost, chances, largest=4, seed=seed, noise=0.1)
        controller = a_controller(largest=4, max_batch=16)
        until(engine, controller, streams, 3 * tokens)
        before = dict(engine.lengths)
        until(engine, controller, streams, 8 * tokens)
        shares.append(used(engine, streams, before))
    assert sum(shares) / len(shares) >= 0.95


@pytest.mark.parametrize("slower", [1.3, 1.6, 2.0, 3.0])
@pytest.mark.parametrize("busy", [0, 2, 4])
def test_a_machine_that_was_busy_at_the_first_try_of_a_length_is_no_lasting_harm(busy, slower):
    """Else it goes on for minutes with a length that is a fifth worse, as was measured."""
    cost, chances = CELLS["useless draft"]
    shares = []
    for seed in range(4):
        engine = Engine(cost, chances, largest=4, seed=seed, noise=0.05)
        controller = a_controller(largest=4, max_batch=16)

        def disturbed(batch, verified, drafted, engine=engine):
            first = drafted == busy and engine.lengths[busy] <= TRIAL_STEPS
            return cost(batch, verified, drafted) * (slower if first else 1)

        engine.cost = disturbed
        until(engine, controller, 1, 3 * 96)
        engine.cost, before = cost, dict(engine.lengths)
        until(engine, controller, 1, 4 * 96)
        shares.append(used(engine, 1, before))
    assert min(shares) >= 0.95, shares


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 4])
def test_text_that_is_copied_now_and_then_is_soon_drafted_for_again(streams):
    """Where nothing is found to draft no length costs anything, and at 0 nothing is learned."""
    copied, free = (1.0, [0.9, 0.97]), (0.1, [0.05, 0.3])
    best, ours, worst = 0.0, 0.0, []
    for seed in range(12):
        chance = random.Random(seed)
        engine = Engine(look_up_here, copied[1], largest=4, seed=seed, noise=0.05)
        controller = a_controller(largest=4, max_batch=16)
        until(engine, controller, streams, 3 * 96)
        for _ in range(24):
            engine.found, engine.chances = chance.choice([copied, copied, free])
            # Of two kinds of steps, those with a draft and those without one.
            rate = engine.found * engine.rate(streams, 4)
            rate += (1 - engine.found) * streams / plain(streams)
            began, fixed = engine.now, streams * 96 / rate
            until(engine, controller, streams, 96)
            took = engine.now - began
            best, ours = best + fixed, ours + took
            worst.append(fixed / took)
    assert best / ours >= 0.95
    assert min(worst) >= 0.7


def until(engine, controller, streams, tokens):
    """Steps until each stream has so many more tokens."""
    begun = engine.tokens
    while engine.tokens - begun < streams * tokens:
        engine.step(controller, streams)


def test_a_new_batch_size_begins_with_what_its_neighbour_uses():
    engine, controller = Engine(BIG_DRAFT, [0.0]), a_controller()
    engine.run(controller, batch=4, seconds=30)
    assert controller.length(8) == 0
    assert a_controller().length(8) == 5


def test_impossible_times_are_left_out():
    controller = a_controller()
    controller.timed(batch=1, k=5, seconds=0.0, now=1.0)
    controller.timed(batch=1, k=5, seconds=-1.0, now=1.0)
    assert controller.choice(1).k == 5


def test_acceptance_counts_a_position_only_where_it_was_reached():
    acceptance = Acceptance(3)
    for now in range(200):
        acceptance.observe(drafted=3, runs=[0, 1, 3, 3], now=now * 0.01)
    one, two, three = acceptance.expected()[1:]
    assert one == pytest.approx(0.75, abs=0.02)
    assert two == pytest.approx(0.75 + 0.5, abs=0.02)
    assert three == pytest.approx(0.75 + 0.5 + 0.5, abs=0.02)


def test_old_acceptance_fades_and_silence_changes_nothing():
    acceptance = Acceptance(2)
    for now in range(100):
        acceptance.observe(drafted=2, runs=[0], now=now * 0.1)
    acceptance.observe(drafted=0, runs=[0], now=1000.0)
    assert acceptance.expected()[1] < 0.01
    for now in range(30):
        acceptance.observe(drafted=2, runs=[2], now=40 + now * 0.1)
    assert acceptance.expected()[1] > 0.75


def test_costs_between_measured_lengths_are_interpolated():
    cost = StepCost(4)
    for k, seconds in ((4, 0.3), (0, 0.1)):
        for _ in range(8):
            cost.observe(k, seconds, trial=k == 0)
    relative = cost.relative()
    ratios = [each / relative[0] for each in relative]
    assert ratios == pytest.approx([1, 1.5, 2, 2.5, 3], rel=0.01)


@pytest.mark.parametrize("largest", [1, 2, 3, 4, 5, 64, 100, 1024])
def test_ranges_cover_every_batch_size_once_and_are_those_that_share(largest):
    ranges = ranges_of(largest)
    sizes = [size for first, last in ranges for size in range(first, last + 1)]
    assert sizes == list(range(1, largest + 1))
    for first, last in ranges:
        assert {_bucket_of(size) for size in range(first, last + 1)} == {_bucket_of(first)}
    assert len({_bucket_of(first) for first, _ in ranges}) == len(ranges)
