"""One pass over one SpeculativeDeployment: gather, decide, make real, publish.

Level-triggered: nothing is remembered that could not be found out again, apart
from figures that only save work. A transition is written to status first, with
the version it was decided from; everything else is derived from status, so a
crash between any two writes heals on the next pass.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import Condition
from speculative_operator.asking import Asking
from speculative_operator.cluster.apply import Applier, Outcome, leftovers, versions, words_of
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.companions import gateway_key, is_gateway
from speculative_operator.cluster.nodes import node_news
from speculative_operator.cluster.protected import is_protected
from speculative_operator.cluster.publishing import emit, is_due, with_condition, write_status
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    Key,
    uid_of,
)
from speculative_operator.decision import Decision, Event
from speculative_operator.desired import objects
from speculative_operator.desired.inputs import inputs_of
from speculative_operator.drifts import Drifts
from speculative_operator.errors import Failing, Refused
from speculative_operator.gather import Stores, gather
from speculative_operator.judging import Judging
from speculative_operator.metrics.doorbell import Doorbell
from speculative_operator.metrics.pages import Pages
from speculative_operator.metrics.prometheus import Queries
from speculative_operator.metrics.source import Source
from speculative_operator.notifications import with_pending
from speculative_operator.notify import Notifier
from speculative_operator.readings import Readings, status_of
from speculative_operator.rollout.blocked import waits_for_room
from speculative_operator.rollout.decide import decide
from speculative_operator.scaledown import announce_costs
from speculative_operator.scaling.idling import is_released
from speculative_operator.scaling.removal import shrinking
from speculative_operator.settings import Settings
from speculative_operator.shared_pass import SharedGateways
from speculative_operator.snapshot import NodeNews, Snapshot
from speculative_operator.specs import Specs, Unreadable
from speculative_operator.telemetry import Telemetry

log = logging.getLogger(__name__)

WAITING_SECONDS: Final = 2.0
"""Next look while something on its way out is in the way; its end also wakes a pass."""
NEWS_SECONDS: Final = 30.0
"""Between two readings of the events of pods that wait for room."""
REFUSED_SECONDS: Final = 600.0
"""Next look at a spec that can't be read; an edit wakes a pass at once."""


@dataclass(slots=True)
class _Memory:
    """What is kept of a resource between passes; all of it may be lost."""

    uid: str
    conflicts: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    published_at: float = float("-inf")
    news: NodeNews | None = None
    news_asked_at: float = float("-inf")
    failing: str = ""
    """What the API server failed at last, as it was told."""
    settled: tuple[object, ...] | None = None
    """What the last `_make_real` saw, if there was nothing to do: the same needs nothing again."""


