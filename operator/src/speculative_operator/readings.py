"""Status and route as last written, parsed; once per object and not per pass.

Stores never change an object in place, so that the same object reads the same.
All of what is remembered may be lost. Called by `gather` and the pass.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from speculative_api.gateway import ROUTE_KEY, Route
from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import JSON, Key, controller_uid
from speculative_operator.desired import names
from speculative_operator.rollout.healing import healed
from speculative_operator.specs import sentence

log = logging.getLogger(__name__)

MOST: Final = 40_000
"""Readings remembered; beyond that they begin anew."""

T = TypeVar("T")


class Readings:
    """Remembers the last reading of each resource's status and route."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Key], tuple[JSON, Any]] = {}
        self._sound: dict[Key, tuple[SpeculativeDeploymentStatus, datetime]] = {}
        """Statuses without a garbled time, and when that was found: it stays so from then on."""

    def status(self, key: Key, parent: JSON) -> SpeculativeDeploymentStatus:
        """`status_of` this object."""
        return self._once("status", key, parent, status_of)

    def healed(self, key: Key, parent: JSON, now: datetime) -> SpeculativeDeploymentStatus:
        """`status` with garbled times replaced, looked through once and not per pass."""
        status, sound = self.status(key, parent), self._sound.get(key)
        if sound is not None and sound[0] is status and sound[1] <= now:
            return status
        better = healed(status, now)
        if better is status:
            self._sound[key] = (status, now)
        return better

    def route(
        self, key: Key, config_maps: Store, uid: str, *, shared: bool = False
    ) -> Route | None:
        """The route of the resource with this UID, if it is ours and can be read.

        Args:
            shared: whether it is that for a shared gateway.
        """
        name = names.member_route(key[1]) if shared else names.route(key[1])
        thing = config_maps.of(key).get(name)
        if thing is None or controller_uid(thing) != uid:
            return None
        return self._once("route", key, thing, route_of)

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        for what in ("status", "route"):
            self._known.pop((what, key), None)
        self._sound.pop(key, None)

    def _once(self, what: str, key: Key, thing: JSON, read: Callable[[JSON], T]) -> T:
        known = self._known.get((what, key))
        if known is not None and known[0] is thing:
            found: T = known[1]
            return found
        if len(self._known) >= MOST:
            self._known.clear()
            self._sound.clear()
        found = read(thing)
        self._known[what, key] = (thing, found)
        return found


def status_of(parent: JSON) -> SpeculativeDeploymentStatus:
    """The status as far as it can be read; an unreadable one is empty, as after a restore."""
    try:
        return SpeculativeDeploymentStatus.model_validate(parent.get("status") or {})
    except ValidationError as error:
        metadata = parent["metadata"]
        place = (metadata.get("namespace"), metadata.get("name"))
        log.error("event=status-unreadable object=%s/%s why=%r", *place, sentence(error))
        return SpeculativeDeploymentStatus()


def route_of(config_map: JSON) -> Route | None:
    """The route that a ConfigMap holds; None if it can't be read."""
    try:
        return Route.model_validate_json(config_map.get("data", {}).get(ROUTE_KEY, ""))
    except ValidationError as error:
        metadata = config_map["metadata"]
        place = (metadata["namespace"], metadata["name"])
        log.error("event=route-unreadable object=%s/%s why=%r", *place, sentence(error))
        return None
