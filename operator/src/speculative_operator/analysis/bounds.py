"""A lower bound on hits per exposure: against stable, or a number of its own.

In: blocks as contrasts. Out: e-values for `verdict`. A block may count for one
side only (load), so the two sides are kept apart. Pure.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from speculative_operator.analysis.sequential import (
    NO_SPREAD,
    NOTHING,
    Contrast,
    MeanEvidence,
    Spread,
    joined,
    numbers,
)

SEA: Final = 1e6
"""Exposure of the made-up control of an absolute bound, per exposure of the candidate: so much
that its share of the variance is none."""


def at_bound(block: Contrast, limit: float) -> Contrast:
    """The candidate of a block against a made-up control that is exactly at an absolute bound."""
    exposure = SEA * block.candidate_exposure
    return Contrast(block.candidate_hits, block.candidate_exposure, limit * exposure, exposure)


@dataclass(frozen=True, slots=True)
class FloorTest:
    """Whether hits per exposure stay above `limit`: a factor on control's, or a number itself."""

    limit: float
    is_absolute: bool
    worse_side: MeanEvidence
    not_worse_side: MeanEvidence

    @classmethod
    def of(cls, limit: float, *, is_absolute: bool) -> "FloorTest":
        """A test with no evidence yet."""
        nothing = MeanEvidence(limit=1.0 if is_absolute else limit, sign=-1)
        return cls(limit, is_absolute, nothing, nothing)

    @property
    def worse(self) -> float:
        """E-value against 'above the bound'."""
        return self.worse_side.worse

    @property
    def not_worse(self) -> float:
        """E-value against 'at or below the bound'."""
        return self.not_worse_side.not_worse

    @property
    def is_outside(self) -> bool:
        """Whether the plain figures are below the bound, over the blocks that count for worse."""
        total = self.worse_side.total
        if total.is_empty:
            return False
        ours = total.candidate_hits / total.candidate_exposure
        return ours < self.worse_side.limit * total.control_hits / total.control_exposure

    def add(
        self,
        block: Contrast,
        *,
        spread: Spread = NO_SPREAD,
        for_worse: bool = True,
        for_not_worse: bool = True,
    ) -> "FloorTest":
        """Takes one more block, for the sides that it says something about."""
        if block.candidate_exposure <= 0 or (block.is_empty and not self.is_absolute):
            return self
        after = self
        against = block
        if self.is_absolute:
            # What moves all pods moves a candidate against a fixed bound, and pods beside each
            # other don't show it.
            against, spread = at_bound(block, self.limit), NO_SPREAD
        if for_worse:
            seen = self.worse_side.add(against, noise_of=block, spread=spread)
            after = replace(after, worse_side=seen)
        if for_not_worse:
            shown = self.not_worse_side.add(against, noise_of=block, spread=spread)
            after = replace(after, not_worse_side=shown)
        return after

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "limit": self.limit,
            "isAbsolute": self.is_absolute,
            "worse": self.worse_side.to_json(),
            "notWorse": self.not_worse_side.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "FloorTest":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            limit=data["limit"],
            is_absolute=data["isAbsolute"],
            worse_side=MeanEvidence.from_json(data["worse"]),
            not_worse_side=MeanEvidence.from_json(data["notWorse"]),
        )


@dataclass(frozen=True, slots=True)
class Floors:
    """One metric with its lower bounds: each alone may fail a candidate, to pass it needs all."""

    name: str
    tests: tuple[FloorTest, ...]
    total: Contrast = NOTHING
    blocks: int = 0

    @classmethod
    def of(cls, name: str, *, factor: float | None, absolute: float | None) -> "Floors":
        """The bounds that are set; `factor` is one on control's."""
        tests = []
        if factor is not None:
            tests.append(FloorTest.of(factor, is_absolute=False))
        if absolute is not None:
            tests.append(FloorTest.of(absolute, is_absolute=True))
        return cls(name, tuple(tests))

    @property
    def limits(self) -> tuple[str, tuple[tuple[float, bool], ...]]:
        """What makes it another test when it changes."""
        return self.name, tuple((test.limit, test.is_absolute) for test in self.tests)

    @property
    def worse(self) -> float:
        """The largest e-value; 0 without any bound."""
        return max((test.worse for test in self.tests), default=0.0)

    @property
    def not_worse(self) -> float:
        """The smallest one; infinity without any bound."""
        return min((test.not_worse for test in self.tests), default=math.inf)

    def add(
        self,
        block: Contrast,
        *,
        spread: Spread = NO_SPREAD,
        for_worse: bool = True,
        for_not_worse: bool = True,
    ) -> "Floors":
        """Takes one more block, for every bound; without a control, for absolute ones only."""
        absolute = any(test.is_absolute for test in self.tests)
        if block.candidate_exposure <= 0 or (block.is_empty and not absolute):
            return self
        tests = tuple(
            test.add(block, spread=spread, for_worse=for_worse, for_not_worse=for_not_worse)
            for test in self.tests
        )
        return replace(self, tests=tests, total=joined(self.total, block), blocks=self.blocks + 1)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "tests": [test.to_json() for test in self.tests],
            "total": numbers(self.total),
            "blocks": self.blocks,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Floors":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            data["name"],
            tuple(FloorTest.from_json(test) for test in data["tests"]),
            Contrast(*data["total"]),
            data["blocks"],
        )
