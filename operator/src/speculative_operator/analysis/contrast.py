"""What both arms did in one block: the unit that evidence is made of. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Contrast:
    """One block: hits (accepted tokens, failed requests) and exposure (steps, requests)."""

    candidate_hits: float
    candidate_exposure: float
    control_hits: float
    control_exposure: float

    def share(self, limit: float) -> float:
        """The candidate's share of the pooled hits if it is exactly at `limit` times control."""
        weighted = limit * self.candidate_exposure
        return weighted / (weighted + self.control_exposure)

    @property
    def pooled(self) -> float:
        """Hits of both arms."""
        return self.candidate_hits + self.control_hits

    @property
    def is_empty(self) -> bool:
        """Whether an arm did nothing, so that there is nothing to compare."""
        return self.candidate_exposure <= 0 or self.control_exposure <= 0


NOTHING: Final = Contrast(0, 0, 0, 0)


def joined(left: Contrast, right: Contrast) -> Contrast:
    """Two blocks as one."""
    return Contrast(
        left.candidate_hits + right.candidate_hits,
        left.candidate_exposure + right.candidate_exposure,
        left.control_hits + right.control_hits,
        left.control_exposure + right.control_exposure,
    )


def numbers(block: Contrast) -> list[float]:
    """The inverse of `Contrast(*numbers)`."""
    return [
        block.candidate_hits,
        block.candidate_exposure,
        block.control_hits,
        block.control_exposure,
    ]


@dataclass(frozen=True, slots=True)
class Spread:
    """How much pods of one arm differ within blocks, which no drift of all of them can move.

    `squares` over `freedom` is the variance of hits per unit of exposure.
    """

    squares: float = 0.0
    freedom: float = 0.0

    def plus(self, other: "Spread") -> "Spread":
        """Both, as independent as their blocks are."""
        return Spread(self.squares + other.squares, self.freedom + other.freedom)


NO_SPREAD: Final = Spread()


def spread_of(pods: Iterable[tuple[float, float]]) -> Spread:
    """The spread of (hits, exposure) of the pods of one arm in one block."""
    active = [(hits, exposure) for hits, exposure in pods if exposure > 0]
    if len(active) < 2:
        return NO_SPREAD
    rate = sum(hits for hits, _ in active) / sum(exposure for _, exposure in active)
    squares = sum((hits - rate * exposure) ** 2 / exposure for hits, exposure in active)
    return Spread(squares, len(active) - 1.0)
