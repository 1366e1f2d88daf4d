"""PURE: the shipped tests over many rollouts at a time, and over one as they are shipped.

`judged_together` does with arrays what `judged_alone` does with the shipped
evidence; the tests and every bench compare the two on some of the runs.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from bench.analysis_model import (
    ACCEPTED,
    FAILED,
    LATE_FIRST,
    LATE_TOKEN,
    LOOK_SECONDS,
    POD_ROWS,
    REFUSED,
    REQUESTS,
    STEPS,
    TIMED,
    Array,
    Rollouts,
)
from numpy.typing import NDArray

from speculative_api.v1alpha1 import Analysis, MetricCheck
from speculative_operator.analysis import failures, sequential
from speculative_operator.analysis.contrast import Contrast, Spread, spread_of
from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.latency import BLOCK_SECONDS as LATENCY_BLOCK_SECONDS
from speculative_operator.analysis.observing import CLIENT_STAKE, error_sides
from speculative_operator.analysis.verdict import Evidence, begin
from speculative_operator.analysis.windows import BLOCK_REQUESTS, BLOCK_SECONDS

Rows = NDArray[np.intp]
METRICS: Final = ("acceptance", "errors", "first token", "tokens")
LATE: Final = ((LATE_FIRST, REQUESTS), (LATE_TOKEN, TIMED))

FIVE_TESTS: Final = Analysis(
    metrics=[
        MetricCheck.model_validate(check)
        for check in (
            {"name": "AcceptanceLength"},
            {"name": "ErrorRate"},
            {"name": "TimeToFirstToken", "thresholdMilliseconds": 500},
            {"name": "InterTokenLatency", "thresholdMilliseconds": 50},
            {"name": "EndToEndLatency", "thresholdMilliseconds": 9000},
        )
    ]
)
"""What the recipe judges; whole requests are advisory and only share the chance."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Per run: seconds to the rollback (NaN: none), candidate requests until then, which metric
    (an index of `METRICS`, -1: none), and the evidence of each at the end."""

    seconds: Array
    requests: Array
    metric: NDArray[np.int8]
    evidence: Array


def begun(error_limit: float, analysis: Analysis = FIVE_TESTS) -> Evidence:
    """Evidence of a trial with no block yet."""
    fresh = begin("bench", analysis, at=0.0)
    nothing = ErrorEvidence(limit=error_limit)
    return replace(fresh, errors=nothing, client_errors=nothing)


class Means:
    """`MeanEvidence` of many runs, the side that rolls back."""

    def __init__(self, runs: int, *, limit: float, sign: int, is_share: bool) -> None:
        self._limit, self._sign, self._is_share = limit, sign, is_share
        self._sums = np.zeros((runs, sequential.STARTS, 4))  # blocks, z, z squared, floor
        self._blocks = np.zeros(runs, dtype=np.int64)
        self._total = np.zeros((runs, 4))
        self._noise = np.zeros((runs, 2))  # squared changes, how many
        self._last = np.full((runs, 2), np.nan)
        self._level = np.zeros((runs, 2))
        self._spread = np.zeros((runs, 2))
        self._held = np.zeros((runs, 6))
        self.worse = np.ones(runs)

    def add(self, runs: Rows, block: Array, pods: Array) -> None:
        """A block (hits and exposure of both arms, in the order of `Contrast`) of some runs.

        `pods` are hits and exposure of every stable pod in it.
        """
        filled = (block[:, 1] > 0) & (block[:, 3] > 0)
        runs, block, pods = runs[filled], block[filled], pods[filled]
        if not len(runs):
            return
        self._learn(runs, block, pods)
        hits, exposure, their_hits, their_exposure = block.T
        weighted = self._limit * exposure
        share = weighted / (weighted + their_exposure)
        pooled = hits + their_hits
        excess = hits - share * pooled
        excess[np.abs(excess) <= sequential.ROUNDING * pooled] = 0.0
        weight = max(self._limit, 1.0) * (1 - share) ** 2 * exposure + share**2 * their_exposure
        self._held[runs] += np.column_stack([block, excess, weight])
        full = runs[~self._is_lumpy(runs)]
        if not len(full):
            return
        held = self._held[full]
        z = held[:, 4] / np.sqrt(held[:, 1])
        gained = np.column_stack([np.ones(len(full)), z, z * z, held[:, 5] / held[:, 1]])
        begun_starts = np.arange(sequential.STARTS) * sequential.EVERY
        active = self._blocks[full, None] >= begun_starts
        self._sums[full] += active[:, :, None] * gained[:, None, :]
        self._total[full] += held[:, :4]
        self._blocks[full] += 1
        self._held[full] = 0.0
        self.worse[full] = self._mixed(full)

    def _learn(self, runs: Rows, block: Array, pods: Array) -> None:
        exposure = block[:, 3]
        rate = block[:, 2] / exposure
        before = self._last[runs]
        known = ~np.isnan(before[:, 0])
        with np.errstate(invalid="ignore"):
            change = (rate - before[:, 0]) ** 2 / (1 / before[:, 1] + 1 / exposure)
        self._noise[runs] += np.column_stack([np.where(known, change, 0.0), known])
        self._last[runs] = np.column_stack([rate, exposure])
        self._level[runs] += block[:, 2:4]
        # A pod that had nothing to do says nothing.
        active = pods[:, :, 1] > 0
        count = active.sum(axis=1)
        sums = pods.sum(axis=1)
        rates = np.divide(sums[:, 0], sums[:, 1], out=np.zeros(len(sums)), where=sums[:, 1] > 0)
        off = (pods[:, :, 0] - rates[:, None] * pods[:, :, 1]) ** 2
        squares = np.divide(off, pods[:, :, 1], out=np.zeros_like(off), where=active).sum(axis=1)
        several = count >= 2
        self._spread[runs] += np.column_stack([squares * several, (count - 1) * several])

    def _is_lumpy(self, runs: Rows) -> NDArray[np.bool_]:
        noise, changes = self._noise[runs].T
        hits, whole = self._level[runs].T
        judged = (changes > 0) & (hits > 0) & (not self._is_share)
        mean = noise / np.maximum(changes, 1)
        lumpy = mean > sequential.LUMPY * self._held[runs, 1] * (hits / whole) ** 2
        found: NDArray[np.bool_] = judged & lumpy
        return found

    def _known(self, runs: Rows) -> tuple[Array, Array, Array]:
        """Control's noise, its degrees of freedom, and the binomial variance of a share."""
        squares, changes = self._noise[runs].T
        noise, freedom = squares / np.maximum(changes, 1), sequential.FREE_CHANGE * changes
        spread, pods = self._spread[runs].T
        by_pods = pods >= np.maximum(freedom, 1.0)
        noise = np.where(by_pods, spread / np.maximum(pods, 1.0), noise)
        freedom = np.where(by_pods, pods, freedom)
        binomial = np.zeros(len(runs))
        if self._is_share:
            total = self._total[runs]
            rate = (total[:, 0] + total[:, 2]) / (total[:, 1] + total[:, 3])
            binomial = rate * (1 - rate)
        return np.maximum(noise, binomial), freedom, binomial

    def _mixed(self, runs: Rows) -> Array:
        n, z, squares, weights = np.moveaxis(self._sums[runs], 2, 0)
        noise, freedom, binomial = self._known(runs)
        floor = (binomial if self._is_share else noise)[:, None] * weights
        prior = np.where(noise > 0, np.minimum(freedom, sequential.PRIOR_BLOCKS), 0.0)[:, None]
        blocks = np.maximum(n, 1.0)
        variance = np.maximum(squares, floor) + prior * noise[:, None] * weights / blocks
        total = self._sign * z
        counts = (total > 0) & (n >= sequential.WORSE_BLOCKS)
        c2 = sequential.MIXTURE
        with np.errstate(all="ignore"):
            log = 0.5 * np.log(c2 / (n + c2)) - (n + prior) / 2 * np.log1p(
                -(total**2) / ((n + c2) * variance)
            )
        worth = np.maximum(2 * np.exp(np.minimum(log, 600.0)) - 1, 0.0)
        return _over_starts(np.where(counts, worth, 0.0), n > 0)


