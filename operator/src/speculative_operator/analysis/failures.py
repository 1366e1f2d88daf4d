"""Evidence of failures: betting on their excess, and likelihood ratios of their counts.

In: a `Contrast`, failures and answers of both arms in one block. Out: e-values,
as in `sequential`. Called by `verdict`. Immutable and plain JSON.

Sources: Waudby-Smith and Ramdas, arXiv 2010.09686 (betting); Lindon and Malek,
arXiv 2011.03567 (counts).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from speculative_operator.analysis.contrast import NOTHING, Contrast, joined, numbers
from speculative_operator.analysis.sequential import EVERY, HIGHEST_LOG, STARTS, mixed

ERROR_BLOCKS: Final = 2
"""Blocks before errors may be called worse: one burst never decides."""
BETS: Final = (0.5, 1.0, 2.0, 4.0)
"""Stakes per excess failure, each capped so that no block can lose more than 95 %."""
ODDS: Final = (2.0, 5.0, 10.0, 20.0)
"""How many times the odds at the limit the alternatives of the count half are."""
FEWER: Final = (0.3, 0.6, 0.9)
"""How far below the limit the alternatives of 'not worse' are."""
CLUSTERING: Final = 2.0
"""Design effect: errors come in pairs and bursts, so that a count is worth half."""
BLOCK_GAIN: Final = math.log(20.0)
"""Most that one block can multiply the evidence of errors by."""
STABLE_FACTOR: Final = 2.0
"""An error rate is worse only above this many times stable's."""


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
    return sum(math.exp(min(log, HIGHEST_LOG)) for log in logs) / len(logs)


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

    @property
    def wealth(self) -> float:
        """`worse`, also while it is too early to say so."""
        return mixed([_halves(logs) for logs in self.starts])

    def __post_init__(self) -> None:
        early = 0 < self.blocks < ERROR_BLOCKS
        worse = 0.0 if early else self.wealth
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
