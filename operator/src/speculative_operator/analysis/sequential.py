"""Evidence that grows only while the candidate keeps doing worse, or keeps doing fine.

In: a `Contrast`, what both arms did in one block. Out: e-values. A candidate
within its limit reaches an e-value of E, at whatever moment one looks, with a
chance of at most 1/E (Ville's inequality); so one may look at every block.
Everything is incremental, immutable and plain JSON. Called by `verdict`.

Sources: Wang and Ramdas, arXiv 2310.03722 (the t mixture); Waudby-Smith and
Ramdas, arXiv 2010.09686 (betting); Lindon and Malek, arXiv 2011.03567 (counts).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from speculative_operator.analysis.contrast import NOTHING as NOTHING
from speculative_operator.analysis.contrast import Contrast as Contrast
from speculative_operator.analysis.contrast import joined as joined
from speculative_operator.analysis.contrast import numbers as numbers

STARTS: Final = 12
"""The evidence is begun anew so many times, so that a late regression is not drowned by a good
beginning; half of the stake is on the first start, the other half is spread over the others."""
EVERY: Final = 30
"""Blocks between two starts: 12 starts over an hour of 10 s blocks."""
MIXTURE: Final = 0.3
"""Prior precision of the effect, in blocks: the size of effect at which the test is sharpest."""
WORSE_BLOCKS: Final = 4
"""Blocks before a mean may be called worse; their variance is estimated from themselves."""
NOT_WORSE_BLOCKS: Final = 8
"""Blocks before a mean may be called not worse."""
STEADY_BLOCKS: Final = 60
"""From here the contrast's own history is a better noise floor than control's changes, which hold
whatever moves both arms; a kind of prompt that is 1 in 20 has shown itself by then."""
LUMPY: Final = 1 / 3
"""Squared coefficient of variation of a block's rate up to which it counts by itself. Where a few
prompts yield nearly all hits, most blocks have less than their share and a rare one far more; the
t statistic takes the many for a steady difference. A block that holds three of those is mild."""
ERROR_BLOCKS: Final = 2
"""Blocks before errors may be called worse: one burst never decides."""
BETS: Final = (0.3, 1.0, 3.0, 10.0)
"""Stakes per excess failure, each capped so that no block can lose more than 95 %."""
ODDS: Final = (2.0, 5.0, 20.0, 100.0)
"""How many times the odds at the limit the alternatives of the count half are."""
FEWER: Final = (0.3, 0.6, 0.9)
"""How far below the limit the alternatives of 'not worse' are."""
CLUSTERING: Final = 2.0
"""Design effect: errors come in pairs and bursts, so that a count is worth half."""
BLOCK_GAIN: Final = math.log(20.0)
"""Most that one block can multiply the evidence of errors by."""
STABLE_FACTOR: Final = 2.0
"""An error rate is worse only above this many times stable's."""
ROUNDING: Final = 1e-9
"""An excess below this share of the total is rounding noise: the t statistic has no scale of its
own and would take a constant 1e-16 for a perfectly steady difference."""
_HIGHEST_LOG: Final = 600.0


def _mixed(values: Sequence[float]) -> float:
    """The evidence over all starts; one not begun yet is worth its stake."""
    later = 0.5 / (STARTS - 1)
    waiting = STARTS - max(len(values), 1)
    first = values[0] if values else 1.0
    return 0.5 * first + later * (sum(values[1:]) + waiting)


@dataclass(frozen=True, slots=True)
class _MeanSums:
    """One start: blocks, sum and sum of squares of z, and the weight of the noise floor."""

    blocks: int = 0
    z: float = 0.0
    z_squared: float = 0.0
    floor: float = 0.0


@dataclass(frozen=True, slots=True)
class _Held:
    """Blocks that are too lumpy one by one: what they hold, their excess, and its variance in
    units of control's noise."""

    blocks: Contrast = NOTHING
    excess: float = 0.0
    spread: float = 0.0


_NOTHING_HELD: Final = _Held()