def _over_starts(values: Array, begun_starts: NDArray[np.bool_]) -> Array:
    """As the shipped mixture: half on the first start, one not begun is worth its stake."""
    values = np.where(begun_starts, values, 1.0)
    later = 0.5 / (sequential.STARTS - 1)
    found: Array = 0.5 * values[:, 0] + later * values[:, 1:].sum(axis=1)
    return found


class Failures:
    """`ErrorEvidence` of many runs, the side that rolls back."""

    def __init__(self, runs: int, *, limit: float) -> None:
        self._limit = limit
        bets = len(failures.BETS)
        self._logs = np.zeros((runs, sequential.STARTS, bets + len(failures.ODDS)))
        self._blocks = np.zeros(runs, dtype=np.int64)
        self.worse = np.ones(runs)

    def add(self, runs: Rows, block: Array) -> None:
        """A block (failures and answers of both arms, in the order of `Contrast`) of some runs."""
        gains = self._gains(block)
        active = self._blocks[runs, None] >= np.arange(sequential.STARTS) * sequential.EVERY
        self._logs[runs] += active[:, :, None] * gains[:, None, :]
        self._blocks[runs] += 1
        worth = np.exp(np.minimum(self._logs[runs], 600.0))
        bets = len(failures.BETS)
        halves = 0.5 * worth[:, :, :bets].mean(axis=2) + 0.5 * worth[:, :, bets:].mean(axis=2)
        worse = _over_starts(halves, active)
        self.worse[runs] = np.where(self._blocks[runs] >= failures.ERROR_BLOCKS, worse, 0.0)

    def _gains(self, block: Array) -> Array:
        hits, exposure, their_hits, their_exposure = block.T
        allowed = self._limit * exposure
        absolute = [*_bets(hits - allowed, allowed)]
        chance = np.full(len(hits), self._limit)
        absolute += _ratios(hits, exposure - hits, chance)
        weighted = failures.STABLE_FACTOR * exposure
        share = weighted / (weighted + their_exposure)
        expected = share * (hits + their_hits)
        relative = [*_bets(hits - expected, expected), *_ratios(hits, their_hits, share)]
        smaller = np.minimum(np.column_stack(absolute), np.column_stack(relative))
        gains: Array = np.minimum(smaller, failures.BLOCK_GAIN)
        return gains


