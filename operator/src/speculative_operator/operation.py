"""The tasks of a running operator: reflectors, queue and passes, put together.

Started under the Lease and stopped before it is released. Called by `handlers`
(through kopf's start-up and clean-up) and by tests.
"""

import asyncio
import contextlib
import logging
from typing import Final

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.queue import Queue
from speculative_operator.cluster.reflector import Pace, Reflector
from speculative_operator.cluster.resources import WATCHED, Key
from speculative_operator.metrics.source import Source
from speculative_operator.reconcile import Reconciler
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry

log = logging.getLogger(__name__)

STUCK_SECONDS: Final = 300.0
"""A reflector without a sign of life, or a due pass not begun or not ended, for so long: not
alive. Twice what the slowest healthy watch and backoff need."""


class Operation:
    """`start`, `stop`, and what is wrong meanwhile."""

    def __init__(
        self,
        client: Client,
        source: Source,
        settings: Settings,
        telemetry: Telemetry,
        *,
        pace: Pace | None = None,
    ) -> None:
        self.reflectors = {
            resource.kind: Reflector(
                client,
                resource,
                wake=self.wake,
                namespace=settings.watch_namespace,
                pace=pace,
                on_restart=lambda kind, why: telemetry.restarts.labels(kind, why).inc(),
            )
            for resource in WATCHED
        }
        self._telemetry = telemetry
        stores = {kind: reflector.store for kind, reflector in self.reflectors.items()}
        self._reconciler = Reconciler(client, stores, source, settings)
        self._queue = Queue(self._look, workers=settings.workers)
        self._tasks: list[asyncio.Task[None]] = []

    def wake(self, key: Key, by_a_person: bool = False) -> None:
        """A pass over this resource is due."""
        self._queue.wake(key, by_a_person)

    async def _look(self, key: Key) -> float | None:
        outcome = "failed"
        try:
            with self._telemetry.pass_seconds.time():
                following = await self._reconciler.look(key)
            outcome = "done"
            return following
        finally:
            self._telemetry.passes.labels(outcome).inc()

    async def start(self) -> None:
        """Starts the watches; the first pass comes once every list is in."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(reflector.run(), name=f"watch {kind}")
            for kind, reflector in self.reflectors.items()
        ]
        self._tasks.append(loop.create_task(self._work(), name="passes"))

    async def _work(self) -> None:
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        log.info("event=synced objects=%d", len(self._queue))
        await self._queue.run()

    async def stop(self) -> None:
        """Ends every task; a pass that is cut off heals on the next start."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    def not_alive(self) -> str:
        """Why this process should be restarted; empty while it should not."""
        ended = [task.get_name() for task in self._tasks if task.done()]
        if ended:
            return f"ended: {', '.join(ended)}"
        if not self._tasks:
            return ""
        now = asyncio.get_running_loop().time()
        for kind, reflector in self.reflectors.items():
            if now - reflector.alive_at > STUCK_SECONDS:
                return f"the watch of {kind} is stuck"
        if self._queue.longest_wait() > STUCK_SECONDS:
            return "a pass is stuck"
        return ""

    def not_ready(self) -> str:
        """Which lists are not in yet; empty when all are."""
        missing = [kind for kind, r in self.reflectors.items() if not r.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""
