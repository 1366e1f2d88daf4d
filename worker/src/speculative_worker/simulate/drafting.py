"""PURE: how many draft tokens a step accepts; chance comes in as a `random.Random`."""

import random
from dataclasses import dataclass

_BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class Drafting:
    """A draft of `tokens` per step, each accepted with `probability` if those before it were."""

    tokens: int
    probability: float

    def accepted(self, chance: random.Random) -> int:
        """Accepted tokens of one draft: the first rejection ends it, as in a real engine."""
        accepted = 0
        while accepted < self.tokens and chance.random() < self.probability:
            accepted += 1
        return accepted


def drafting(*, tokens: int, acceptance_percent: int) -> Drafting:
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
    return Drafting(tokens=tokens, probability=high)