def _bets(excess: Array, most_lost: Array) -> list[Array]:
    with np.errstate(divide="ignore"):
        cap = np.where(most_lost > 0, 0.95 / most_lost, 0.0)
    return [np.log1p(np.minimum(bet, cap) * excess) for bet in failures.BETS]


def _ratios(hits: Array, misses: Array, chance: Array) -> list[Array]:
    gains = []
    for factor in failures.ODDS:
        spread = np.log(1 - chance + factor * chance)
        gain = hits * (np.log(factor) - spread) - misses * spread
        gains.append(gain / failures.CLUSTERING)
    return gains


class _Windows:
    """The open block of every run; it closes by time and requests of both arms."""

    def __init__(self, rollouts: Rollouts, *, seconds: float) -> None:
        _, runs, pods, rows = rollouts.pods.shape
        self._seconds = seconds
        self._began = np.zeros(runs)
        self._arms = np.zeros((runs, 2, rollouts.arms.shape[3]))
        self._pods = np.zeros((runs, pods, rows))

    def look(self, rollouts: Rollouts, look: int, alive: Rows) -> tuple[Rows, Array, Array]:
        """Takes a look of the runs alive; which of them close, and what they hold."""
        self._arms[alive] += rollouts.arms[look, alive]
        self._pods[alive] += rollouts.pods[look, alive]
        at = (look + 1) * LOOK_SECONDS
        enough = self._arms[alive][:, :, REQUESTS].min(axis=1) >= BLOCK_REQUESTS
        due = enough & (at - self._began[alive] >= self._seconds) & ~rollouts.lost[look, alive]
        closed = alive[due]
        arms, pods = self._arms[closed], self._pods[closed]
        self._arms[closed], self._pods[closed], self._began[closed] = 0.0, 0.0, at
        return closed, arms, pods


def _block(arms: Array, hits: int, exposure: int) -> Array:
    return arms[:, [0, 0, 1, 1], [hits, exposure, hits, exposure]]


def _of_pods(pods: Array, hits: int, exposure: int) -> Array:
    return pods[:, :, [POD_ROWS.index(hits), POD_ROWS.index(exposure)]]


