"""Draft length of a simulated engine: fixed, by a schedule, or by the controller of a real one."""

import time

from speculative_worker.adaptive.controller import Controller
from speculative_worker.adaptive.report import Report
from speculative_worker.adaptive.state import State
from speculative_worker.simulate.plan import Plan


class Lengths:
    """Says how many tokens a step drafts, and learns from its outcome."""

    def __init__(self, plan: Plan, report: Report) -> None:
        self._plan = plan
        self._report = report
        self._controller: Controller | None = None
        self._state = State()
        if plan.adaptive_online and plan.draft_tokens:
            self._controller = Controller(
                largest=plan.draft_tokens,
                max_batch=plan.max_num_seqs,
                min_acceptance_percent=plan.min_acceptance_percent,
            )

    def length(self, batch: int) -> int:
        """Tokens that a step of this many sequences drafts."""
        if self._controller is not None:
            return self._controller.length(batch)
        for up_to, tokens in self._plan.schedule:
            if batch <= up_to:
                return tokens
        return self._plan.draft_tokens

    def learn(self, *, batch: int, drafted: int, accepted: int, seconds: float) -> None:
        """Takes one sequence's step: it stands for a step of the whole batch."""
        controller = self._controller
        if controller is None:
            return
        now = time.monotonic()
        controller.accepted(drafted=drafted, runs=[accepted], now=now)
        controller.timed(batch=batch, k=drafted, seconds=seconds, now=now)
        controller.advance(batch=batch, now=now)
        self._report.offer(
            lambda: self._state.shown(controller.choice(batch), obeyed=True, now=now), now=now
        )
