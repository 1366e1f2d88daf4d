"""Properties of the two kinds of evidence that hold for every sequence of blocks."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_operator.analysis.contrast import Spread, spread_of
from speculative_operator.analysis.failures import BETS, BLOCK_GAIN, CLUSTERING, ODDS, ErrorEvidence
from speculative_operator.analysis.sequential import (
    EVERY,
    LUMPY,
    MIXTURE,
    PRIOR_BLOCKS,
    STARTS,
    WORSE_BLOCKS,
    Contrast,
    MeanEvidence,
)

FEW = settings(max_examples=40, deadline=None)

count = st.integers(0, 10**6)
exposure = st.integers(1, 10**6)
mean_blocks = st.lists(st.builds(Contrast, count, exposure, count, exposure), max_size=70)


@st.composite
def _error_block(draw: st.DrawFn) -> Contrast:
    ours, theirs = draw(st.integers(0, 500)), draw(st.integers(0, 500))
    return Contrast(draw(st.integers(0, ours)), ours, draw(st.integers(0, theirs)), theirs)


error_blocks = st.lists(_error_block(), max_size=70)


def mean(blocks, limit=0.9) -> MeanEvidence:
    evidence = MeanEvidence(limit)
    for block in blocks:
        evidence = evidence.add(block)
    return evidence


def errors(blocks, limit=0.01) -> ErrorEvidence:
    evidence = ErrorEvidence(limit)
    for block in blocks:
        evidence = evidence.add(block)
    return evidence


def useless(blocks: int = 12) -> list[Contrast]:
    return [Contrast(i % 3, 60, 80 + 3 * (i % 2), 45) for i in range(blocks)]


def equal(blocks: int = 30) -> list[Contrast]:
    return [Contrast(80 + i % 7, 45, 82 - i % 5, 45) for i in range(blocks)]


def test_useless_draft_is_worse_and_equal_draft_is_not_worse():
    assert mean(useless()).worse > 200
    assert mean(useless()).not_worse < 1
    assert mean(equal()).not_worse > 20
    assert mean(equal()).worse < 1


@pytest.mark.parametrize("make", [mean, errors])
def test_no_evidence_is_one(make):
    assert make([]).worse == pytest.approx(1.0)
    assert make([]).not_worse == pytest.approx(1.0)


def test_too_few_blocks_never_decide():
    steady = [Contrast(0, 100, 1000, 100)] * 2
    assert mean(steady).worse <= 0.5
    assert errors([Contrast(50, 50, 0, 50)]).worse == 0


# 2: monotone


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=4, max_size=EVERY),
    st.integers(0, 300),
)
def test_shifting_every_block_towards_worse_never_lowers_the_evidence(hits, shift):
    """Equal exposure in every block: taking as many hits from each shifts every z alike."""
    before = mean([Contrast(500 + ours, 100, 500 + theirs, 100) for ours, theirs in hits])
    after = mean([Contrast(500 + ours - shift, 100, 500 + theirs, 100) for ours, theirs in hits])
    assert after.worse >= before.worse * (1 - 1e-9)


@FEW
@given(error_blocks, st.data())
def test_one_more_failed_request_never_lowers_error_evidence(blocks, data):
    room = [i for i, b in enumerate(blocks) if b.candidate_hits < b.candidate_exposure]
    if not room:
        return
    index = data.draw(st.sampled_from(room))
    b = blocks[index]
    more = [*blocks]
    more[index] = Contrast(
        b.candidate_hits + 1, b.candidate_exposure, b.control_hits, b.control_exposure
    )
    capped = any(max(ErrorEvidence(0.01)._gains(block)) >= BLOCK_GAIN for block in (more[index], b))
    bet_capped = (
        0.95 / max(more[index].share(2.0) * more[index].pooled, 1e-9) < max(BETS)
        if (not b.is_empty)
        else False
    )
    if not capped and not bet_capped:
        assert errors(more).worse >= errors(blocks).worse * (1 - 1e-9)


# 3: scale


@FEW
@given(st.lists(st.builds(Contrast, *[st.integers(1, 999)] * 4), max_size=40), st.integers(2, 50))
def test_scaling_all_counts_leaves_mean_evidence_unchanged(blocks, factor):
    scaled = [
        Contrast(
            factor * b.candidate_hits,
            factor * b.candidate_exposure,
            factor * b.control_hits,
            factor * b.control_exposure,
        )
        for b in blocks
    ]
    assert mean(scaled).worse == pytest.approx(mean(blocks).worse, rel=1e-6, abs=1e-9)
    assert mean(scaled).not_worse == pytest.approx(mean(blocks).not_worse, rel=1e-6, abs=1e-9)


# 4: drift


@FEW
@given(
    st.lists(st.tuples(st.floats(0.01, 8), st.integers(1, 5000), st.integers(1, 5000)), max_size=60)
)
def test_drift_that_both_arms_share_is_no_evidence(blocks):
    drifting = [Contrast(0.9 * rate * x, x, rate * y, y) for rate, x, y in blocks]
    assert mean(drifting).worse <= 1
    assert mean(drifting).not_worse <= 1


# 5: empty and extreme


@FEW
@given(
    st.lists(st.builds(Contrast, *[st.sampled_from([0, 1, 7, 10**18])] * 4), max_size=40),
)
def test_mean_evidence_is_finite_for_any_counts(blocks):
    evidence = mean(blocks)
    for value in (evidence.worse, evidence.not_worse):
        assert value >= 0
        assert math.isfinite(value)


@FEW
@given(error_blocks, st.sampled_from([0.01, 0.5, 1.0]), st.integers(1, 10**12))
def test_error_evidence_is_finite_for_any_counts(blocks, limit, factor):
    evidence = errors(
        [
            Contrast(
                factor * b.candidate_hits,
                factor * b.candidate_exposure,
                factor * b.control_hits,
                factor * b.control_exposure,
            )
            for b in blocks
        ],
        limit,
    )
    for value in (evidence.worse, evidence.not_worse):
        assert value >= 0
        assert math.isfinite(value)


@pytest.mark.parametrize("empty", [Contrast(0, 0, 5, 9), Contrast(5, 9, 0, 0)])
def test_empty_block_changes_nothing(empty):
    assert mean([*useless(), empty]) == mean(useless())
    blocks = [Contrast(3, 20, 0, 20)] * 3
    assert errors([*blocks, empty]) == errors(blocks)


# 8: bursts


@FEW
@given(st.lists(_error_block(), min_size=2, max_size=20))
def test_one_block_moves_error_evidence_by_at_most_twenty(blocks):
    before, after = errors(blocks[:-1]), errors(blocks)
    for old, new in zip(before.starts, after.starts, strict=False):
        assert all(b - a <= BLOCK_GAIN + 1e-9 for a, b in zip(old, new, strict=True))


@FEW
@given(st.integers(0, 30), st.integers(0, 30))
def test_one_burst_alone_never_rolls_back(before, after):
    clean = Contrast(0, 50, 0, 50)
    blocks = [*[clean] * before, Contrast(50, 50, 0, 50), *[clean] * after]
    assert errors(blocks).worse < 200


def test_many_failures_roll_back_quickly():
    blocks = [Contrast(5, 10, 0, 12)] * 7
    assert errors(blocks[:1]).worse < 200 < errors(blocks).worse


def test_high_error_rate_below_twice_stable_is_not_worse():
    assert errors([Contrast(12, 100, 8, 100)] * 60).worse < 1


def test_rate_above_twice_stable_but_below_the_limit_is_not_worse():
    assert errors([Contrast(1, 1000, 0, 1000)] * 60, 0.01).worse < 1


def test_no_errors_in_thousands_of_requests_is_not_worse():
    assert errors([Contrast(0, 100, 0, 100)] * 3).not_worse < 20
    assert errors([Contrast(0, 100, 0, 100)] * 20).not_worse > 20


# 10: restart, and incremental equals batch


@pytest.mark.parametrize(
    "make, kind, blocks",
    [
        pytest.param(mean, MeanEvidence, useless(80), id="mean"),
        pytest.param(errors, ErrorEvidence, [Contrast(1, 9, 0, 7)] * 80, id="errors"),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 29, 30, 61])
def test_reloading_at_any_block_gives_identical_bits(make, kind, blocks, cut):
    evidence = make(blocks[:cut])
    evidence = kind.from_json(json.loads(json.dumps(evidence.to_json())))
    for block in blocks[cut:]:
        evidence = evidence.add(block)
    assert evidence == make(blocks)
    assert evidence.worse == make(blocks).worse


@FEW
@given(
    st.lists(st.builds(Contrast, *[st.integers(1, 999)] * 4), min_size=1, max_size=200),
    st.integers(0, 3),
    st.floats(0, 10),
)
def test_incremental_mean_equals_batch(blocks, pods, squares):
    """`pods` more than one of control that differ by `squares` in every block."""
    y_c, x_c, y_s, x_s = np.array(
        [
            [b.candidate_hits, b.candidate_exposure, b.control_hits, b.control_exposure]
            for b in blocks
        ],
        dtype=float,
    ).T
    share = 0.9 * x_c / (0.9 * x_c + x_s)
    excess = y_c - share * (y_c + y_s)
    excess[np.abs(excess) <= 1e-9 * (y_c + y_s)] = 0
    spread = (1 - share) ** 2 * x_c + share**2 * x_s
    rate = y_s / x_s
    moved = np.cumsum(np.diff(rate) ** 2 / (1 / x_s[1:] + 1 / x_s[:-1]))
    level = np.cumsum(y_s) / np.cumsum(x_s)
    ends, first = [], 0
    for i in range(len(blocks)):
        exposure = x_c[first : i + 1].sum()
        if i and moved[i - 1] / i > LUMPY * exposure * level[i] ** 2:
            continue  # too lumpy: held back until more is in
        ends.append((first, i + 1))
        first = i + 1
    whole = np.array([x_c[a:b].sum() for a, b in ends])
    z = -np.array([excess[a:b].sum() for a, b in ends]) / np.sqrt(whole)
    floor = np.array([spread[a:b].sum() for a, b in ends]) / whole
    noise, freedom = (moved[-1] / len(moved) if len(moved) else 0.0), 2 / 3 * len(moved)
    by_pods = pods * len(blocks) >= max(freedom, 1)
    if by_pods:
        noise, freedom = squares, pods * len(blocks)
    total = 0.0
    for start in range(STARTS):
        stake = 0.5 if start == 0 else 0.5 / (STARTS - 1)
        part = z[start * EVERY :]
        if not len(part):
            total += stake
            continue
        n, s = len(part), part.sum()
        least = noise * floor[start * EVERY :].sum()
        known = min(freedom, PRIOR_BLOCKS) if noise > 0 else 0
        v = max((part**2).sum(), least) + known * least / n
        if s > 0 and n >= WORSE_BLOCKS:
            t = 1 - s * s / ((n + MIXTURE) * v)
            m = np.sqrt(MIXTURE / (n + MIXTURE)) * t ** (-(n + known) / 2)
            total += stake * max(2 * m - 1, 0)
    found = MeanEvidence(0.9)
    for block in blocks:
        found = found.add(block, spread=Spread(squares * pods, pods))
    assert found.worse == pytest.approx(total, rel=1e-8, abs=1e-9)


def test_noise_that_control_shows_is_worth_four_blocks_at_most():
    """The more is known of it, the sooner a clear difference is called."""
    clear = [Contrast(10, 100, 1000, 1000)] * 3
    found = []
    for freedom in (0, 1, 2, 400):
        evidence = MeanEvidence(0.9)
        for block in clear:
            evidence = evidence.add(block, spread=Spread(0.1 * freedom, freedom))
        found.append(evidence.worse)
    assert found[0] < 20 < found[1] < found[2] == pytest.approx(found[3])


def test_pods_that_differ_much_hide_a_difference():
    evidence = MeanEvidence(0.9)
    for _ in range(6):
        evidence = evidence.add(Contrast(80, 100, 1000, 1000), spread=Spread(300, 3))
    assert evidence.worse < 2


def test_evidence_of_an_older_operator_is_read():
    """It has not learned how pods differ; what it has seen is kept."""
    evidence = mean(useless(10))
    old = evidence.to_json()
    del old["spread"]
    assert MeanEvidence.from_json(json.loads(json.dumps(old))) == evidence


def test_spread_is_the_variance_per_exposure_between_pods():
    assert spread_of([(3, 4), (1, 4)]) == Spread(squares=0.5, freedom=1)
    assert spread_of([(3, 4), (0, 0)]) == spread_of([]) == Spread()


def test_spread_is_unbiased_for_pods_of_any_size():
    rng = np.random.default_rng(4)
    exposure = np.array([5.0, 50.0, 500.0])
    hits = rng.normal(2 * exposure, np.sqrt(3 * exposure), (4000, 3))
    found = [spread_of(zip(row, exposure, strict=True)) for row in hits.tolist()]
    mean_square = sum(each.squares for each in found) / sum(each.freedom for each in found)
    assert mean_square == pytest.approx(3, rel=0.05)


@FEW
@given(error_blocks)
def test_incremental_errors_equal_batch(blocks):
    used = [b for b in blocks if not b.is_empty]
    if len(used) < 2:
        return

    def half(block: Contrast, expected: float, misses: float, chance: float) -> list[float]:
        lost = expected or math.inf
        bets = [math.log(1 + min(b, 0.95 / lost) * (block.candidate_hits - expected)) for b in BETS]
        odds = chance / (1 - chance)
        counts = []
        for factor in ODDS:
            other = factor * odds / (1 + factor * odds)
            gain = block.candidate_hits * math.log(other / chance)
            gain += misses * math.log((1 - other) / (1 - chance))
            counts.append(gain / CLUSTERING)
        return [min(gain, math.log(20)) for gain in bets + counts]

    logs = np.array(
        [
            np.minimum(
                half(b, b.share(2.0) * b.pooled, b.control_hits, b.share(2.0)),
                half(
                    b,
                    0.01 * b.candidate_exposure,
                    b.candidate_exposure - b.candidate_hits,
                    0.01,
                ),
            )
            for b in used
        ]
    )
    total = 0.0
    for start in range(STARTS):
        stake = 0.5 if start == 0 else 0.5 / (STARTS - 1)
        part = logs[start * EVERY :]
        if not len(part):
            total += stake
            continue
        total += stake * np.exp(part.sum(axis=0)).mean()
    assert errors(blocks).worse == pytest.approx(total, rel=1e-8)


# 11: exclusive


@FEW
@given(mean_blocks)
def test_mean_is_never_worse_and_not_worse_at_once(blocks):
    evidence = mean(blocks)
    assert not (evidence.worse >= 20 and evidence.not_worse >= 20)


@pytest.mark.parametrize("requests", [2**53, 10**15, 1])
def test_a_pod_that_counts_beyond_all_measure_breaks_no_evidence(requests: int) -> None:
    evidence = ErrorEvidence(limit=0.01)
    for block in (Contrast(requests, requests, 3, 3), Contrast(3, 3, requests, requests)):
        evidence = evidence.add(block)
    assert math.isfinite(evidence.worse)
    assert math.isfinite(evidence.not_worse)