def judged_together(
    rollouts: Rollouts, *, error_limit: float = 0.01, analysis: Analysis = FIVE_TESTS
) -> Outcomes:
    """When the shipped rules roll each run back."""
    shipped = begun(error_limit, analysis)
    looks, runs = rollouts.arms.shape[:2]
    acceptance = Means(runs, limit=shipped.acceptance.limit, sign=-1, is_share=False)
    errors, refused = (Failures(runs, limit=error_limit) for _ in range(2))
    late = [
        Means(runs, limit=found.tests[0].limit, sign=1, is_share=True)
        for found in shipped.latencies[:2]
    ]
    short = _Windows(rollouts, seconds=BLOCK_SECONDS)
    long = _Windows(rollouts, seconds=LATENCY_BLOCK_SECONDS)
    carried, requests = np.zeros((runs, 2)), np.zeros(runs)
    seconds, metric = np.full(runs, np.nan), np.full(runs, -1, dtype=np.int8)
    values = np.ones((runs, len(METRICS)))
    alive = np.arange(runs)
    for look in range(looks):
        requests[alive] += rollouts.arms[look, alive, 0, REQUESTS]
        closed, arms, pods = short.look(rollouts, look, alive)
        if len(closed):
            acceptance.add(closed, _block(arms, ACCEPTED, STEPS), _of_pods(pods, ACCEPTED, STEPS))
            failed = arms[:, :, FAILED] + carried[closed]
            arms[:, :, FAILED] = np.minimum(failed, arms[:, :, REQUESTS])
            carried[closed] = failed - arms[:, :, FAILED]
            errors.add(closed, _block(arms, FAILED, REQUESTS))
            refused.add(closed, _block(arms, REFUSED, REQUESTS))
        long_closed, arms, pods = long.look(rollouts, look, alive)
        for (row, counted), test in zip(LATE, late, strict=True):
            if len(long_closed):
                test.add(long_closed, _block(arms, row, counted), _of_pods(pods, row, counted))
        if not len(closed) and not len(long_closed):
            continue
        both = (1 - CLIENT_STAKE) * errors.worse + CLIENT_STAKE * refused.worse
        values[alive] = np.column_stack([acceptance.worse, both, late[0].worse, late[1].worse])[
            alive
        ]
        back = alive[values[alive].max(axis=1) >= shipped.needed_worse]
        seconds[back] = (look + 1) * LOOK_SECONDS
        metric[back] = values[back].argmax(axis=1)
        alive = alive[np.isnan(seconds[alive])]
        if not len(alive):
            break
    return Outcomes(seconds, requests, metric, values)


def judged_alone(
    rollouts: Rollouts, run: int, *, error_limit: float = 0.01, analysis: Analysis = FIVE_TESTS
) -> tuple[float | None, tuple[float, ...]]:
    """Seconds to the rollback of one run by the shipped evidence, and that evidence at the end."""
    evidence = begun(error_limit, analysis)
    one = rollouts.only(run)
    short, long = (_Windows(one, seconds=each) for each in (BLOCK_SECONDS, LATENCY_BLOCK_SECONDS))
    only, carried = np.zeros(1, dtype=np.intp), np.zeros(2)
    values: tuple[float, ...] = (1.0,) * len(METRICS)
    for look in range(rollouts.arms.shape[0]):
        closed, arms, pods = short.look(one, look, only)
        if len(closed):
            failed = arms[0, :, FAILED] + carried
            arms[0, :, FAILED] = np.minimum(failed, arms[0, :, REQUESTS])
            carried = failed - arms[0, :, FAILED]
            spread = _spread(pods, ACCEPTED, STEPS)
            evidence = replace(
                evidence,
                acceptance=evidence.acceptance.add(_contrast(arms, ACCEPTED, STEPS), spread=spread),
                errors=evidence.errors.add(_contrast(arms, FAILED, REQUESTS)),
                client_errors=evidence.client_errors.add(_contrast(arms, REFUSED, REQUESTS)),
            )
        closed, arms, pods = long.look(one, look, only)
        if len(closed):
            evidence = _with_latencies(evidence, arms, pods)
        values = (
            evidence.acceptance.worse,
            error_sides(evidence)[0],
            evidence.latencies[0].tests[0].worse_side.worse,
            evidence.latencies[1].tests[0].worse_side.worse,
        )
        if max(values) >= evidence.needed_worse:
            return (look + 1) * LOOK_SECONDS, values
    return None, values


def _with_latencies(evidence: Evidence, arms: Array, pods: Array) -> Evidence:
    latencies = list(evidence.latencies)
    for index, (row, counted) in enumerate(LATE):
        test, *others = latencies[index].tests
        side = test.worse_side.add(
            _contrast(arms, row, counted), spread=_spread(pods, row, counted)
        )
        tests = (replace(test, worse_side=side), *others)
        latencies[index] = replace(latencies[index], tests=tests)
    return replace(evidence, latencies=tuple(latencies))


def _contrast(arms: Array, hits: int, exposure: int) -> Contrast:
    return Contrast(*(float(number) for number in _block(arms, hits, exposure)[0]))


def _spread(pods: Array, hits: int, exposure: int) -> Spread:
    return spread_of((float(ours), float(all_)) for ours, all_ in _of_pods(pods, hits, exposure)[0])
