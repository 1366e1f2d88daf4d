"""The simulated engine's batch: requests wait for a place, then generate step by step.

One step drafts, accepts and emits; its time is the number of tokens it emits
over the configured rate, so acceptance changes the shape of a stream, not its
speed.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from typing import Final

from speculative_api.worker import WorkerConfig
from speculative_worker.simulate.drafting import Drafting, drafting
from speculative_worker.simulate.metrics import EngineMetrics

_WORDS: Final = (
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"),
    *("while", "seven", "wizards", "brew", "tea"),
)


class Batch:
    """At most `max_num_seqs` generations at once, with the counters of a real engine."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        tokens_per_second: int,
        acceptance_percent: int,
        stall_after_seconds: int,
        chance: random.Random,
    ) -> None:
        speculation = config.speculation
        tokens = (speculation.num_speculative_tokens or 0) if speculation.method != "None" else 0
        self._drafting: Drafting | None = (
            drafting(tokens=tokens, acceptance_percent=acceptance_percent) if tokens else None
        )
        self._tokens_per_second = tokens_per_second
        self._stall_at = time.monotonic() + stall_after_seconds if stall_after_seconds else None
        self._chance = chance
        self._places = asyncio.Semaphore(config.max_num_seqs)
        self._max_num_seqs = config.max_num_seqs
        self.metrics = EngineMetrics(
            model_name=config.served_model_name, draft_tokens_per_step=tokens
        )

    def render_metrics(self) -> str:
        """The text of `/metrics`."""
        return self.metrics.render(max_num_seqs=self._max_num_seqs)

    def draws_error(self, percent: int) -> bool:
        """Whether this request is one of the `percent` that fail."""
        return self._chance.random() * 100 < percent

    async def generate(
        self, *, prompt_tokens: int, max_tokens: int, finish_reason: str
    ) -> AsyncGenerator[list[str], None]:
        """Yields the words of each step until `max_tokens` were emitted.

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
            self.metrics.prompt_tokens += prompt_tokens
            emitted = 0
            last = first_at = arrived
            first_tokens = 0
            while emitted < max_tokens:
                words = await self._step(emitted, max_tokens - emitted)
                now = time.monotonic()
                histogram = (
                    self.metrics.inter_token if emitted else self.metrics.time_to_first_token
                )
                histogram.observe(now - last)
                last = now
                if not emitted:
                    first_at, first_tokens = now, len(words)
                emitted += len(words)
                if emitted >= max_tokens:
                    outcome = finish_reason
                    self.metrics.count_finished(
                        seconds=now - arrived,
                        decoding_seconds=now - first_at,
                        decoded_tokens=emitted - first_tokens,
                    )
                yield words
        finally:
            self.metrics.running -= 1
            self.metrics.finished[outcome] += 1
            self._places.release()

    async def _step(self, position: int, left: int) -> list[str]:
        await self._stand_still_if_stalled()
        accepted = 0
        if self._drafting is not None:
            accepted = min(self._drafting.accepted(self._chance), left - 1)
            self.metrics.count_draft(accepted)
        count = accepted + 1
        await asyncio.sleep(count / self._tokens_per_second)
        await self._stand_still_if_stalled()
        self.metrics.generated_tokens += count
        return [_WORDS[(position + offset) % len(_WORDS)] for offset in range(count)]

    async def _stand_still_if_stalled(self) -> None:
        if self._stall_at is None or time.monotonic() < self._stall_at:
            return
        # A stuck engine shows its requests as waiting, none as running.
        self.metrics.running -= 1
        self.metrics.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.metrics.waiting -= 1
            self.metrics.running += 1
