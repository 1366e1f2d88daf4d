"""Evidence that grows only while the candidate keeps doing worse, or keeps doing fine.

In: a `Contrast`, what both arms did in one block. Out: e-values. A candidate
within its limit reaches an e-value of E, at whatever moment one looks, with a
chance of at most 1/E (Ville's inequality); so one may look at every block.
Everything is incremental, immutable and plain JSON. Called by `verdict`.

Source: Wang and Ramdas, arXiv 2310.03722 (the t mixture). Failures: `failures`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from speculative_operator.analysis.contrast import NO_SPREAD as NO_SPREAD
from speculative_operator.analysis.contrast import NOTHING as NOTHING
from speculative_operator.analysis.contrast import Contrast as Contrast
from speculative_operator.analysis.contrast import Spread as Spread
from speculative_operator.analysis.contrast import joined as joined
from speculative_operator.analysis.contrast import numbers as numbers

STARTS: Final = 12
"""The evidence is begun anew so many times, so that a late regression is not drowned by a good
beginning; half of the stake is on the first start, the other half is spread over the others."""
EVERY: Final = 30
"""Blocks between two starts: 12 starts over an hour of 10 s blocks."""
MIXTURE: Final = 0.3
"""Prior precision of the effect, in blocks: the size of effect at which the test is sharpest."""
PRIOR_BLOCKS: Final = 4.0
"""Most blocks that control's noise is worth beside the candidate's own: it saves the first minute
and fades, since a candidate may vary more than control does."""
FREE_CHANGE: Final = 2 / 3
"""Degrees of freedom of one change of control's rate: neighbouring changes share a block."""
WORSE_BLOCKS: Final = 3
"""Blocks before a mean may be called worse."""
NOT_WORSE_BLOCKS: Final = 8
"""Blocks before a mean may be called not worse."""
LUMPY: Final = 1 / 3
"""Squared coefficient of variation of a block's rate up to which it counts by itself. Where a few
prompts yield nearly all hits, most blocks have less than their share and a rare one far more; the
t statistic takes the many for a steady difference. A block that holds three of those is mild."""
ROUNDING: Final = 1e-9
"""An excess below this share of the total is rounding noise: the t statistic has no scale of its
own and would take a constant 1e-16 for a perfectly steady difference."""
HIGHEST_LOG: Final = 600.0


def log_likelihood(count: int, chance: float) -> float:
    """The log of a chance, so many times; none at all is certain, and so many of none never."""
    if not count:
        return 0.0
    return count * math.log(chance) if chance > 0 else -math.inf