class Reconciler:
    """`look` is one pass; the queue calls it, never twice at once for a key."""

    def __init__(
        self,
        client: Client,
        stores: Stores,
        source: Source,
        settings: Settings,
        *,
        queries: Queries | None = None,
        pages: Pages | None = None,
        notifier: Notifier | None = None,
        doorbell: Doorbell | None = None,
        telemetry: Telemetry | None = None,
        wake: Callable[[Key], None] = lambda key: None,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._notifier = notifier
        self._doorbell = doorbell
        self._stores = stores
        self._parents = stores[SPECULATIVE_DEPLOYMENT.kind]
        self._source = source
        self._settings = settings
        self._utc_now = utc_now
        self._applier = Applier(client, stores)
        self._judging = Judging(
            stores[CONFIG_MAP.kind],
            self._applier,
            Drifts(stores[CONFIG_MAP.kind], self._applier, telemetry),
            queries=queries,
            pages=pages,
            write_seconds=settings.evidence_write_seconds,
        )
        self._specs = Specs(settings)
        self._readings = Readings()
        self._memories: dict[Key, _Memory] = {}
        known = (self._specs, self._readings)
        self._asking = Asking(stores, source, pages, *known)
        self._shared = SharedGateways(stores, self._applier, settings, *known, wake=wake)

    async def look(self, key: Key) -> float | None:
        """One pass; gives the seconds until the next look, None when the resource is gone."""
        if is_gateway(key):
            return await self._shared.look(key)
        parent = self._parent(key)
        if parent is None:
            self._memories.pop(key, None)
            self._applier.forget(key)
            self._specs.forget(key)
            self._listen(key, None)
            self._judging.forget(key)
            self._readings.forget(key)
            self._asking.forget(key)
            return None
        uid = uid_of(parent)
        if leftovers(self._stores, key, uid):
            return WAITING_SECONDS
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memories[key] = _Memory(uid)
        source = self._asking.source_of(key, parent)
        await self._asking.ask(key, parent, source)
        # Asking takes time: what came in meanwhile counts.
        parent = self._parent(key)
        if parent is None or uid_of(parent) != uid:
            return 0.0
        snapshot = gather(
            key,
            parent,
            stores=self._stores,
            source=source,
            settings=self._settings,
            now=self._utc_now(),
            conflicts=memory.conflicts,
            refusals=memory.refusals,
            shared_conflicts=self._shared.conflicts(gateway_key(key[0], parent)),
            specs=self._specs,
            readings=self._readings,
        )
        if isinstance(snapshot, Unreadable):
            await self._refuse(parent, snapshot)
            return REFUSED_SECONDS
        return await self._pass(parent, snapshot, memory)

    def _parent(self, key: Key) -> JSON | None:
        """The resource; None when it is gone or on its way out."""
        parent = self._parents.of(key).get(key[1])
        return None if parent is None or parent["metadata"].get("deletionTimestamp") else parent

    async def _pass(self, parent: JSON, snapshot: Snapshot, memory: _Memory) -> float:
        if pods := waits_for_room(snapshot):
            snapshot = replace(snapshot, node_news=await self._news(snapshot, pods, memory))
        assessment = self._judging.judge(snapshot)
        decision = self._noted(snapshot, decide(snapshot, assessment))
        self._listen((snapshot.namespace, snapshot.name), snapshot)
        if decision.transition:
            parent = await self._write_status(parent, decision, memory)
            try:
                # Between a verdict and the route nothing else is waited for.
                after = replace(snapshot, status=decision.status)
                await self._make_real(after, decision, memory)
            finally:
                await self._tell(parent, snapshot, decision)
            return decision.next_look_seconds
        await self._judging.save(snapshot, at_once=False)
        waiting = await self._make_real(snapshot, decision, memory)
        if (memory.conflicts, memory.refusals) != (snapshot.conflicts, snapshot.refusals):
            told = replace(snapshot, conflicts=memory.conflicts, refusals=memory.refusals)
            decision = self._noted(told, decide(told, assessment))
            if decision.transition:
                return 0.0
        await self._publish(parent, snapshot, decision, memory)
        self._notify(snapshot, decision)
        return min(decision.next_look_seconds, WAITING_SECONDS if waiting else 1e9)

    async def _news(
        self, snapshot: Snapshot, pods: tuple[str, ...], memory: _Memory
    ) -> NodeNews | None:
        """What is said of nodes on their way for these pods, read now and then."""
        now = asyncio.get_running_loop().time()
        if now - memory.news_asked_at >= NEWS_SECONDS:
            memory.news_asked_at = now
            memory.news = await node_news(self._client, snapshot.namespace, pods)
        return memory.news

    async def _tell(self, parent: JSON, snapshot: Snapshot, decision: Decision) -> None:
        """Says what was decided, and keeps what it was decided from."""
        for event in decision.events:
            place = (snapshot.namespace, snapshot.name)
            log.info("object=%s/%s event=%s why=%r", *place, event.reason, event.message)
            await emit(self._client, parent, event, now=snapshot.now)
        self._notify(snapshot, decision)
        await self._judging.save(snapshot, at_once=True)

    def _noted(self, snapshot: Snapshot, decision: Decision) -> Decision:
        """The decision with what receivers are to be told of it, as part of its status."""
        told = self._notifier.told(snapshot) if self._notifier is not None else ()
        return with_pending(snapshot, decision, told=told)

    def _notify(self, snapshot: Snapshot, decision: Decision) -> None:
        if self._notifier is not None:
            self._notifier.offer(snapshot, decision.status.pending_notifications)

    def hear(self, key: Key) -> None:
        """A person changed something of it: a pass that asks its pods may have to hurry."""
        self._asking.hear(key)

    def _listen(self, key: Key, snapshot: Snapshot | None) -> None:
        """While pods are released, whoever asks first is heard of at once."""
        if self._doorbell is not None:
            asked = snapshot if snapshot is not None and is_released(snapshot.status) else None
            shared = asked is not None and bool(asked.spec.gateway.shared_name)
            self._doorbell.listen(key, asked.gateways if asked else (), shared=shared)

    async def _make_real(self, snapshot: Snapshot, decision: Decision, memory: _Memory) -> bool:
        """Creates, corrects and removes objects; gives whether something is in the way."""
        key = (snapshot.namespace, snapshot.name)
        inputs, wanted = inputs_of(snapshot), replace(decision, next_look_seconds=0.0, events=())
        seen = (inputs, wanted, versions(self._stores, key))
        if memory.settled == seen:
            return False
        memory.settled = None
        bodies = objects.desired_objects(inputs, wanted, self._settings)
        await self._spare_the_busy(key, shrinking(snapshot, decision.scales))
        try:
            found, refusals = await self._applier.ensure_all(
                bodies, key=key, owner_uid=snapshot.uid, create_only=objects.CREATE_ONLY
            )
        except Failing as error:
            await self._complain(key, memory, f"The API server fails at {error}. Tried again.")
            raise
        memory.failing = ""
        memory.conflicts = tuple(name for name, what in found.items() if what is Outcome.TAKEN)
        memory.refusals = refusals
        pruned = await self._applier.prune(
            key,
            owner_uid=snapshot.uid,
            desired=bodies,
            protected=lambda live: is_protected(live, snapshot, decision),
        )
        if not (pruned or refusals or {*found.values()} - {Outcome.UNCHANGED}):
            memory.settled = seen
        return Outcome.WAITING in found.values()

    async def _complain(self, key: Key, memory: _Memory, words: str) -> None:
        """Says once what goes wrong in passes that end there, before their conditions are told."""
        if (parent := self._parent(key)) and words != memory.failing:
            memory.failing = words
            event = Event(Reason.NOT_APPLIED, words, "Warning")
            await emit(self._client, parent, event, now=self._utc_now())

    async def _spare_the_busy(self, key: Key, revisions: frozenset[str]) -> None:
        """Before a Deployment shrinks: afterwards the ReplicaSet has chosen already."""
        if not revisions:
            return
        try:
            await announce_costs(self._client, self._source, self._stores, key, revisions)
        except Refused as error:
            # Then it chooses as it likes; workers drain either way.
            log.warning("event=costs-not-written object=%s/%s why=%r", *key, words_of(error))

    async def _publish(
        self, parent: JSON, snapshot: Snapshot, decision: Decision, memory: _Memory
    ) -> None:
        waited = asyncio.get_running_loop().time() - memory.published_at
        # Against what is stored: what was healed on reading is to be stored, once.
        stored = self._readings.status((snapshot.namespace, snapshot.name), parent)
        if is_due(stored, decision.status, seconds_since_write=waited):
            await self._write_status(parent, decision, memory)

    async def _write_status(self, parent: JSON, decision: Decision, memory: _Memory) -> JSON:
        written = await write_status(self._client, self._parents, parent, decision.status)
        memory.published_at = asyncio.get_running_loop().time()
        return written

    async def _refuse(self, parent: JSON, found: Unreadable) -> None:
        """Says what can't be read, once per edit, and touches nothing else."""
        generation = int(parent["metadata"].get("generation", 0))
        status = status_of(parent)
        condition = Condition(
            type=ConditionType.ACCEPTED,
            status="False",
            reason=Reason.INVALID_SPEC,
            message=found.message,
            observed_generation=generation,
            last_transition_time=self._utc_now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        refused = with_condition(status, condition)
        if refused == status:
            return
        parent = await write_status(self._client, self._parents, parent, refused)
        event = Event(Reason.INVALID_SPEC, found.message, "Warning")
        await emit(self._client, parent, event, now=self._utc_now())
