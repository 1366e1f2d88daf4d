"""Makes the cluster equal to what is desired, with as few writes as possible.

An unchanged world gets no write; an object that is not ours is left alone; what
is ours and no longer desired is deleted, except what the caller protects.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from speculative_api import labels
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.covering import covers, digest, said_digest, with_digest
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    BY_KIND,
    CHILDREN,
    JSON,
    Key,
    controller_uid,
    uid_of,
)
from speculative_operator.errors import (
    ApiError,
    Conflict,
    Failing,
    NotFound,
    Refused,
    Unavailable,
)

INTERNAL_ERROR: Final = 500
NOBODY: Final = ""
"""The owner of what several resources own together, none of them as its controller."""
_REQUEST: Final = re.compile(r"^[a-z-]+ /\S+: [0-9]+ ")
_Place = tuple[str, str]
"""Kind and name of an object of one owner."""
_VALUE: Final = re.compile(r"got &value\.valueUnstructured\{Value:.*?\}")


def words_of(error: ApiError) -> str:
    """The server's words about an object, without the request and without values."""
    return _VALUE.sub("got another type", _REQUEST.sub("", str(error)))[:1024]


class Outcome(StrEnum):
    """What became of one desired object."""

    UNCHANGED = "unchanged"
    WRITTEN = "written"
    TAKEN = "taken"
    """An object with this name belongs to somebody else."""
    WAITING = "waiting"
    """It is on its way out, or belongs to a former resource of the same name."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """What is kept about the objects of one owner; all of it may be lost."""

    settled: dict[_Place, tuple[str, str, str]] = field(default_factory=dict)
    """Per object (UID, version, digest) of an apply whose result the server rewrote: without
    this, a spelling of its own would be 'corrected' for ever."""
    verified: dict[_Place, tuple[str, str, str]] = field(default_factory=dict)
    """Per object (UID, resourceVersion, digest) of the last comparison that found it as it
    should be: the comparison is half the work of a quiet pass."""

    def forget(self, place: _Place) -> None:
        """The object is another one now, or gone."""
        self.settled.pop(place, None)
        self.verified.pop(place, None)


class Applier:
    """Writes objects of one owner; reads only the stores, except before a creation."""

    def __init__(self, client: Client, stores: Mapping[str, Store]) -> None:
        self._client = client
        self._stores = stores
        self._memories: dict[Key, _Memory] = {}

    async def ensure_all(
        self, bodies: Iterable[JSON], *, key: Key, owner_uid: str, create_only: Collection[str]
    ) -> tuple[dict[str, Outcome], tuple[str, ...]]:
        """What became of each object, and the server's words about those that can't be.

        Args:
            create_only: kinds that are never corrected.

        Raises:
            Failing: the server fails at some of them; the others were written all the same.
            ApiError: it is away.
        """
        found: dict[str, Outcome] = {}
        refusals: list[str] = []
        failing: list[str] = []
        for body in bodies:
            name = f"{body['kind']}/{body['metadata']['name']}"
            try:
                found[name] = await self.ensure(
                    body, key=key, owner_uid=owner_uid, create_only=body["kind"] in create_only
                )
            except Refused as error:
                # One object that can't be is no reason to neglect the others.
                refusals.append(f"{name}: {words_of(error)}")
            except Unavailable as error:
                if error.status != INTERNAL_ERROR:
                    raise
                # An admission webhook that is down, mostly: it may concern one kind alone.
                failing.append(f"{name}: {words_of(error)}")
        if failing:
            raise Failing("; ".join(failing), INTERNAL_ERROR)
        return found, tuple(refusals)

    async def ensure(
        self, body: JSON, *, key: Key, owner_uid: str, create_only: bool = False
    ) -> Outcome:
        """Creates or corrects one object."""
        resource = BY_KIND[body["kind"]]
        name = body["metadata"]["name"]
        live = self._stores[resource.kind].of(key).get(name)
        if live is None:
            return await self._create(body, key=key, owner_uid=owner_uid, create_only=create_only)
        hindrance = _hindrance(live, body, owner_uid)
        if hindrance is not None:
            return hindrance
        if create_only or self._is_current(live, body, key):
            return Outcome.UNCHANGED
        await self._correct(live, body, key)
        return Outcome.WRITTEN

    async def _create(self, body: JSON, *, key: Key, owner_uid: str, create_only: bool) -> Outcome:
        """Creates, which can't touch what somebody else has under this name."""
        resource = BY_KIND[body["kind"]]
        try:
            if create_only:
                self._note(await self._client.create(resource, body))
            else:
                sent = with_digest(body, created=True)
                answer = await self._client.create(resource, sent)
                self._written(body, answer, key, wanted=said_digest(sent)[0])
        except (Conflict, Refused):
            return await self._create_with_care(
                body, key=key, owner_uid=owner_uid, create_only=create_only
            )
        return Outcome.WRITTEN

    async def _create_with_care(
        self, body: JSON, *, key: Key, owner_uid: str, create_only: bool
    ) -> Outcome:
        """The name is taken, or the body is refused, for which an apply has the better words."""
        resource, metadata = BY_KIND[body["kind"]], body["metadata"]
        try:
            live = await self._client.get(resource, metadata["namespace"], metadata["name"])
        except NotFound:
            if create_only:
                self._note(await self._client.create(resource, body))
            else:
                await self._apply(body, key)
            return Outcome.WRITTEN
        hindrance = _hindrance(live, body, owner_uid)
        if hindrance is not None:
            return hindrance
        # Ours, but the cache is behind or our labels were taken off.
        if not create_only and not self._is_current(live, body, key):
            await self._correct(live, body, key)
            return Outcome.WRITTEN
        return Outcome.UNCHANGED

    async def _correct(self, live: JSON, body: JSON, key: Key) -> None:
        if said_digest(live)[1]:
            await self._client.adopt_fields(BY_KIND[body["kind"]], live)
        await self._apply(body, key, uid=uid_of(live))

    async def _apply(self, body: JSON, key: Key, uid: str = "") -> None:
        sent = with_digest(body)
        if uid:
            # A successor of the same name is not ours to write to: the server says Conflict.
            sent = {**sent, "metadata": {**sent["metadata"], "uid": uid}}
        _, answer = await self._client.apply(BY_KIND[body["kind"]], sent)
        self._written(body, answer, key, wanted=said_digest(sent)[0])

    def _written(self, body: JSON, answer: JSON, key: Key, *, wanted: str) -> None:
        """Notes the server's answer; `wanted` is the body's digest."""
        self._note(answer)
        memory, place = self._memory(key), _place(body)
        memory.forget(place)
        if covers(answer, body):
            # Compared just now: the next pass need not do so again.
            memory.verified[place] = _seen(answer, wanted)
        else:
            memory.settled[place] = (uid_of(answer), _version(answer), wanted)

    def _is_current(self, live: JSON, body: JSON, key: Key) -> bool:
        memory, place, wanted = self._memory(key), _place(body), digest(body)
        seen = _seen(live, wanted)
        if memory.verified.get(place) == seen:
            return True
        if said_digest(live)[0] != wanted or not covers(live["metadata"], body["metadata"]):
            return False
        settled = memory.settled.get(place) == (uid_of(live), _version(live), wanted)
        if not settled and not covers(live, body):
            return False
        memory.verified[place] = seen
        return True

    async def prune(
        self,
        key: Key,
        *,
        owner_uid: str,
        desired: Iterable[JSON],
        protected: Callable[[JSON], bool],
    ) -> int:
        """Deletes what is ours and neither desired nor protected; gives how many."""
        kept = {(body["kind"], body["metadata"]["name"]) for body in desired}
        count = 0
        for resource in CHILDREN:
            for name, live in sorted(self._stores[resource.kind].of(key).items()):
                if controller_uid(live) != owner_uid or (resource.kind, name) in kept:
                    continue
                if protected(live) or live["metadata"].get("deletionTimestamp"):
                    continue
                count += await self._client.delete(resource, live)
                self._stores[resource.kind].drop(live)
                self._memory(key).forget((resource.kind, name))
        return count

    def forget(self, key: Key) -> None:
        """Drops what is remembered about a resource that is gone."""
        self._memories.pop(key, None)

    def _memory(self, key: Key) -> _Memory:
        return self._memories.setdefault(key, _Memory())

    def _note(self, thing: JSON) -> None:
        self._stores[thing["kind"]].put(thing)


