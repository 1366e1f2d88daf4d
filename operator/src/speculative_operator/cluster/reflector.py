"""A mirror of one kind: LIST replaces the store, WATCH keeps it current.

Whoever needs an object asks the store, never the API server. On every change
the owner's key is woken. A relist notices what vanished while the watch was
away (neither kopf's index nor its on.event does, see docs/decisions).
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from speculative_api import labels
from speculative_operator.cluster.applied import LAST_APPLIED, NOTE, replicas_applied_by
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import (
    JSON,
    SHARED_PREFIX,
    SPECULATIVE_DEPLOYMENT,
    Key,
    Resource,
)
from speculative_operator.cluster.sharing import Shared
from speculative_operator.errors import Gone, NotFound, OperatorError, Refused, Silent
from speculative_operator.shard import Shard

log = logging.getLogger(__name__)

SILENCES: Final = 8
"""After so many silences in a row everything is listed anew: a server behind the same address may
have been restored to a time before our version, and would say nothing for ever."""

Wake = Callable[[Key, bool], None]
"""(key, whether a person changed something): a pass is due."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a reflector waits, in seconds."""

    server: float = 300.0
    """The server ends a watch after this."""
    silent: float = 75.0
    """Without a byte for so long the connection is taken for dead; bookmarks come each 60, where
    anything changed."""
    first_backoff: float = 0.2
    longest_backoff: float = 30.0


class Store:
    """Objects of one kind by key of their owner; remembers our own writes.

    An own write is newer than what the watch still has to say, so versions
    only go forward: without this a pass could act on a status it already left.
    """

    def __init__(
        self, resource: Resource, shared: Shared | None = None, *, shard: Shard | None = None
    ) -> None:
        self.resource = resource
        self._shard = shard or Shard()
        """What is another's is forgotten as soon as it is read."""
        self._shared = shared or Shared()
        self._owned: dict[Key, dict[str, JSON]] = {}
        self._listed_version = -1
        self.missing = False
        """Whether the cluster has no such kind, or we may not read it."""

    def key_of(self, thing: JSON) -> Key | None:
        """The key of the SpeculativeDeployment, or of the shared gateway, that it belongs to; None
        where it is nobody's or another shard's."""
        metadata = thing.get("metadata", {})
        name, namespace = metadata.get("name"), metadata.get("namespace", "")
        if self.resource is not SPECULATIVE_DEPLOYMENT:
            said = metadata.get("labels") or {}
            shared = said.get(labels.SHARED_GATEWAY)
            name = said.get(labels.NAME) or (shared and SHARED_PREFIX + shared)
        return (namespace, name) if name and self._shard.owns(namespace) else None

    def of(self, key: Key) -> dict[str, JSON]:
        """The objects of one owner, by name."""
        return self._owned.get(key, {})

    def keys(self) -> Iterable[Key]:
        """Owners that have an object here."""
        return tuple(self._owned)

    def put(self, thing: JSON) -> Key | None:
        """Keeps the object unless a newer one is known; gives the owner's key if it changed."""
        key = self.key_of(thing)
        if key is None:
            return None
        name = thing["metadata"]["name"]
        known = self.of(key).get(name)
        if known is not None and not _is_newer(thing, known):
            return None
        self._owned.setdefault(key, {})[name] = self._kept(thing)
        return key

    def _kept(self, thing: JSON) -> JSON:
        """The object in the form in which it takes the least memory."""
        kept = _trimmed(thing, self.resource)
        return {
            sys.intern(field): _shared_metadata(value, self._shared)
            if field == "metadata"
            else self._shared.of(value)
            for field, value in kept.items()
        }

    def drop(self, thing: JSON) -> Key | None:
        """Forgets the object; gives the owner's key if it was known."""
        key = self.key_of(thing)
        name = thing.get("metadata", {}).get("name", "")
        if key is None or name not in self.of(key):
            return None
        known = self._owned[key][name]
        if known["metadata"].get("uid") != thing["metadata"].get("uid"):
            return None
        del self._owned[key][name]
        if not self._owned[key]:
            del self._owned[key]
        return key

    def replace(self, things: list[JSON], version: str) -> set[Key]:
        """Makes the store equal to a list; gives the keys of what came, changed or vanished."""
        number, changed = _number(version), set[Key]()
        if number < self._listed_version:
            # The server was restored from a backup: nothing we know is newer any more.
            changed, self._owned = set(self._owned), {}
        self._listed_version = number
        listed = {(key, t["metadata"]["name"]) for t in things if (key := self.key_of(t))}
        gone = [
            thing
            for key, owned in self._owned.items()
            for name, thing in owned.items()
            # What we wrote while the list was on its way is not in it.
            if (key, name) not in listed and _version(thing) <= number
        ]
        changed |= {key for thing in gone if (key := self.drop(thing))}
        return changed | {key for thing in things if (key := self.put(thing))}


