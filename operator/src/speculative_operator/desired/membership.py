"""Who is at a shared gateway, by which settings, and whose which host name is. Pure.

A gateway's settings are in force until all of its members say the same other ones: no
member's edit alone takes protection away from another or puts limits on it. What was
agreed stands in the gateway's ConfigMap, so that it outlives the operator.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from speculative_api import gateway as api
from speculative_api.v1alpha1 import SHARED_SETTINGS, Gateway, GatewayMode
from speculative_operator.desired.route import auth_of, rate_limit_of

Words = Mapping[str, Any]
"""`SHARED_SETTINGS` as in a spec, without what equals its default."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A resource that wants to be at a shared gateway."""

    name: str
    uid: str
    created: str
    """Its creationTimestamp; such moments sort as text."""
    settings: Words | None
    """None: its spec can't be read, or is refused."""
    hosts: tuple[str, ...] = ()


def words_of_settings(gateway: Gateway) -> dict[str, Any]:
    """What a member says about the gateway."""
    found: dict[str, Any] = gateway.model_dump(
        mode="json", by_alias=True, include=set(SHARED_SETTINGS), exclude_defaults=True
    )
    return found


def settings_in(words: Words, gateway: str) -> Gateway | None:
    """The settings in these words; None if this operator does not know them."""
    said = {**words, "mode": GatewayMode.SHARED, "shared": {"name": gateway}}
    try:
        return Gateway.model_validate(said)
    except ValidationError:
        return None


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
    settings = settings_in(in_force, gateway)
    if settings is None:
        return before
    granted = _granted(joined, before)
    return api.SharedGateway(
        members=tuple(
            api.Member(
                name=each.name,
                owner_uid=each.uid,
                hosts=tuple(host for host in each.hosts if granted[host] == each.uid),
            )
            for each in joined
        ),
        auth=auth_of(settings.auth) if settings.auth else None,
        rate_limit=rate_limit_of(settings),
        max_request_body_bytes=settings.max_request_body_bytes,
        allowed_cidrs=tuple(settings.allowed_cidrs),
        settings=dict(in_force),
    )


def _as_before(candidate: Candidate, before: api.SharedGateway | None) -> Candidate:
    """Whose spec can't be used keeps the host names that it had."""
    members = before.members if before is not None and candidate.settings is None else ()
    held = next((each.hosts for each in members if each.owner_uid == candidate.uid), None)
    return candidate if held is None else replace(candidate, hosts=held)


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
    return first if agree else before.settings


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
