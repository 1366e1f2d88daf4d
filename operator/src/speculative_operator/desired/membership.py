"""Who is at a shared gateway, by which settings, and whose which host name is. Pure.

A gateway's settings are in force until all of its members say the same other ones: no
member's edit alone takes something from another. Who may ask a member, and how much, is
its own. What was agreed stands in the gateway's ConfigMap, so that it outlives the operator.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from speculative_api import gateway as api
from speculative_api.v1alpha1 import MEMBER_SETTINGS, SHARED_SETTINGS, Gateway, GatewayMode
from speculative_operator.desired.route import auth_of, rate_limit_of

Words = Mapping[str, Any]
"""Fields of `gateway` as in a spec, without what equals its default."""

_NAMES = {name: each.alias or name for name, each in Gateway.model_fields.items()}
_OF_A_MEMBER = frozenset(_NAMES[name] for name in MEMBER_SETTINGS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A resource that wants to be at a shared gateway."""

    name: str
    uid: str
    created: str
    """Its creationTimestamp; such moments sort as text."""
    settings: Words | None
    """What it says about the gateway. None: its spec can't be read, or is refused."""
    access: Words = field(default_factory=dict)
    """Who may ask it, and how much."""
    hosts: tuple[str, ...] = ()


def candidate(name: str, uid: str, created: str, said: Gateway) -> Candidate:
    """One whose spec says this."""
    return Candidate(
        name=name,
        uid=uid,
        created=created,
        settings=words_of_settings(said),
        access=_words(said, MEMBER_SETTINGS),
        hosts=tuple(said.hosts),
    )


def words_of_settings(gateway: Gateway) -> dict[str, Any]:
    """What a member says about the gateway."""
    return _words(gateway, SHARED_SETTINGS)


def _words(gateway: Gateway, fields: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = gateway.model_dump(
        mode="json", by_alias=True, include=set(fields), exclude_defaults=True
    )
    return found


def settings_in(words: Words, gateway: str) -> Gateway | None:
    """The settings in these words; None if this operator does not know them."""
    said = {**words, "mode": GatewayMode.SHARED, "shared": {"name": gateway}}
    try:
        return Gateway.model_validate(said)
    except ValidationError:
        return None


def accesses_in(shared: api.SharedGateway, gateway: str) -> tuple[Gateway, ...] | None:
    """What each member's words and those in force say together, or once what all say alike; None
    if this operator does not know them.
    """
    own = [each.access.settings for each in shared.members if each.access] or [{}]
    found = [settings_in({**shared.settings, **words}, gateway) for words in own]
    return tuple(each for each in found if each) if all(found) else None


def agreed(
    candidates: Sequence[Candidate], before: api.SharedGateway | None, gateway: str
) -> api.SharedGateway | None:
    """Members, settings in force and host names, from what was agreed before.

    Whoever is a member stays one. Others become one by saying what is in force. None: nobody's
    settings can be read.
    """
    order = sorted(
        (_as_before(each, before) for each in candidates),
        key=lambda each: (each.created, each.name),
    )
    present = {each.uid for each in order}
    known = {each.owner_uid for each in before.members} & present if before else set()
    in_force = _in_force(order, known, before)
    if in_force is None:
        return None
    joined = [each for each in order if each.uid in known or each.settings == in_force]
    accesses = {each.uid: _access({**in_force, **each.access}, gateway) for each in joined}
    if None in accesses.values():
        return before
    granted = _granted(joined, before)
    members = tuple(
        api.Member(
            name=each.name,
            owner_uid=each.uid,
            hosts=tuple(host for host in each.hosts if granted[host] == each.uid),
            access=accesses[each.uid],
        )
        for each in joined
    )
    return _in_common(members, in_force)


def _access(words: Words, gateway: str) -> api.Access | None:
    """What agents are told; None where this operator does not know the words."""
    said = settings_in(words, gateway)
    if said is None:
        return None
    return api.Access(
        auth=auth_of(said.auth) if said.auth else None,
        rate_limit=rate_limit_of(said),
        max_request_body_bytes=said.max_request_body_bytes,
        allowed_cidrs=tuple(said.allowed_cidrs),
        settings={name: words[name] for name in words if name in _OF_A_MEMBER},
    )


def _in_common(members: tuple[api.Member, ...], in_force: Words) -> api.SharedGateway:
    """What all members say alike is the gateway's, which agents of every version understand."""
    first = members[0].access
    if first is None or any(each.access != first for each in members):
        return api.SharedGateway(schema_version=2, members=members, settings=dict(in_force))
    words = {**in_force, **first.settings}
    order = [name for name in _NAMES.values() if name in words]
    return api.SharedGateway(
        members=tuple(each.model_copy(update={"access": None}) for each in members),
        auth=first.auth,
        rate_limit=first.rate_limit,
        max_request_body_bytes=first.max_request_body_bytes,
        allowed_cidrs=first.allowed_cidrs,
        settings={name: words[name] for name in order},
    )


def common_words(shared: api.SharedGateway) -> dict[str, Any]:
    """The settings in force that are the gateway's alone."""
    return {name: word for name, word in shared.settings.items() if name not in _OF_A_MEMBER}


def _as_before(candidate: Candidate, before: api.SharedGateway | None) -> Candidate:
    """Whose spec can't be used keeps the host names that it had, and lets in whom it let in."""
    members = before.members if before is not None and candidate.settings is None else ()
    held = next((each for each in members if each.owner_uid == candidate.uid), None)
    if held is None or before is None:
        return candidate
    words = held.access.settings if held.access else before.settings
    access = {name: word for name, word in words.items() if name in _OF_A_MEMBER}
    return replace(candidate, hosts=held.hosts, access=access)


def _in_force(
    order: Sequence[Candidate], known: set[str], before: api.SharedGateway | None
) -> Words | None:
    """What all of those who are members already say, else what was; at first the oldest's words.

    Nothing changes while one of them can't be read: what it asks for could be taken from it.
    """
    if before is None or not known:
        return next((each.settings for each in order if each.settings is not None), None)
    first, *others = (each.settings for each in order if each.uid in known)
    agree = first is not None and all(words == first for words in others)
    return first if agree else common_words(before)


def _granted(joined: Sequence[Candidate], before: api.SharedGateway | None) -> dict[str, str]:
    """Whose each host name is: it stays with who has it, else the older member gets it."""
    claims = {(host, each.uid) for each in joined for host in each.hosts}
    held = {
        host: member.owner_uid
        for member in (before.members if before else ())
        for host in member.hosts
        if (host, member.owner_uid) in claims
    }
    for each in joined:
        for host in each.hosts:
            held.setdefault(host, each.uid)
    return held


def differences(said: Words, in_force: Words) -> Iterator[str]:
    """Each setting that is said differently, with both words."""
    for name in sorted({*said, *in_force}):
        if said.get(name) != in_force.get(name):
            yield f"gateway.{name} is {_shown(said, name)} here and {_shown(in_force, name)} there"


def _shown(words: Words, name: str) -> str:
    return json.dumps(words[name], sort_keys=True) if name in words else "not set"