def mixed(values: Sequence[float]) -> float:
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
    no binomial assumption. What control shows of it counts as up to four more
    blocks, and the variance is never taken to be smaller than that: a few
    blocks in which all of the candidate's few requests happen to accept nothing
    look deceptively steady. Control shows it by how its pods differ within a
    block, or, where there are too few of them, by how its rate moves from block
    to block.
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
    spread: Spread = NO_SPREAD
    """How control's pods differ within blocks."""
    worse: float = field(init=False, compare=False)
    """E-value against 'within the limit'; known once a block is in, and read at every look."""
    not_worse: float = field(init=False, compare=False)
    """E-value against 'at or beyond the limit'."""

    def __post_init__(self) -> None:
        worse: list[float] = []
        fine: list[float] = []
        if self.starts:
            noise, freedom = self._noise()
            floor = self._binomial() if self.is_share else noise
            known = min(freedom, PRIOR_BLOCKS) if noise > 0 else 0.0
            for sums in self.starts:
                up = self.sign * sums.z > 0
                e = self._start(sums, floor=floor, known=known, noise=noise)
                worse.append(e if up and sums.blocks >= WORSE_BLOCKS else 0.0)
                fine.append(e if not up and sums.blocks >= NOT_WORSE_BLOCKS else 0.0)
        object.__setattr__(self, "worse", mixed(worse))
        object.__setattr__(self, "not_worse", mixed(fine))

    def add(
        self, block: Contrast, *, noise_of: Contrast | None = None, spread: Spread = NO_SPREAD
    ) -> "MeanEvidence":
        """Takes one more block; an empty one changes nothing.

        `noise_of` is the block whose control shows how much rates move, where the
        block's own control is made up; `spread` is that of control's pods in it.
        """
        if block.is_empty:
            return self
        learned = self._learned(noise_of or block, spread)
        share = block.share(self.limit)
        excess = block.candidate_hits - share * block.pooled
        if abs(excess) <= ROUNDING * block.pooled:
            excess = 0.0
        # Counts above control's rate vary more than control's, in proportion to the limit.
        weight = max(self.limit, 1.0) * (1 - share) ** 2 * block.candidate_exposure
        weight += share**2 * block.control_exposure
        held = _Held(
            joined(self.held.blocks, block), self.held.excess + excess, self.held.spread + weight
        )
        if self._is_lumpy(learned, held.blocks.candidate_exposure):
            return replace(self, held=held, **learned)
        return replace(self, held=_NOTHING_HELD, **learned, **self._gained(held))

    def with_noise(self, seen: Contrast) -> "MeanEvidence":
        """Knows from one more block how much control's rate moves, and its level."""
        return replace(self, **self._learned(seen, NO_SPREAD))

    def _learned(self, seen: Contrast, spread: Spread) -> dict[str, Any]:
        """What control shows of its noise and level, this block included."""
        if seen.control_exposure <= 0:
            return {}
        rate, noise, changes = seen.control_hits / seen.control_exposure, self.noise, self.changes
        if self.last is not None:
            before, exposure = self.last
            noise += (rate - before) ** 2 / (1 / exposure + 1 / seen.control_exposure)
            changes += 1
        hits, exposure = self.level
        return {
            "noise": noise,
            "changes": changes,
            "last": (rate, seen.control_exposure),
            "level": (hits + seen.control_hits, exposure + seen.control_exposure),
            "spread": self.spread.plus(spread),
        }

    def _is_lumpy(self, learned: dict[str, Any], exposure: float) -> bool:
        """Whether so much exposure typically holds less than a few of what makes up the rate."""
        hits, whole = learned.get("level", self.level)
        changes = learned.get("changes", self.changes)
        if self.is_share or not changes or hits <= 0:
            return False
        noise: float = learned.get("noise", self.noise)
        return bool(noise / changes > LUMPY * exposure * (hits / whole) ** 2)

    def _gained(self, held: "_Held") -> dict[str, Any]:
        """The sums with one more block."""
        exposure = held.blocks.candidate_exposure
        z, weight = held.excess / math.sqrt(exposure), held.spread / exposure
        due = self.blocks % EVERY == 0 and len(self.starts) < STARTS
        starts = (*self.starts, _MeanSums()) if due else self.starts
        return {
            "total": joined(self.total, held.blocks),
            "blocks": self.blocks + 1,
            "starts": tuple(
                _MeanSums(s.blocks + 1, s.z + z, s.z_squared + z * z, s.floor + weight)
                for s in starts
            ),
        }

    @staticmethod
    def _start(sums: _MeanSums, *, floor: float, known: float, noise: float) -> float:
        n, square = sums.blocks, sums.z * sums.z
        if not square:
            return 0.0
        variance = max(sums.z_squared, floor * sums.floor) + known * noise * sums.floor / n
        log = 0.5 * math.log(MIXTURE / (n + MIXTURE))
        log -= (n + known) / 2 * math.log1p(-square / ((n + MIXTURE) * variance))
        # Twice the two-sided mixture less one bounds the one-sided mixture from below.
        return max(2 * math.exp(min(log, HIGHEST_LOG)) - 1, 0.0)

    def _noise(self) -> tuple[float, float]:
        """Control's variance per unit of exposure, and its degrees of freedom."""
        noise, freedom = self.noise / max(self.changes, 1), FREE_CHANGE * self.changes
        if self.spread.freedom >= max(freedom, 1.0):
            noise, freedom = self.spread.squares / self.spread.freedom, self.spread.freedom
        return max(noise, self._binomial()), freedom

    def _binomial(self) -> float:
        """The least variance of a share; 0 for what is none."""
        if not self.is_share:
            return 0.0
        exposure = self.total.candidate_exposure + self.total.control_exposure
        rate = self.total.pooled / exposure
        return rate * (1 - rate)

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
            "spread": [self.spread.squares, self.spread.freedom],
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
            # Evidence that an older operator wrote has none, and begins to learn it.
            spread=Spread(*data.get("spread", ())),
        )
