"""PURE: how many draft tokens a step accepts; chance comes in as a `random.Random`."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_BISECTIONS: Final = 40


@dataclass(frozen=True, slots=True)
class Drafting:
    """Chance of each position to be accepted if those before it were; the last goes on."""

    chances: tuple[float, ...]

    def accepted(self, tokens: int, chance: random.Random) -> int:
        """Accepted tokens of a draft of `tokens`: the first rejection ends it."""
        accepted = 0
        while accepted < tokens and chance.random() < self._chance(accepted):
            accepted += 1
        return accepted

    def _chance(self, position: int) -> float:
        return self.chances[min(position, len(self.chances) - 1)]


def by_position(percents: Sequence[float]) -> Drafting:
    """A draft whose positions have these chances in percent."""
    return Drafting(tuple(percent / 100 for percent in percents))


@lru_cache(maxsize=64)
def drafting(*, tokens: int, acceptance_percent: float) -> Drafting:
    """A draft whose share of accepted tokens is `acceptance_percent` on average.

    With probability p per token, k tokens have an expected share of
    (p + p^2 + ... + p^k) / k accepted; p is found by bisection.
    """
    share = acceptance_percent / 100
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(middle**position for position in range(1, tokens + 1)) / tokens < share:
            low = middle
        else:
            high = middle
    return Drafting((high,))
