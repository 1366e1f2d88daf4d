"""The simulated engine's batch: requests wait for a place, then generate step by step.

One step drafts, accepts and emits. Its time is either the number of tokens it
emits over the configured rate (so acceptance changes the shape of a stream, not
its speed), or follows batch size and draft length as a real engine's does.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence

from speculative_worker.simulate.drafting import Drafting, by_position, drafting
from speculative_worker.simulate.faults import Faults
from speculative_worker.simulate.language import VOCABULARY, next_token
from speculative_worker.simulate.lengths import Lengths
from speculative_worker.simulate.metrics import EngineMetrics
from speculative_worker.simulate.plan import Plan

_STALL_LOOK_SECONDS = 0.25


class Batch:
    """At most `max_num_seqs` generations at once, with the counters of a real engine."""

    def __init__(
        self, plan: Plan, *, chance: random.Random, faults: Faults, lengths: Lengths
    ) -> None:
        self._plan = plan
        self._lengths = lengths
        self._chance = chance
        self._faults = faults
        self._places = asyncio.Semaphore(plan.max_num_seqs)
        self.metrics = EngineMetrics(
            model_name=plan.served_model_name, max_draft_tokens=plan.draft_tokens
        )

    def render_metrics(self) -> str:
        """The text of `/metrics`."""
        if self._faults.takes_reset(time.monotonic()):
            self.metrics.reset()
        return self.metrics.render(
            generation=self._plan.metric_names, max_num_seqs=self._plan.max_num_seqs
        )

    async def generate(
        self, *, prompt: Sequence[int], max_tokens: int, finish_reason: str
    ) -> AsyncGenerator[list[int], None]:
        """Yields the tokens of each step until `max_tokens` were emitted.

        Closing the iterator early counts as an abort, as in a real engine.
        """
        arrived = time.monotonic()
        outcome = "abort"
        self.metrics.waiting += 1
        try:
            await self._places.acquire()
        except asyncio.CancelledError:
            self.metrics.waiting -= 1
            self.metrics.finished[outcome] += 1
            raise
        self.metrics.waiting -= 1
        self.metrics.running += 1
        try:
            self.metrics.prompt_tokens += len(prompt)
            before, emitted = list(prompt[-8:]), 0
            last = first_at = arrived
            first_tokens = 0
            while emitted < max_tokens:
                tokens = await self._step(before, max_tokens - emitted)
                before = [*before, *tokens][-8:]
                now = time.monotonic()
                histogram = (
                    self.metrics.inter_token if emitted else self.metrics.time_to_first_token
                )
                histogram.observe(now - last)
                last = now
                if not emitted:
                    first_at, first_tokens = now, len(tokens)
                emitted += len(tokens)
                if emitted >= max_tokens:
                    outcome = finish_reason
                    self.metrics.count_finished(
                        seconds=now - arrived,
                        decoding_seconds=now - first_at,
                        decoded_tokens=emitted - first_tokens,
                    )
                yield tokens
        finally:
            self.metrics.running -= 1
            self.metrics.finished[outcome] += 1
            self._places.release()

    async def _step(self, before: list[int], left: int) -> list[int]:
        await self._stand_still_while_stalled()
        batch = self.metrics.running
        drafted = self._lengths.length(batch) if self._plan.draft_tokens else 0
        accepted = 0
        if drafted:
            accepted = min(self._drafting().accepted(drafted, self._chance), left - 1)
            self.metrics.count_draft(drafted=drafted, accepted=accepted)
        seconds = self._seconds(drafted=drafted, emitted=accepted + 1)
        self._lengths.learn(batch=batch, drafted=drafted, accepted=accepted, seconds=seconds)
        await asyncio.sleep(seconds)
        await self._stand_still_while_stalled()
        self.metrics.generated_tokens += accepted + 1
        return self._tokens(before, accepted + 1)

    def _seconds(self, *, drafted: int, emitted: int) -> float:
        slowness = self._faults.slowness(time.monotonic())
        if self._plan.step is None:
            return slowness * emitted / self._plan.tokens_per_second
        return slowness * self._plan.step.seconds(batch=self.metrics.running, draft_tokens=drafted)

    def _drafting(self) -> Drafting:
        now = time.monotonic()
        if self._plan.acceptance_by_position:
            return by_position(
                [self._faults.acceptance(each, now) for each in self._plan.acceptance_by_position]
            )
        percent = self._faults.acceptance(self._plan.acceptance_percent, now)
        return drafting(tokens=self._plan.draft_tokens, acceptance_percent=round(percent, 1))

    def _tokens(self, before: list[int], count: int) -> list[int]:
        now = time.monotonic()
        found = list(before)
        for _ in range(count):
            token = next_token(found)
            if self._faults.draws("WrongTokens", now, self._chance):
                token = (token + 1) % VOCABULARY
            found.append(token)
        return found[len(before) :]

    async def _stand_still_while_stalled(self) -> None:
        if not self._faults.stalls(time.monotonic()):
            return
        # A stuck engine shows its requests as waiting, none as running.
        self.metrics.running -= 1
        self.metrics.waiting += 1
        try:
            while self._faults.stalls(time.monotonic()):  # noqa: ASYNC110 (faults have no event)
                await asyncio.sleep(_STALL_LOOK_SECONDS)
        finally:
            self.metrics.waiting -= 1
            self.metrics.running += 1
