"""PURE: what a step costs at each draft length, for batches of about one size.

Times are kept relative to each other: a step of a trial is compared with the
level of the steps just around it, so that a machine that gets busier or contexts
that get longer change the level and not the comparison.
"""

from typing import Final

LEVEL_WEIGHT: Final = 0.1
"""Weight of one step in the moving level; about the last 20 steps count."""
SMALLEST_WEIGHT: Final = 0.08
"""Weight of one step of a trial once there were many; a changed cost shows within 25 of them."""
_OUTLIER: Final = 1.5
"""A step that is off by more than this factor counts as off by this factor."""
SETTLED_STEPS: Final = 4
"""Steps after which a length counts as measured."""
FIRST_STEPS: Final = 2 * SETTLED_STEPS
"""So many of a length are forgotten if a later one is faster by more than an outlier."""
PRIOR_SLOPE: Final = 0.1
"""Guess before anything was measured: each drafted token makes a step a tenth longer."""


class StepCost:
    """Relative times of draft lengths 0 to `largest`, and the level in seconds."""

    def __init__(self, largest: int, prior: "StepCost | None" = None) -> None:
        self._relative = [1 + PRIOR_SLOPE * k for k in range(largest + 1)]
        self._steps = [0] * (largest + 1)
        if prior is not None:
            self._relative = prior.relative()
        self._level_steps = 0
        self.level: float | None = None
        """Seconds of a step whose relative time is 1; None before the first."""

    def observe(self, k: int, seconds: float, *, trial: bool) -> None:
        """Takes the time of one step with draft length `k`."""
        relative = self._interpolated(k)
        if self.level is None:
            self.level = seconds / relative
            self._steps[k] += 1
            return
        ratio = seconds / (relative * self.level)
        if trial and self._steps[k] <= FIRST_STEPS and ratio < 1 / _OUTLIER:
            # Something else ran during its first steps: nothing makes a step that much faster.
            self._steps[k] = 0
        if self._steps[k] >= SETTLED_STEPS:
            ratio = min(max(ratio, 1 / _OUTLIER), _OUTLIER)
        if trial or (self._steps[k] < SETTLED_STEPS and self.is_settled):
            weight = max(1 / (self._steps[k] + 1), SMALLEST_WEIGHT)
            self._relative[k] = relative * (1 + weight * (ratio - 1))
        else:
            self._relative[k] = relative
            self._level_steps += 1
            weight = max(1 / (self._level_steps + 1), LEVEL_WEIGHT)
            self.level *= 1 + weight * (ratio - 1)
        self._steps[k] += 1

    def relative(self) -> list[float]:
        """Relative times of all lengths; those never measured lie between their neighbours."""
        return [self._interpolated(k) for k in range(len(self._relative))]

    def steps(self, k: int) -> int:
        """How many steps of this length were timed."""
        return self._steps[k]

    @property
    def is_settled(self) -> bool:
        """Whether any length was measured: before that there is nothing to compare with."""
        return max(self._steps) >= SETTLED_STEPS

    def _interpolated(self, k: int) -> float:
        if self._steps[k]:
            return self._relative[k]
        known = [other for other, steps in enumerate(self._steps) if steps]
        below = max((other for other in known if other < k), default=None)
        above = min((other for other in known if other > k), default=None)
        if below is not None and above is not None:
            share = (k - below) / (above - below)
            return self._relative[below] * (1 - share) + self._relative[above] * share
        near = below if below is not None else above
        if near is None:
            return self._relative[k]
        # Beyond what is known: as the prior goes on from the nearest.
        return self._relative[near] * (1 + PRIOR_SLOPE * k) / (1 + PRIOR_SLOPE * near)