def versions(stores: Mapping[str, Store], key: Key) -> tuple[tuple[str, str], ...]:
    """What there is of one resource's children, by UID and version: equal while nothing changed."""
    return tuple(
        (uid_of(live), str(live["metadata"].get("resourceVersion", "")))
        for resource in CHILDREN
        for live in stores[resource.kind].of(key).values()
    )


def leftovers(stores: Mapping[str, Store], key: Key, owner_uid: str) -> list[str]:
    """`Kind/name` of children of a former resource of the same name, not yet collected."""
    return [
        f"{resource.kind}/{name}"
        for resource in CHILDREN
        for name, live in stores[resource.kind].of(key).items()
        if _of_a_former(live, owner_uid)
    ]


def _hindrance(live: JSON, body: JSON, owner_uid: str) -> Outcome | None:
    if _of_a_former(live, owner_uid):
        return Outcome.WAITING
    if controller_uid(live) != owner_uid or (owner_uid == NOBODY and not _is_same(live, body)):
        return Outcome.TAKEN
    return Outcome.WAITING if live["metadata"].get("deletionTimestamp") else None


def _is_same(live: JSON, body: JSON) -> bool:
    """Whether both are of one shared gateway: its objects have no controller to be known by."""
    said, wanted = ((thing["metadata"].get("labels") or {}) for thing in (live, body))
    ours = (labels.MANAGED_BY, labels.SHARED_GATEWAY)
    return all(said.get(label) == wanted.get(label) for label in ours)


def _of_a_former(live: JSON, owner_uid: str) -> bool:
    return any(
        owner.get("controller")
        and owner.get("kind") == labels.KIND
        and owner.get("name") == (live["metadata"].get("labels") or {}).get(labels.NAME)
        and owner.get("uid") != owner_uid
        for owner in live["metadata"].get("ownerReferences") or ()
    )


def _place(body: JSON) -> _Place:
    return body["kind"], body["metadata"]["name"]


def _seen(live: JSON, wanted: str) -> tuple[str, str, str]:
    return uid_of(live), str(live["metadata"].get("resourceVersion", "")), wanted


def _version(thing: JSON) -> str:
    """What moves with a change of the spec: the generation, where the kind has one."""
    metadata = thing["metadata"]
    return str(metadata.get("generation") or metadata.get("resourceVersion", ""))
