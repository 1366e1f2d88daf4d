"""The part of the scheduler that is ours: sets the draft length, reads outcomes and times.

A mixin over a vLLM 0.32.0 scheduler, without an import of it. That scheduler
holds `dynamic_sd_lookup`, draft length by number of scheduled requests, made from
`num_speculative_tokens_per_batch_size`; replacing an entry changes the length
from the next step on (vllm/v1/core/sched/scheduler.py, `schedule`).

Drafts asked for in one step are verified in the next. A step's time is taken
from one `update_from_output` to the next, which is right with asynchronous
scheduling too, where steps overlap; it counts only for steps that decode and
nothing else, and whose drafts have the length that was asked for again.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from .controller import Controller, ranges_of
from .report import Report, settings_from
from .state import State


class Unsupported(RuntimeError):
    """This engine does not do what the draft length needs; the message says what."""


class AdaptiveMixin:
    """Put before a scheduler class: `class Adaptive(AdaptiveMixin, Scheduler)`."""

    clock: ClassVar[Callable[[], float]] = staticmethod(time.monotonic)
    dynamic_sd_lookup: list[int] | None
    num_spec_tokens: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.dynamic_sd_lookup:
            raise Unsupported(
                "adaptive draft length needs num_speculative_tokens_per_batch_size in force; the "
                "engine dropped it, as it does with data parallelism"
            )
        path, threshold = settings_from(os.environ)
        self._controller = Controller(
            largest=self.num_spec_tokens,
            max_batch=len(self.dynamic_sd_lookup) - 1,
            min_acceptance_percent=threshold,
        )
        self._ranges = ranges_of(len(self.dynamic_sd_lookup) - 1)
        for first, last in self._ranges:
            self.dynamic_sd_lookup[first : last + 1] = [self.num_spec_tokens] * (last - first + 1)
        self._report = Report(path)
        self._scheduled: deque[tuple[Any, int]] = deque()
        """Steps on their way, each with the draft length asked for in the step before it."""
        self._asked = 0
        self._ended_at: float | None = None
        self._runs: list[int] = []
        self._obeyed = True
        self._state = State()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step of the engine's, with our draft length."""
        self._fill()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        batch = len(output.num_scheduled_tokens)
        self._scheduled.append((output, self._asked))
        if batch:
            asked = output.num_spec_tokens_to_schedule
            # One that was dropped silently would make every figure here a lie.
            table = self.dynamic_sd_lookup
            self._obeyed = table is not None and asked == table[batch]
            self._asked = asked
            self._controller.advance(batch=batch, now=type(self).clock())
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """The engine's own work on a step's outcome, and ours."""
        self._runs = []
        result = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        while self._scheduled:
            output, before = self._scheduled.popleft()
            if output is scheduler_output:
                self._learn(output, before)
                break
        return result

    def make_spec_decoding_stats(self, *args: Any, **kwargs: Any) -> Any:
        """Called by the engine once per request with drafts; always with keywords."""
        self._runs.append(kwargs["num_accepted_tokens"])
        return super().make_spec_decoding_stats(*args, **kwargs)  # type: ignore[misc]

    def _learn(self, output: Any, before: int) -> None:
        now = type(self).clock()
        began, self._ended_at = self._ended_at, now
        drafts = output.scheduled_spec_decode_tokens
        decoding = [
            request
            for request, tokens in output.num_scheduled_tokens.items()
            if tokens == 1 + len(drafts.get(request, ()))
        ]
        batch = len(output.num_scheduled_tokens)
        if before and decoding:
            # Requests for which nothing was drafted were asked for it all the same.
            silent = sum(not drafts.get(request) for request in decoding)
            self._controller.accepted(drafted=before, runs=[*self._runs, *[0] * silent], now=now)
        only_decoding = len(decoding) == batch and not output.scheduled_new_reqs
        steady = before == output.num_spec_tokens_to_schedule
        if began is not None and batch and only_decoding and steady:
            self._controller.timed(batch=batch, k=before, seconds=now - began, now=now)
        if batch:
            self._report.offer(lambda: self._shown(batch), now=now)

    def _shown(self, batch: int) -> dict[str, Any]:
        choice = self._controller.choice(batch)
        return self._state.shown(choice, obeyed=self._obeyed, now=time.monotonic())

    def _fill(self) -> None:
        table = self.dynamic_sd_lookup
        if table is None:
            raise Unsupported("the engine took its schedule away")
        # By range, and only what changed: this runs before every step.
        for first, last in self._ranges:
            k = self._controller.length(first)
            if table[first] != k:
                table[first : last + 1] = [k] * (last - first + 1)
