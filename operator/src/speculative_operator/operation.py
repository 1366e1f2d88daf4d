"""The tasks of a running operator: reflectors, queue and passes, put together.

Watches run from start-up to clean-up, on a standby too: its caches are warm when it
takes over. Passes run only between `begin` and `end`, under the Lease. Called by
`handlers` (through kopf's start-up and clean-up), `leading` and tests.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from speculative_operator.cluster.ahead import read_children, stands_alone
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.companions import Companions, is_gateway
from speculative_operator.cluster.queue import Queue
from speculative_operator.cluster.reflector import Pace, Reflector
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
    Key,
)
from speculative_operator.cluster.sharing import Shared
from speculative_operator.metrics.doorbell import Doorbell
from speculative_operator.metrics.pages import Pages
from speculative_operator.metrics.prometheus import Queries
from speculative_operator.metrics.source import Source
from speculative_operator.notify import Notifier
from speculative_operator.reconcile import Reconciler
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry

log = logging.getLogger(__name__)

AHEAD_SECONDS: Final = 2.0
"""How long at most the other lists wait for the edited resources: for as long as nobody has the
Lease there is nothing to go ahead with."""
MOST_AHEAD: Final = 16
"""Beyond so many edited resources it is quicker to list everything."""
STUCK_SECONDS: Final = 300.0
"""A reflector without a sign of life, or a due pass not begun or not ended, for so long: not
alive. Twice what the slowest healthy watch and backoff need."""


class Operation:
    """`start` and `stop` of the watches, `begin` and `end` of passes, what is wrong meanwhile."""

    def __init__(
        self,
        client: Client,
        source: Source,
        settings: Settings,
        telemetry: Telemetry,
        *,
        queries: Queries | None = None,
        pages: Pages | None = None,
        notifier: Notifier | None = None,
        pace: Pace | None = None,
    ) -> None:
        shared = Shared()
        self._shard = settings.own_shard
        # Autoscalers ask any replica of any shard, so that one that is asked knows all of them.
        known = None if settings.external_metrics_certificates else self._shard
        self.reflectors = {
            resource.kind: Reflector(
                client,
                resource,
                wake=self.wake,
                namespace=settings.watch_namespace,
                pace=pace,
                on_restart=lambda kind, why: telemetry.restarts.labels(kind, why).inc(),
                shared=shared,
                shard=known,
            )
            for resource in WATCHED
        }
        self._client, self._source, self._settings = client, source, settings
        self._telemetry, self._queries, self._notifier = telemetry, queries, notifier
        self._pages = pages
        if notifier is not None:
            notifier.wake = self.wake
        self.stores = {kind: reflector.store for kind, reflector in self.reflectors.items()}
        self._doorbell = Doorbell(self.wake)
        self._companions = Companions(self.stores[SPECULATIVE_DEPLOYMENT.kind])
        self._may_list = asyncio.Event()
        self._queue: Queue | None = None
        self._reconciler: Reconciler | None = None
        self._passes: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        telemetry.resources.set_function(lambda: len(self._own_keys()))

    def wake(self, key: Key, by_a_person: bool = False) -> None:
        """A pass over this resource is due, if we are the one that works."""
        others = self._companions.woken_by(key, by_a_person=by_a_person)
        if self._queue is not None and self._shard.owns(key[0]):
            self._queue.wake(key, by_a_person)
            if by_a_person and self._reconciler is not None:
                self._reconciler.hear(key)
            for other in others:
                self._queue.wake(other, by_a_person)

    def _own_keys(self) -> list[Key]:
        """The resources that are ours to act on."""
        known = self.stores[SPECULATIVE_DEPLOYMENT.kind].keys()
        return [key for key in known if self._shard.owns(key[0])]

    async def start(self) -> None:
        """Starts the watches."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._follow(reflector), name=f"watch {kind}")
            for kind, reflector in self.reflectors.items()
        ]

    async def _follow(self, reflector: Reflector) -> None:
        """The resources first: of the edited ones everything is known before of all the others."""
        parents = self.reflectors[SPECULATIVE_DEPLOYMENT.kind]
        if reflector is not parents:
            await parents.synced.wait()
            if any(self._edited()):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AHEAD_SECONDS):
                        await self._may_list.wait()
        await reflector.run()

    def begin(self) -> None:
        """Passes over everything there is, once every list is in.

        Nothing is kept from an earlier time: somebody else may have worked since.
        """
        reconciler = Reconciler(
            self._client,
            self.stores,
            self._source,
            self._settings,
            queries=self._queries,
            pages=self._pages,
            notifier=self._notifier,
            doorbell=self._doorbell,
            telemetry=self._telemetry,
            wake=self.wake,
        )
        queue = Queue(lambda key: self._look(reconciler, key), workers=self._settings.workers)
        self._queue, self._reconciler = queue, reconciler
        for key in sorted(self._own_keys()):
            queue.wake(key)
        for key in filter(is_gateway, self.stores[CONFIG_MAP.kind].keys()):
            if self._shard.owns(key[0]):
                queue.wake(key)
        self._passes = asyncio.get_running_loop().create_task(
            self._work(queue, reconciler), name="passes"
        )

    async def _look(self, reconciler: Reconciler, key: Key) -> float | None:
        outcome = "failed"
        try:
            with self._telemetry.pass_seconds.time():
                following = await reconciler.look(key)
            outcome = "done"
            return following
        finally:
            self._telemetry.passes.labels(outcome).inc()

    async def _work(self, queue: Queue, reconciler: Reconciler) -> None:
        parents = self.reflectors[SPECULATIVE_DEPLOYMENT.kind]
        await parents.synced.wait()
        if not all(reflector.synced.is_set() for reflector in self.reflectors.values()):
            async with asyncio.TaskGroup() as group:
                for key in islice(filter(self._stands_alone, self._edited()), MOST_AHEAD):
                    group.create_task(self._go_ahead(reconciler, key))
        self._may_list.set()
        for reflector in self.reflectors.values():
            await reflector.synced.wait()
        for key in self._edited():
            queue.hasten(key)
        log.info("event=synced objects=%d", len(queue))
        await queue.run()

    async def _go_ahead(self, reconciler: Reconciler, key: Key) -> None:
        """One pass over an edited resource while the others are still to be listed."""
        try:
            await read_children(self._client, self.stores, key)
            await self._look(reconciler, key)
        except Exception:
            # As in the queue: one bad object stops no other. It is there as well, and its passes
            # know how to wait and whom to tell.
            log.exception("event=not-ahead object=%s/%s", *key)

    def _stands_alone(self, key: Key) -> bool:
        return stands_alone(self.stores[SPECULATIVE_DEPLOYMENT.kind].of(key)[key[1]])

    def _edited(self) -> Iterator[Key]:
        """Resources whose spec nobody acted on yet: they wait for nobody else after a restart."""
        parents = self.stores[SPECULATIVE_DEPLOYMENT.kind]
        for key in self._own_keys():
            for parent in parents.of(key).values():
                seen = (parent.get("status") or {}).get("observedGeneration")
                if seen != parent["metadata"].get("generation"):
                    yield key

    async def end(self) -> None:
        """Ends the passes; one that is cut off heals on the next start."""
        passes, self._passes, self._queue, self._reconciler = self._passes, None, None, None
        if passes is not None:
            await _ended([passes])
        await self._doorbell.close()
        self._telemetry.forget_drift()

    async def stop(self) -> None:
        """Ends every task."""
        await self.end()
        tasks, self._tasks = self._tasks, []
        await _ended(tasks)

    def not_alive(self) -> str:
        """Why this process should be restarted; empty while it should not."""
        running = [*self._tasks, *([self._passes] if self._passes is not None else [])]
        ended = [task.get_name() for task in running if task.done()]
        if ended:
            return f"ended: {', '.join(ended)}"
        if not self._tasks:
            return ""
        now = asyncio.get_running_loop().time()
        for kind, reflector in self.reflectors.items():
            if now - reflector.alive_at > STUCK_SECONDS:
                return f"the watch of {kind} is stuck"
        if self._queue is not None and self._queue.longest_wait() > STUCK_SECONDS:
            return "a pass is stuck"
        return ""

    def not_ready(self) -> str:
        """Which lists are not in yet; empty when all are."""
        missing = [kind for kind, r in self.reflectors.items() if not r.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