@dataclass(frozen=True, slots=True)
class MeanEvidence:
    """Whether accepted tokens per step stay above `limit` times control's, or a share below it.

    A mixture t test on blocks: the variance comes from the blocks themselves,
    no binomial assumption. It is never taken to be smaller than what control's
    own rate shows from block to block: a few blocks in which all of the
    candidate's few requests happen to accept nothing look deceptively steady.
    """

    limit: float
    sign: int = -1
    """Which side is worse: -1 too little (acceptance), +1 too much (slow requests)."""
    is_share: bool = False
    """Hits are some of the exposure, so that their variance is at least the binomial one: a
    handful of blocks with one slow request each must not look steady."""
    total: Contrast = NOTHING
    blocks: int = 0
    starts: tuple[_MeanSums, ...] = ()
    noise: float = 0.0
    """Sum over neighbouring blocks of control's squared change of rate, per unit of exposure."""
    changes: int = 0
    """How many changes are in `noise`."""
    last: tuple[float, float] | None = None
    """Control's rate and exposure in the last block."""
    level: tuple[float, float] = (0.0, 0.0)
    """Control's hits and exposure since the beginning."""
    held: _Held = _NOTHING_HELD
    worse: float = field(init=False, compare=False)
    """E-value against 'within the limit'; known once a block is in, and read at every look."""
    not_worse: float = field(init=False, compare=False)
    """E-value against 'at or beyond the limit'."""

    def __post_init__(self) -> None:
        worse = [self._start(s, sign=self.sign, least=WORSE_BLOCKS) for s in self.starts]
        fine = [self._start(s, sign=-self.sign, least=NOT_WORSE_BLOCKS) for s in self.starts]
        object.__setattr__(self, "worse", _mixed(worse))
        object.__setattr__(self, "not_worse", _mixed(fine))

    def add(self, block: Contrast, *, noise_of: Contrast | None = None) -> "MeanEvidence":
        """Takes one more block; an empty one changes nothing.

        `noise_of` is the block whose control shows how much rates move, where the
        block's own control is made up.
        """
        if block.is_empty:
            return self
        self = self.with_noise(noise_of or block)
        share = block.share(self.limit)
        excess = block.candidate_hits - share * block.pooled
        if abs(excess) <= ROUNDING * block.pooled:
            excess = 0.0
        # Counts above control's rate vary more than control's, in proportion to the limit.
        spread = max(self.limit, 1.0) * (1 - share) ** 2 * block.candidate_exposure
        spread += share**2 * block.control_exposure
        held = _Held(
            joined(self.held.blocks, block), self.held.excess + excess, self.held.spread + spread
        )
        if self._is_lumpy(held.blocks.candidate_exposure):
            return replace(self, held=held)
        return self._with(held)

    def with_noise(self, seen: Contrast) -> "MeanEvidence":
        """Knows from one more block how much control's rate moves, and its level."""
        if seen.control_exposure <= 0:
            return self
        rate, noise, changes = seen.control_hits / seen.control_exposure, self.noise, self.changes
        if self.last is not None:
            before, exposure = self.last
            noise += (rate - before) ** 2 / (1 / exposure + 1 / seen.control_exposure)
            changes += 1
        hits, exposure = self.level
        return replace(
            self,
            noise=noise,
            changes=changes,
            last=(rate, seen.control_exposure),
            level=(hits + seen.control_hits, exposure + seen.control_exposure),
        )

    def _is_lumpy(self, exposure: float) -> bool:
        """Whether so much exposure typically holds less than a few of what makes up the rate."""
        hits, whole = self.level
        if self.is_share or not self.changes or hits <= 0:
            return False
        return self.noise / self.changes > LUMPY * exposure * (hits / whole) ** 2

    def _with(self, held: "_Held") -> "MeanEvidence":
        exposure = held.blocks.candidate_exposure
        z, weight = held.excess / math.sqrt(exposure), held.spread / exposure
        due = self.blocks % EVERY == 0 and len(self.starts) < STARTS
        starts = (*self.starts, _MeanSums()) if due else self.starts
        return replace(
            self,
            total=joined(self.total, held.blocks),
            blocks=self.blocks + 1,
            starts=tuple(
                _MeanSums(s.blocks + 1, s.z + z, s.z_squared + z * z, s.floor + weight)
                for s in starts
            ),
            held=_NOTHING_HELD,
        )

    def _start(self, sums: _MeanSums, *, sign: int, least: int) -> float:
        total = sign * sums.z
        if total <= 0 or sums.blocks < least:
            return 0.0
        n = sums.blocks
        variance = max(sums.z_squared, self._floor(sums))
        log = 0.5 * math.log(MIXTURE / (n + MIXTURE)) - n / 2 * math.log1p(
            -(total * total) / ((n + MIXTURE) * variance)
        )
        # Twice the two-sided mixture less one bounds the one-sided mixture from below.
        return max(2 * math.exp(min(log, _HIGHEST_LOG)) - 1, 0.0)

    def _floor(self, sums: _MeanSums) -> float:
        """Least sum of squares that `sums` is taken to have."""
        floor = self.noise / max(self.changes, 1) * sums.floor
        if self.blocks >= STEADY_BLOCKS:
            whole = self.starts[0]
            spread = (whole.z_squared - whole.z**2 / whole.blocks) / (whole.blocks - 1)
            floor = min(floor, max(spread, 0.0) * sums.blocks)
        if not self.is_share:
            return floor
        exposure = self.total.candidate_exposure + self.total.control_exposure
        rate = self.total.pooled / exposure
        return max(floor, rate * (1 - rate) * sums.floor)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; floats keep every bit."""
        return {
            "limit": self.limit,
            "sign": self.sign,
            "isShare": self.is_share,
            "total": numbers(self.total),
            "blocks": self.blocks,
            "starts": [[s.blocks, s.z, s.z_squared, s.floor] for s in self.starts],
            "noise": self.noise,
            "changes": self.changes,
            "last": self.last,
            "level": self.level,
            "held": [*numbers(self.held.blocks), self.held.excess, self.held.spread],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "MeanEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            limit=data["limit"],
            sign=data.get("sign", -1),
            is_share=data.get("isShare", False),
            total=Contrast(*data["total"]),
            blocks=data["blocks"],
            starts=tuple(_MeanSums(*sums) for sums in data["starts"]),
            noise=data["noise"],
            changes=data["changes"],
            level=(data["level"][0], data["level"][1]),
            held=_Held(Contrast(*data["held"][:4]), *data["held"][4:]),
            last=None if data["last"] is None else (data["last"][0], data["last"][1]),
        )


def _bets(excess: float, most_lost: float) -> list[float]:
    """Log gains of betting on an excess whose mean at the limit is 0."""
    if most_lost <= 0:
        return [0.0] * len(BETS)
    return [math.log1p(min(bet, 0.95 / most_lost) * excess) for bet in BETS]


def _ratios(hits: float, misses: float, chance: float, factors: Sequence[float]) -> list[float]:
    """Log likelihood ratios of binomial odds `factors` times those of `chance`."""
    gains = []
    for factor in factors:
        # Not by way of the other chance itself: it would round to 1, and its misses to log(0).
        spread = math.log(1 - chance + factor * chance)
        gain = hits * (math.log(factor) - spread)
        if chance < 1:
            gain -= misses * spread
        gains.append(gain / CLUSTERING)
    return gains


def _mean_exp(logs: Sequence[float]) -> float:
    return sum(math.exp(min(log, _HIGHEST_LOG)) for log in logs) / len(logs)


def _capped(gains: list[float]) -> list[float]:
    return [min(gain, BLOCK_GAIN) for gain in gains]


def _halves(logs: Sequence[float]) -> float:
    return 0.5 * _mean_exp(logs[: len(BETS)]) + 0.5 * _mean_exp(logs[len(BETS) :])


@dataclass(frozen=True, slots=True)
class ErrorEvidence:
    """Whether failures stay at or below max(2 x control, `limit`), a share of requests.

    A betting half (robust) and a count half (quick). In every block a candidate
    within the limit is within twice control OR within `limit`, not always the
    same of the two, so the smaller gain is taken block by block. (The smaller of
    two totals is not enough: a candidate at the limit would be rolled back after
    an incident that hits both arms: 13 % of simulated hours.)
    """

    limit: float
    total: Contrast = NOTHING
    blocks: int = 0
    starts: tuple[tuple[float, ...], ...] = ()
    """Per start 8 log gains, for each of `BETS`, then for each of `ODDS`."""
    fewer: tuple[float, ...] = (0.0,) * len(FEWER)
    """Log gains of 'not worse'."""
    worse: float = field(init=False, compare=False)
    """E-value against 'at or below the limit'."""
    not_worse: float = field(init=False, compare=False)
    """E-value against 'at or above the limit'; needs many requests at a low limit."""

    def __post_init__(self) -> None:
        early = 0 < self.blocks < ERROR_BLOCKS
        worse = 0.0 if early else _mixed([_halves(logs) for logs in self.starts])
        object.__setattr__(self, "worse", worse)
        object.__setattr__(self, "not_worse", _mean_exp(self.fewer))

    def add(self, block: Contrast, *, alone: bool = False) -> "ErrorEvidence":
        """Takes one more block; an empty one changes nothing. Hits must not exceed exposure.

        `alone`: there is no control, and `limit` is the whole bound.
        """
        if block.candidate_exposure <= 0 or (block.is_empty and not alone):
            return self
        due = self.blocks % EVERY == 0 and len(self.starts) < STARTS
        starts = (*self.starts, (0.0,) * (len(BETS) + len(ODDS))) if due else self.starts
        gains = self._gains(block)
        passed = block.candidate_exposure - block.candidate_hits
        fewer = _capped(
            _ratios(block.candidate_hits, passed, self.limit, [1 - less for less in FEWER])
        )
        return replace(
            self,
            total=joined(self.total, block),
            blocks=self.blocks + 1,
            starts=tuple(
                tuple(log + gain for log, gain in zip(logs, gains, strict=True)) for logs in starts
            ),
            fewer=tuple(log + gain for log, gain in zip(self.fewer, fewer, strict=True)),
        )

    def _gains(self, block: Contrast) -> list[float]:
        allowed = self.limit * block.candidate_exposure
        passed = block.candidate_exposure - block.candidate_hits
        absolute = _bets(block.candidate_hits - allowed, allowed)
        absolute += _ratios(block.candidate_hits, passed, self.limit, ODDS)
        if block.control_exposure <= 0:
            return _capped(absolute)
        share = block.share(STABLE_FACTOR)
        expected = share * block.pooled
        relative = _bets(block.candidate_hits - expected, expected)
        relative += _ratios(block.candidate_hits, block.control_hits, share, ODDS)
        return _capped([min(pair) for pair in zip(relative, absolute, strict=True)])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; floats keep every bit."""
        return {
            "limit": self.limit,
            "total": numbers(self.total),
            "blocks": self.blocks,
            "starts": self.starts,
            "fewer": self.fewer,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ErrorEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            limit=data["limit"],
            total=Contrast(*data["total"]),
            blocks=data["blocks"],
            starts=tuple(tuple(logs) for logs in data["starts"]),
            fewer=tuple(data["fewer"]),
        )
