"""PURE: which draft length to use next, for batches of each size.

Comes in: outcomes and times of steps. Goes out: a draft length per batch size.
Maximised are tokens per second, (1 + expected accepted) / time. Most steps use
the best length; now and then a short trial of another one keeps both estimates
true, as far as a small budget of time lasts. No clock, no chance.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from .acceptance import Acceptance
from .cost import StepCost

TRIAL_STEPS: Final = 5
"""Steps of one trial; the first only carries the drafts of the length before it."""
TRIAL_SHARE: Final = 0.015
"""Share of time that trials may lose against the best length."""
LARGEST_BUDGET_STEPS: Final = 20.0
"""What trials may lose at once, in steps."""
CLEARLY_BETTER: Final = 1.01
"""Another length must be better by this factor: estimates differ by chance."""
ZERO_BETTER: Final = 1.02
"""Length 0 by this factor more: at it nothing is learned of drafts, which costs at the next change
of the text what it gained."""
SMALLEST_LOSS: Final = 0.05
"""Even a trial that seems to win is booked with this share of its time."""
LOOK_SECONDS: Final = 2.0
"""At length 0 nothing is learned about acceptance: so often one step drafts one token."""
FIRST_WAIT_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 60.0
"""A length is tried again after 2, 4, 8, … s, at last once a minute."""
CONTENDER_SHARE: Final = 0.1
"""A length that seems to lose less than this share is soon tried again, whether or not it is a
neighbour: what a few steps said of it may be chance, and more of them cost little."""
DOUBT: Final = 0.3
"""The same after one step; with more of them it falls as their mean gets truer."""
CONTENDER_STEPS: Final = 48
"""Once so many of its steps were timed it waits like the others."""
SETTLING_STEPS: Final = 8
"""Steps at the best length before a trial, so that there is a level to compare with."""
FOLLOW_UP_STEPS: Final = 3
"""As many after a look whose drafts were accepted; one verifies them, and one is timed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is used for batches of one size, and why."""

    k: int
    gain: float
    """Estimated tokens per second over those at length 0 (drafter's cost at 0 included), 1 is
    equal."""


@dataclass(slots=True)
class _Bucket:
    cost: StepCost
    k: int
    unmeasured: list[int]
    """Lengths to try at once, whatever it costs: between them the rest is interpolated."""
    budget: float = 0.0
    """Seconds that trials may lose."""
    quiet_steps: int = 0
    """Steps at the best length since the last trial."""
    trial: int | None = None
    trial_left: int = 0
    seen_at: float | None = None
    looked_at: float = float("-inf")
    tries: dict[int, tuple[int, float]] = field(default_factory=dict)
    """How often each length was tried, and when last."""


class Controller:
    """Chooses draft lengths of 0 to `largest` for batches of 1 to `max_batch` sequences."""

    def __init__(self, *, largest: int, max_batch: int, min_acceptance_percent: int = 0) -> None:
        self.largest = largest
        self.max_batch = max_batch
        self._min_acceptance = min_acceptance_percent / 100
        self._acceptance = Acceptance(largest)
        self._buckets: dict[int, _Bucket] = {}
        self._last = 0

    def length(self, batch: int) -> int:
        """The draft length for a batch of this size now."""
        bucket = self._buckets.get(_bucket_of(batch))
        if bucket is None:
            near = self._nearest(_bucket_of(batch))
            return near.k if near is not None else self.largest
        return bucket.k if bucket.trial is None else bucket.trial

    def choice(self, batch: int | None = None) -> Choice:
        """What is used apart from trials; for the size seen last when none is given."""
        bucket = self._buckets.get(self._last if batch is None else _bucket_of(batch))
        if bucket is None:
            return Choice(self.largest, 1.0)
        rates = self._rates(bucket)
        return Choice(bucket.k, rates[bucket.k] / rates[0])

    def accepted(self, *, drafted: int, runs: Sequence[int], now: float) -> None:
        """Takes a step's outcome: tokens asked for, and accepted ones per request."""
        self._acceptance.observe(drafted=drafted, runs=runs, now=now)
        bucket = self._buckets.get(self._last)
        if (
            bucket is not None
            and bucket.k == 0
            and drafted
            and 2 * sum(map(bool, runs)) > len(runs)
        ):
            # Not what sent it to 0: the next look is due, after steps by which it may settle.
            bucket.looked_at = float("-inf")
            bucket.quiet_steps = max(bucket.quiet_steps, SETTLING_STEPS - FOLLOW_UP_STEPS)

    def timed(self, *, batch: int, k: int, seconds: float, now: float) -> None:
        """Takes a step's time: one that verified drafts of length `k` and drafted as many."""
        if seconds <= 0:
            return
        index = _bucket_of(batch)
        bucket = self._buckets.get(index) or self._new(index)
        bucket.cost.observe(k, seconds, trial=k != bucket.k)
        if bucket.trial is None and bucket.cost.is_settled:
            self._settle(bucket)

    def advance(self, *, batch: int, now: float) -> None:
        """Says that a step of this size was scheduled: trials begin and end here."""
        self._last = _bucket_of(batch)
        bucket = self._buckets.get(self._last) or self._new(self._last)
        self._earn(bucket, now)
        if bucket.trial is None:
            bucket.quiet_steps += 1
            if bucket.quiet_steps >= SETTLING_STEPS and bucket.cost.is_settled:
                self._begin_trial(bucket, now)
            return
        bucket.trial_left -= 1
        if bucket.trial_left <= 0:
            bucket.trial = None
            bucket.quiet_steps = 0

    def _new(self, index: int) -> _Bucket:
        near = self._nearest(index)
        cost = StepCost(self.largest, prior=near.cost if near else None)
        # Without speculation twice, some seconds apart: a machine that happens to be busy at the
        # only try makes it look dear, and nothing is to be slower than that for long.
        first = [*sorted({0, self.largest // 2, self.largest}), 0]
        bucket = _Bucket(cost, k=near.k if near else self.largest, unmeasured=first)
        self._buckets[index] = bucket
        return bucket

    def _nearest(self, index: int) -> _Bucket | None:
        near = min(self._buckets, key=lambda other: (abs(other - index), other), default=None)
        return None if near is None else self._buckets[near]

    def _rates(self, bucket: _Bucket) -> list[float]:
        """Tokens per relative second of each length."""
        expected = self._acceptance.expected()
        return [
            (1 + accepted) / time
            for accepted, time in zip(expected, bucket.cost.relative(), strict=True)
        ]

    def _allowed(self, k: int) -> bool:
        if k == 0 or self._min_acceptance == 0:
            return True
        return self._acceptance.expected()[k] / k >= self._min_acceptance

    def _settle(self, bucket: _Bucket) -> None:
        """Takes the best length, if it is clearly better or the present one is not allowed."""
        rates = self._rates(bucket)
        rates[0] /= ZERO_BETTER
        allowed = [k for k in range(self.largest + 1) if self._allowed(k)]
        best = max(allowed, key=lambda k: rates[k])
        if rates[best] > CLEARLY_BETTER * rates[bucket.k] or bucket.k not in allowed:
            bucket.k = best

    def _earn(self, bucket: _Bucket, now: float) -> None:
        level = bucket.cost.level or 0.0
        if bucket.seen_at is not None:
            # Not for time in which this size did not occur.
            passed = min(now - bucket.seen_at, 10 * level)
            earned = bucket.budget + TRIAL_SHARE * passed
            bucket.budget = min(earned, LARGEST_BUDGET_STEPS * level)
        bucket.seen_at = now

    def _begin_trial(self, bucket: _Bucket, now: float) -> None:
        if bucket.unmeasured:
            k = bucket.unmeasured.pop(0)
            if k != bucket.k:
                self._try(bucket, k, steps=TRIAL_STEPS, now=now)
            return
        if bucket.k == 0 and now - bucket.looked_at >= LOOK_SECONDS:
            bucket.looked_at = now
            if self._loss(bucket, 1, self._rates(bucket), steps=1) <= bucket.budget:
                self._try(bucket, 1, steps=1, now=now)
                return
        rates = self._rates(bucket)
        contenders = self._contenders(bucket, rates)
        due = [
            k
            for k in {*contenders, *self._neighbours(bucket)}
            if k in contenders or _is_due(bucket.tries.get(k), now)
        ]
        # A dear one waits until the budget holds it, and keeps no other one waiting.
        paid = [k for k in due if self._loss(bucket, k, rates, steps=TRIAL_STEPS) <= bucket.budget]
        if paid:
            k = min(paid, key=lambda other: bucket.tries.get(other, (0, 0.0)))
            self._try(bucket, k, steps=TRIAL_STEPS, now=now)

    def _try(self, bucket: _Bucket, k: int, *, steps: int, now: float) -> None:
        loss = self._loss(bucket, k, self._rates(bucket), steps=steps)
        bucket.budget = max(0.0, bucket.budget - loss)
        bucket.trial, bucket.trial_left = k, steps
        if steps == TRIAL_STEPS:
            count, _ = bucket.tries.get(k, (0, 0.0))
            bucket.tries[k] = (count + 1, now)

    def _loss(self, bucket: _Bucket, k: int, rates: Sequence[float], *, steps: int) -> float:
        """Seconds that a trial is expected to lose against the best length."""
        share = max(1 - rates[k] / rates[bucket.k], SMALLEST_LOSS)
        return share * steps * bucket.cost.relative()[k] * (bucket.cost.level or 0.0)

    def _contenders(self, bucket: _Bucket, rates: Sequence[float]) -> list[int]:
        """Lengths that may be the best one for all that their few steps say."""
        found = []
        for k in range(self.largest + 1):
            steps = bucket.cost.steps(k)
            doubt = max(CONTENDER_SHARE, DOUBT / max(steps, 1) ** 0.5)
            if (
                k != bucket.k
                and steps < CONTENDER_STEPS
                and rates[k] > (1 - doubt) * rates[bucket.k]
            ):
                found.append(k)
        return found

    def _neighbours(self, bucket: _Bucket) -> list[int]:
        """Lengths worth a trial: beside the present one, plain decoding, and the longest."""
        wanted = {bucket.k - 1, bucket.k + 1, 0, self.largest}
        return sorted(k for k in wanted if 0 <= k <= self.largest and k != bucket.k)


def ranges_of(max_batch: int) -> list[tuple[int, int]]:
    """First and last batch size of each range that shares its measurements."""
    firsts = [1, *(2**power + 1 for power in range(max_batch.bit_length() + 1))]
    return [
        (first, min(after - 1, max_batch))
        for first, after in itertools.pairwise(firsts)
        if first <= max_batch
    ]


def _is_due(tried: tuple[int, float] | None, now: float) -> bool:
    if tried is None:
        return True
    count, at = tried
    return now - at >= min(FIRST_WAIT_SECONDS * 2.0 ** (count - 1), LONGEST_WAIT_SECONDS)


def _bucket_of(batch: int) -> int:
    """Sizes 1, 2, 3-4, 5-8, 9-16, … share their measurements."""
    return max(0, batch - 1).bit_length()
