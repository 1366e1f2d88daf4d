"""At the limit the mean of the evidence never rises above 1, at any block: the promise in full.

Thousands of trials at a time by the arrays of the bench, which judge as the
shipped evidence does (test_bench.py). Values are capped, since a mean of a heavy
tail needs more trials than these; that can only lower what is bounded, and is
far above what rolls back.
"""

import numpy as np
import pytest
from bench.analysis_batch import Array, Failures, Means

TRIALS = 1500
BLOCKS = 64
CAP = 1000.0

pytestmark = pytest.mark.slow


def assert_at_most_one(worse: Array) -> None:
    capped = np.minimum(worse, CAP)
    assert capped.mean() <= 1 + 3 * capped.std() / np.sqrt(TRIALS)


@pytest.mark.parametrize("pods", [1, 2, 5], ids="{} stable pods".format)
@pytest.mark.parametrize("even", [True, False], ids=["even", "a few prompts in ten"])
def test_mean_evidence_at_the_limit(pods: int, even: bool) -> None:
    rng = np.random.default_rng(11)
    evidence = Means(TRIALS, limit=0.9, sign=-1, is_share=False)
    everyone = np.arange(TRIALS)
    for _ in range(BLOCKS):
        steps = 40.0 * rng.integers(3, 9, (TRIALS, 1 + pods))
        sizes = steps / 40
        found = rng.gamma(sizes * 6, 1 / 6) if even else rng.binomial(sizes.astype(int), 0.3) / 0.3
        accepted = 80 * found * (1 + 0.05 * rng.standard_normal((TRIALS, 1)))
        block = np.column_stack(
            [
                0.9 * accepted[:, 0],
                steps[:, 0],
                accepted[:, 1:].sum(axis=1),
                steps[:, 1:].sum(axis=1),
            ]
        )
        evidence.add(everyone, block, np.stack([accepted[:, 1:], steps[:, 1:]], axis=2))
        assert_at_most_one(evidence.worse)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_slow_share_at_the_limit(factor: float) -> None:
    rng = np.random.default_rng(12)
    evidence = Means(TRIALS, limit=factor, sign=1, is_share=True)
    everyone = np.arange(TRIALS)
    for _ in range(BLOCKS):
        level = 0.05 * rng.gamma(4, 1 / 4, (TRIALS, 1))
        requests = rng.integers(10, 60, (TRIALS, 4)).astype(float)
        chance = np.minimum(level * np.array([[factor, 1, 1, 1]]), 1)
        slow = rng.binomial(requests.astype(int), chance).astype(float)
        block = np.column_stack(
            [slow[:, 0], requests[:, 0], slow[:, 1:].sum(axis=1), requests[:, 1:].sum(axis=1)]
        )
        evidence.add(everyone, block, np.stack([slow[:, 1:], requests[:, 1:]], axis=2))
        assert_at_most_one(evidence.worse)


@pytest.mark.parametrize(
    "stable, canary",
    [(0.001, 0.01), (0.02, 0.04), (0.3, 0.6)],
    ids=["at the absolute limit", "at twice stable", "at twice much"],
)
def test_error_evidence_at_the_limit(stable: float, canary: float) -> None:
    """Failures come in pairs."""
    rng = np.random.default_rng(13)
    evidence = Failures(TRIALS, limit=0.01)
    everyone = np.arange(TRIALS)
    for index in range(BLOCKS):
        # Now and then both arms are in trouble alike.
        trouble = 0.2 if 20 <= index < 26 else 0.0
        answers = 2 * rng.integers(2, 20, (TRIALS, 2))
        rates = np.maximum([canary, stable], trouble)
        failed = 2 * rng.binomial(answers // 2, rates)
        block = np.column_stack([failed[:, 0], answers[:, 0], failed[:, 1], answers[:, 1]])
        evidence.add(everyone, block.astype(float))
        assert_at_most_one(evidence.worse)
