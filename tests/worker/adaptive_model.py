"""An engine of formulas for the controller: acceptance and step times that are known."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from speculative_worker.adaptive.controller import Controller

Cost = Callable[[int, float, int], float]
"""Seconds of a step from batch, tokens verified per sequence beyond the first (on average), tokens
drafted."""


def a_cost(base: float, draft: float, token: float, free: int = 0) -> Cost:
    """base + draft x k + token for each verified one beyond `free` that cost nothing."""

    def seconds(batch: int, verified: float, drafted: int) -> float:
        return base + draft * drafted + token * max(0, batch * (verified + 1) - free)

    return seconds


@dataclass
class Engine:
    """Steps through time under a controller, or at one fixed length."""

    cost: Cost
    chances: Sequence[float]
    largest: int = 5
    noise: float = 0.0
    seed: int = 1
    now: float = 0.0
    tokens: int = 0
    before: int = 0
    found: float = 1.0
    """Share of looks-up that find a draft: without one a step verifies nothing."""
    lengths: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def run(self, controller: Controller, *, batch: int, seconds: float) -> float:
        """Tokens per second over this long."""
        began, tokens = self.now, self.tokens
        while self.now - began < seconds:
            self.step(controller, batch)
        return (self.tokens - tokens) / (self.now - began)

    def step(self, controller: Controller, batch: int) -> None:
        k, verified = controller.length(batch), self.before
        self.lengths[k] = self.lengths.get(k, 0) + 1
        controller.advance(batch=batch, now=self.now)
        drafts = [verified if self._is_found() else 0 for _ in range(batch)]
        runs = [self._run(draft) for draft in drafts]
        spread = self._chance.lognormvariate(0, self.noise) if self.noise else 1.0
        took = self.cost(batch, sum(drafts) / batch, k) * spread
        self.now += took
        self.tokens += sum(run + 1 for run in runs)
        controller.accepted(drafted=verified, runs=runs, now=self.now)
        if verified == k:
            controller.timed(batch=batch, k=k, seconds=took, now=self.now)
        self.before = k

    def best(self, batch: int) -> tuple[int, float]:
        """The best fixed length and its tokens per second."""
        rates = [self.rate(batch, k) for k in range(self.largest + 1)]
        k = max(range(len(rates)), key=rates.__getitem__)
        return k, rates[k]

    def rate(self, batch: int, k: int) -> float:
        """Tokens per second at a fixed length."""
        reach, expected = 1.0, 1.0
        for position in range(k):
            reach *= self._share(position)
            expected += reach
        return batch * expected / self.cost(batch, k, k)

    def _is_found(self) -> bool:
        return self.found >= 1 or self._chance.random() < self.found

    def _run(self, drafted: int) -> int:
        run = 0
        while run < drafted and self._chance.random() < self._share(run):
            run += 1
        return run

    def _share(self, position: int) -> float:
        return self.chances[min(position, len(self.chances) - 1)]
