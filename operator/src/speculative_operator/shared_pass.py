"""One pass over one shared gateway: who is at it, by which settings, and its objects.

The only writer of what several resources have together. Woken by their edits and by
the gateway's own objects, see `cluster/companions`. Called by `reconcile`.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from speculative_api import gateway as api
from speculative_operator.cluster.apply import NOBODY, Applier, Outcome
from speculative_operator.cluster.companions import (
    Stores,
    agreed_before,
    gateway_key,
    gateway_name,
)
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    Key,
    uid_of,
)
from speculative_operator.desired.membership import (
    Candidate,
    accesses_in,
    agreed,
    candidate,
    settings_in,
)
from speculative_operator.desired.shared_gateway import shared_objects
from speculative_operator.readings import Readings
from speculative_operator.settings import Settings
from speculative_operator.specs import ReadSpec, Specs

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 60.0
"""Next look while nothing happens: events wake a pass sooner."""
WAITING_SECONDS: Final = 2.0
"""Next look while something on its way out is in the way."""


class SharedGateways:
    """`look` is one pass; the queue calls it, never twice at once for a key."""

    def __init__(
        self,
        stores: Stores,
        applier: Applier,
        settings: Settings,
        specs: Specs,
        readings: Readings,
        *,
        wake: Callable[[Key], None],
    ) -> None:
        self._stores, self._applier, self._settings = stores, applier, settings
        self._specs, self._readings, self._wake = specs, readings, wake
        self._conflicts: dict[Key, tuple[str, ...]] = {}

    def conflicts(self, gateway: Key | None) -> tuple[str, ...]:
        """`Kind/name` of objects with this gateway's names that are somebody else's."""
        return self._conflicts.get(gateway, ()) if gateway else ()

    async def look(self, key: Key) -> float | None:
        """Makes the gateway's objects real; takes them away once nobody is at it."""
        parents = list(self._parents(key))
        name = gateway_name(key)
        candidates = [self._candidate(parent) for parent in parents]
        before = agreed_before(self._stores, key)
        shared = agreed(candidates, before, name) if candidates else None
        if not candidates:
            await self._applier.prune(
                key, owner_uid=NOBODY, desired=(), protected=lambda live: False
            )
            self._applier.forget(key)
            self._conflicts.pop(key, None)
            return None
        wanted = settings_in(shared.settings, name) if shared else None
        accesses = accesses_in(shared, name) if shared else None
        if shared is None or wanted is None or accesses is None:
            # Words that only a newer operator knows: what stands, stands.
            log.warning("event=shared-unknown object=%s/%s", key[0], name)
            return QUIET_SECONDS
        bodies = shared_objects(
            shared,
            wanted,
            self._settings,
            accesses=accesses,
            name=name,
            namespace=key[0],
            vouching=self._authorities(key[0], shared, parents),
        )
        found, refusals = await self._applier.ensure_all(
            bodies, key=key, owner_uid=NOBODY, create_only=()
        )
        taken = tuple(each for each, what in found.items() if what is Outcome.TAKEN)
        changed = shared != before or self._conflicts.get(key, ()) != (*taken, *refusals)
        self._conflicts[key] = (*taken, *refusals)
        await self._applier.prune(
            key, owner_uid=NOBODY, desired=bodies, protected=lambda live: False
        )
        if changed:
            for parent in parents:
                self._wake((key[0], parent["metadata"]["name"]))
        return WAITING_SECONDS if Outcome.WAITING in found.values() else QUIET_SECONDS

    def _parents(self, key: Key) -> Iterator[JSON]:
        """Resources that want to be at it and are not on their way out."""
        store = self._stores[SPECULATIVE_DEPLOYMENT.kind]
        for each in tuple(store.keys()):
            parent = store.of(each).get(each[1])
            if parent is None or parent["metadata"].get("deletionTimestamp"):
                continue
            if each[0] == key[0] and gateway_key(each[0], parent) == key:
                yield parent

    def _candidate(self, parent: JSON) -> Candidate:
        metadata = parent["metadata"]
        read = self._specs.read((metadata["namespace"], metadata["name"]), parent.get("spec", {}))
        who = metadata["name"], uid_of(parent), str(metadata.get("creationTimestamp", ""))
        if not isinstance(read, ReadSpec) or read.findings:
            # What is refused is nobody's word: an address range that is none would stop all.
            return Candidate(*who, settings=None)
        return candidate(*who, read.spec.gateway)

    def _authorities(
        self, namespace: str, shared: api.SharedGateway, parents: list[JSON]
    ) -> tuple[str, ...]:
        """Secrets that vouch for the engines of members' routes and specs, sorted."""
        members = {each.owner_uid for each in shared.members}
        found: set[str] = set()
        for parent in parents:
            if uid_of(parent) not in members:
                continue
            key = (namespace, parent["metadata"]["name"])
            read = self._specs.read(key, parent.get("spec", {}))
            if isinstance(read, ReadSpec) and read.spec.engine.tls is not None:
                found.add(read.spec.engine.tls.secret_name)
            route = self._readings.route(
                key, self._stores[CONFIG_MAP.kind], uid_of(parent), shared=True
            )
            if route is not None:
                backends = [*route.backends, *([route.native] if route.native else [])]
                found |= {each.tls.authority for each in backends if each.tls is not None}
        return tuple(sorted(found))