class Reflector:
    """Runs LIST and WATCH of one kind for ever; `synced` once the first list is in."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        wake: Wake,
        namespace: str = "",
        pace: Pace | None = None,
        on_restart: Callable[[str, str], None] = lambda kind, why: None,
        shared: Shared | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.store = Store(resource, shared, shard=shard)
        self.synced = asyncio.Event()
        self.alive_at = float("inf")
        """Loop time of the last attempt, list, event or bookmark; infinite before the first."""
        self._version = ""
        """Of the last list, event or bookmark: where a watch goes on."""
        self._silences = 0
        self._client = client
        self._wake = wake
        self._namespace = namespace
        self._pace = pace or Pace()
        self._on_restart = on_restart
        own = resource is SPECULATIVE_DEPLOYMENT
        self._selector = "" if own else f"{labels.MANAGED_BY}={labels.MANAGER}"

    async def run(self) -> None:
        """Never returns; every failure is answered by waiting and listing again."""
        delay = self._pace.first_backoff
        while True:
            self._live()
            try:
                await self._list()
                while True:
                    began = self.alive_at
                    await self._watch_on()
                    if self.alive_at - began < self._pace.first_backoff:
                        # A server that ends every watch at once is not to be hammered.
                        await asyncio.sleep(self._pace.first_backoff)
                    delay = self._pace.first_backoff
            except OperatorError as error:
                if self.store.resource.optional and isinstance(error, NotFound | Refused):
                    await self._go_without(error)
                    continue
                gone = isinstance(error, Gone)
                kind = self.store.resource.kind
                self._on_restart(kind, "expired" if gone else "failed")
                log.info("event=watch-restart kind=%s why=%r", kind, str(error))
                await asyncio.sleep(self._pace.first_backoff if gone else delay)
                delay = min(delay * 2, self._pace.longest_backoff)

    async def _go_without(self, error: OperatorError) -> None:
        """A kind that may be missing is: nobody waits for it, and some time later we look again."""
        if not self.store.missing:
            log.info("event=kind-missing kind=%s why=%r", self.store.resource.kind, str(error))
        self.store.missing = True
        self.synced.set()
        await asyncio.sleep(self._pace.longest_backoff)

    async def _list(self) -> None:
        resource = self.store.resource
        things, self._version = await self._client.list_all(
            resource,
            self._namespace,
            selector=self._selector,
            keep=lambda thing: self.store.key_of(thing) is not None,
        )
        for thing in things:
            # Items of a list come without these two.
            thing.update(apiVersion=resource.api_version, kind=resource.kind)
        changed = self.store.replace(things, self._version)
        self.store.missing = False
        self._silences = 0
        self._live()
        self.synced.set()
        for key in changed:
            self._wake(key, resource is SPECULATIVE_DEPLOYMENT)

    async def _watch_on(self) -> None:
        """One watch until it ends or falls silent; the next one goes on from there."""
        try:
            await self._watch()
        except Silent as error:
            # A quiet kind is no reason to read thousands of objects again each minute: what a dead
            # connection kept from us is told by the next watch, from the same version on.
            self._silences += 1
            if self._silences >= SILENCES:
                raise
            log.debug("event=watch-silent kind=%s why=%r", self.store.resource.kind, str(error))
            self._live()

    async def _watch(self) -> None:
        async for kind, thing in self._client.watch(
            self.store.resource,
            self._namespace,
            resource_version=self._version,
            selector=self._selector,
            server_seconds=self._pace.server,
            silent_seconds=self._pace.silent,
        ):
            self._live()
            self._silences = 0
            self._version = str(thing.get("metadata", {}).get("resourceVersion", self._version))
            if kind == "BOOKMARK":
                continue
            urgent = self._is_by_a_person(thing)
            key = self.store.drop(thing) if kind == "DELETED" else self.store.put(thing)
            if key is not None:
                self._wake(key, urgent)

    def _live(self) -> None:
        self.alive_at = asyncio.get_running_loop().time()

    def _is_by_a_person(self, thing: JSON) -> bool:
        """Whether a parent's spec or annotations changed, not merely its status."""
        if self.store.resource is not SPECULATIVE_DEPLOYMENT:
            return False
        key = self.store.key_of(thing)
        known = self.store.of(key).get(key[1]) if key else None
        return known is None or any(
            known["metadata"].get(field) != thing["metadata"].get(field)
            for field in ("uid", "generation", "annotations", "deletionTimestamp")
        )


_UNIQUE: Final = frozenset({"name", "uid", "resourceVersion", "creationTimestamp"})
"""What no two objects share: not worth remembering."""


def _shared_metadata(metadata: JSON, shared: Shared) -> JSON:
    return {
        sys.intern(field): value if field in _UNIQUE else shared.of(value)
        for field, value in metadata.items()
    }


def _trimmed(thing: JSON, resource: Resource) -> JSON:
    """The object without what nobody here reads and what takes half of its size."""
    metadata = {k: v for k, v in thing["metadata"].items() if k != "managedFields"}
    if resource is SPECULATIVE_DEPLOYMENT and (who := replicas_applied_by(thing["metadata"])):
        metadata[NOTE] = who
    if metadata.get("annotations"):
        kept = metadata["annotations"].items()
        metadata["annotations"] = {k: v for k, v in kept if k != LAST_APPLIED}
    names = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**thing, **names, "metadata": metadata}


def _number(version: str) -> int:
    """A resourceVersion as a number, comparable within one kind (KEP-5504); -1 if it is none."""
    return int(version) if version.isdigit() else -1


def _version(thing: JSON) -> int:
    return _number(str(thing["metadata"].get("resourceVersion", "")))


def _is_newer(thing: JSON, known: JSON) -> bool:
    """Whether `thing` is to replace `known`; of two that can't be compared the last heard wins."""
    new, old = _version(thing), _version(known)
    return new > old or new < 0 or old < 0
