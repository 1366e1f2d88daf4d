"""Simulated trials: a candidate at its limit is rolled back as rarely as promised, a bad one soon.

Seeded; each bound is the promise plus three standard deviations of the simulation.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.sequential import Contrast, MeanEvidence

RUNS = 300
BLOCKS = 45
Generator = np.random.Generator
NEEDED = 200.0

pytestmark = pytest.mark.slow


def bound(chance: float, runs: int = RUNS) -> float:
    return chance + 3 * math.sqrt(chance * (1 - chance) / runs)


class Prompts:
    """A long row of requests; `hot` is the share of prompts that copy, None: all much alike."""

    def __init__(self, rng: Generator, hot: float | None) -> None:
        tokens = np.maximum(8, rng.gamma(2, 60, 50_000))
        even = rng.beta(4.2, 1.8, len(tokens))
        p = even if hot is None else np.where(rng.random(len(tokens)) < hot, 0.9, 0.02)
        steps = tokens / (1 + 4 * p)
        self._sums = np.cumsum([4 * p * steps, steps], axis=1)
        self._rng = rng

    def some(self, mean: float) -> tuple[float, float]:
        """(accepted, steps) of at least three neighbours in the row."""
        count = max(3, self._rng.poisson(mean))
        first = self._rng.integers(0, self._sums.shape[1] - count)
        accepted, steps = self._sums[:, first + count] - self._sums[:, first]
        return float(accepted), float(steps)


def acceptance_block(
    rng: Generator, prompts: Prompts, *, factor: float = 0.9, requests: float = 4
) -> Contrast:
    """One block at a 10 percent canary; `factor` 0.9 is exactly at the limit."""
    ours, steps = prompts.some(requests)
    theirs, their_steps = prompts.some(9 * requests)
    drift = 1 + 0.05 * rng.standard_normal()
    return Contrast(factor * drift * ours, steps, drift * theirs, their_steps)


def error_block(rng: Generator, rates: tuple[float, float]) -> Contrast:
    """One block at a 20 percent canary; failures come in pairs."""
    ours, theirs = max(4, rng.poisson(10)), max(4, rng.poisson(40))
    bad = 2 * rng.binomial(ours // 2, rates[0])
    return Contrast(bad, ours, 2 * rng.binomial(theirs // 2, rates[1]), theirs)


def highest(
    evidence: MeanEvidence | ErrorEvidence, block: Callable[[int], Contrast], blocks: int = BLOCKS
) -> tuple[float, float, float]:
    """The highest evidence of worse and of not worse, and that of worse at the end."""
    worse = not_worse = 0.0
    for index in range(blocks):
        evidence = evidence.add(block(index))
        worse, not_worse = max(worse, evidence.worse), max(not_worse, evidence.not_worse)
    return worse, not_worse, evidence.worse


@pytest.mark.parametrize(
    "hot, lost, blocks",
    [
        pytest.param(None, 0.0, BLOCKS, id="even acceptance"),
        pytest.param(None, 0.2, BLOCKS, id="a fifth of the blocks lost"),
        pytest.param(0.2, 0.0, BLOCKS, id="one prompt in five copies"),
        pytest.param(0.05, 0.0, 90, id="one prompt in twenty copies"),
        pytest.param(0.02, 0.0, 90, id="one prompt in fifty copies"),
    ],
)
def test_candidate_at_the_acceptance_limit_is_rarely_rolled_back(hot, lost, blocks):
    rng = np.random.default_rng(5)
    prompts = Prompts(rng, hot)

    def block(_: int) -> Contrast:
        made = acceptance_block(rng, prompts)
        return Contrast(0, 0, 0, 0) if rng.random() < lost else made

    found = np.array([highest(MeanEvidence(0.9), block, blocks) for _ in range(RUNS)])
    assert np.mean(found[:, 0] >= NEEDED) <= bound(1 / NEEDED)
    assert np.mean(found[:, 1] >= 20) <= bound(1 / 20)
    capped = np.minimum(found[:, 2], NEEDED)  # the mean of a heavy tail needs more runs than this
    assert capped.mean() <= 1 + 3 * capped.std() / math.sqrt(RUNS)


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param(lambda i: (0.01, 0.001), id="at the absolute limit"),
        pytest.param(lambda i: (0.04, 0.02), id="at twice stable"),
        pytest.param(lambda i: (0.2, 0.2) if 20 <= i < 26 else (0.01, 0.001), id="shared incident"),
        pytest.param(lambda i: (abs(math.sin(i)), abs(math.sin(i))), id="any equal rate"),
    ],
)
def test_candidate_at_the_error_limit_is_rarely_rolled_back(rates):
    rng = np.random.default_rng(6)
    found = np.array(
        [highest(ErrorEvidence(0.01), lambda i: error_block(rng, rates(i))) for _ in range(RUNS)]
    )
    assert np.mean(found[:, 0] >= NEEDED) <= bound(1 / NEEDED, RUNS)


def test_candidate_at_the_error_limit_is_rarely_called_not_worse():
    rng = np.random.default_rng(7)
    found = np.array(
        [
            highest(ErrorEvidence(0.05), lambda _: error_block(rng, (0.05, 0.05)), 100)
            for _ in range(150)
        ]
    )
    assert np.mean(found[:, 1] >= 20) <= bound(1 / 20, 150)


def blocks_until_worse(
    rng: Generator,
    prompts: Prompts,
    *,
    factor: float,
    requests: float,
    evidence: MeanEvidence,
) -> int:
    count = 0
    while evidence.worse < NEEDED and count < 100:
        evidence = evidence.add(acceptance_block(rng, prompts, factor=factor, requests=requests))
        count += 1
    return count


@pytest.mark.parametrize(
    "factor, requests, blocks",
    [
        pytest.param(0.5, 5, 12, id="halved, 5 requests a block: 120 s"),
        pytest.param(0.5, 25, 7, id="halved, 25 requests a block: 70 s"),
        pytest.param(0.0, 3.5, 8, id="useless, 3 requests a block"),
    ],
)
def test_bad_acceptance_is_found_soon(factor, requests, blocks):
    rng = np.random.default_rng(8)
    prompts, fresh = Prompts(rng, None), MeanEvidence(0.9)
    counts = [
        blocks_until_worse(rng, prompts, factor=factor, requests=requests, evidence=fresh)
        for _ in range(150)
    ]
    assert np.percentile(counts, 95) <= blocks


def test_late_regression_is_not_drowned_by_a_good_beginning():
    rng = np.random.default_rng(9)
    prompts, counts = Prompts(rng, None), []
    for _ in range(30):
        evidence = MeanEvidence(0.9)
        for _ in range(180):
            evidence = evidence.add(acceptance_block(rng, prompts, factor=1.0, requests=25))
        counts.append(blocks_until_worse(rng, prompts, factor=0.6, requests=25, evidence=evidence))
    assert np.percentile(counts, 95) <= 15
