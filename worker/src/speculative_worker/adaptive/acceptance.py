"""PURE: how far a draft is accepted, as it is now.

For each position the share of drafts that were accepted there among those that
were accepted before it; a request for which nothing was found to draft counts
as rejected at the first position. Old counts fade, so that a changed workload
shows within seconds.
"""

from collections.abc import Sequence
from typing import Final

HALF_LIFE_SECONDS: Final = 5.0
"""After this time a count weighs half. 5 s: a change shows well within 30 s even where only
rare trials look."""
LARGEST_WEIGHT: Final = 120.0
"""Counts of a position never weigh more than this many drafts: a large batch forgets sooner."""
FIRST_REMAINS: Final = 4.0
"""What was seen of the first position never fades below this many drafts: without news the last
word stands, and rare looks correct it. Nothing remains of later positions: their last word may be
of another text, and kept lengths from being tried again that reach them."""
PRIOR_WEIGHT: Final = 0.5
"""How much the guess for a position that was never seen weighs against what is seen."""


class Acceptance:
    """Conditional acceptance of `positions` positions."""

    def __init__(self, positions: int) -> None:
        self._tries = [0.0] * positions
        self._hits = [0.0] * positions
        self._at: float | None = None

    def observe(self, *, drafted: int, runs: Sequence[int], now: float) -> None:
        """Takes the outcome of one step: `drafted` tokens asked for, `runs` accepted per request.

        `now` is in seconds of any steady clock.
        """
        if drafted <= 0 or not runs:
            return
        self._fade(now)
        positions = min(drafted, len(self._tries))
        ended = [0] * (positions + 1)
        for run in runs:
            ended[min(run, positions)] += 1
        reached = len(runs)
        for position in range(positions):
            if not reached:
                break
            self._tries[position] += reached
            reached -= ended[position]
            self._hits[position] += reached
            if (excess := self._tries[position] / LARGEST_WEIGHT) > 1:
                self._tries[position] /= excess
                self._hits[position] /= excess

    def expected(self) -> list[float]:
        """Accepted tokens to expect of a draft of 0, 1, 2, … tokens.

        A position that was never seen is taken to be as good as the one before
        it; the very first as good as not: a trial is cheap and tells.
        """
        found, reach, before = [0.0], 1.0, 0.5
        for tries, hits in zip(self._tries, self._hits, strict=True):
            share = (hits + PRIOR_WEIGHT * before) / (tries + PRIOR_WEIGHT)
            reach *= share
            found.append(found[-1] + reach)
            before = share
        return found

    def _fade(self, now: float) -> None:
        if self._at is not None and now > self._at:
            kept = 0.5 ** ((now - self._at) / HALF_LIFE_SECONDS)
            for position, tries in enumerate(self._tries):
                remains = 0.0 if position else FIRST_REMAINS
                if tries > remains:
                    faded = max(kept, remains / tries)
                    self._tries[position] *= faded
                    self._hits[position] *= faded
        self._at = now
