"""Resources at one shared gateway: what the caches say of it, and who wakes whom.

Reads stores only. A resource's own pass and the gateway's (`shared_pass`) meet here.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from speculative_api import gateway as api
from speculative_api.v1alpha1 import SHARED_SETTINGS, GatewayMode, SpeculativeDeploymentSpec
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    JSON,
    POD,
    SHARED_PREFIX,
    SPECULATIVE_DEPLOYMENT,
    Key,
)
from speculative_operator.desired import names
from speculative_operator.desired.membership import (
    common_words,
    differences,
    settings_in,
    words_of_settings,
)
from speculative_operator.snapshot import SharedView

log = logging.getLogger(__name__)

Stores = Mapping[str, Store]


def is_gateway(key: Key) -> bool:
    """Whether this is a shared gateway's key and no resource's."""
    return key[1].startswith(SHARED_PREFIX)


def gateway_name(key: Key) -> str:
    """Name of the shared gateway with this key."""
    return key[1].removeprefix(SHARED_PREFIX)


def gateway_key(namespace: str, parent: Mapping[str, Any] | None) -> Key | None:
    """Key of the shared gateway that a resource wants to be at; None for every other mode.

    Of the raw object: also where its spec can't be read.
    """
    spec = (parent or {}).get("spec") or {}
    said = spec.get("gateway") if isinstance(spec, dict) else None
    if not isinstance(said, dict) or said.get("mode") != GatewayMode.SHARED:
        return None
    shared = said.get("shared")
    name = shared.get("name") if isinstance(shared, dict) else None
    return (namespace, SHARED_PREFIX + name) if isinstance(name, str) else None


def gateway_of(stores: Stores, key: Key) -> Key | None:
    """The same for the resource with this key as the caches have it."""
    return gateway_key(key[0], stores[SPECULATIVE_DEPLOYMENT.kind].of(key).get(key[1]))


def shared_pods(stores: Stores, key: Key) -> list[JSON]:
    """Pods of the shared gateway that a resource is at, by name; none for every other mode."""
    found = gateway_of(stores, key)
    return [pod for _, pod in sorted(stores[POD.kind].of(found).items())] if found else []


def agreed_before(stores: Stores, gateway: Key) -> api.SharedGateway | None:
    """What stands in the gateway's ConfigMap; None if there is none or it can't be read."""
    name = names.gateway(gateway_name(gateway))
    thing = stores[CONFIG_MAP.kind].of(gateway).get(name)
    if thing is None:
        return None
    try:
        return api.SharedGateway.model_validate_json(thing.get("data", {}).get(api.SHARED_KEY, ""))
    except ValidationError as error:
        log.error("event=shared-unreadable object=%s/%s why=%r", gateway[0], name, str(error))
        return None


def shared_view(
    stores: Stores, key: Key, spec: SpeculativeDeploymentSpec, uid: str, conflicts: tuple[str, ...]
) -> tuple[SharedView | None, SpeculativeDeploymentSpec]:
    """How a resource stands at its shared gateway, and its spec with the settings in force.

    Args:
        conflicts: `Kind/name` of objects with the gateway's names that are not its.
    """
    found = gateway_of(stores, key)
    if found is None or not spec.gateway.shared_name:
        return None, spec
    before = agreed_before(stores, found)
    if before is None:
        return SharedView(gateway=gateway_name(found), conflicts=conflicts), spec
    in_force = settings_in(before.settings, gateway_name(found))
    others = [each for each in before.members if each.owner_uid != uid]
    taken = {host for each in others for host in each.hosts}
    view = SharedView(
        gateway=gateway_name(found),
        joined=len(others) < len(before.members),
        others=tuple(each.name for each in others),
        differing=tuple(differences(words_of_settings(spec.gateway), common_words(before))),
        lost_hosts=tuple(host for host in spec.gateway.hosts if host in taken),
        conflicts=conflicts,
    )
    if in_force is None or not view.differing:
        return view, spec
    theirs = {name: getattr(in_force, name) for name in SHARED_SETTINGS}
    gateway = spec.gateway.model_copy(update=theirs)
    return view, spec.model_copy(update={"gateway": gateway})


class Companions:
    """Which resource is at which shared gateway, by the last that was heard of it."""

    def __init__(self, parents: Store) -> None:
        self._parents = parents
        self._at: dict[Key, Key] = {}
        self._members: dict[Key, set[Key]] = {}

    def woken_by(self, key: Key, *, by_a_person: bool) -> tuple[Key, ...]:
        """Whose passes a change of this one makes due besides its own."""
        if is_gateway(key):
            return tuple(sorted(self._members.get(key, ())))
        before = self._at.get(key)
        now = gateway_key(key[0], self._parents.of(key).get(key[1]))
        if before != now:
            self._moved(key, before, now)
        elif not by_a_person:
            return ()
        return tuple(sorted({each for each in (before, now) if each is not None}))

    def _moved(self, key: Key, before: Key | None, now: Key | None) -> None:
        if before is not None:
            self._members[before].discard(key)
            del self._at[key]
            if not self._members[before]:
                del self._members[before]
        if now is not None:
            self._at[key] = now
            self._members.setdefault(now, set()).add(key)
