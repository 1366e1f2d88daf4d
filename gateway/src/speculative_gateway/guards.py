"""Pure: who is let in to which member of a shared gateway and how often, where members differ.

Whom a member lets in stands at each of its ways in: the entry that a request takes is what
decides, whatever else the request says. What is counted stands at the virtual host, since Envoy
keeps a bucket for each place of its configuration. A request is described there by the group
that its entry's metadata names, which no header can, and by its client. Members with the same
`auth` and limits are one group. Called by `joint`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_api import gateway

from .concurrency import ANSWERS, at_most
from .configuration import OFF, digest
from .keys import Keys
from .policies import (
    CHARGE_LIMIT,
    CHARGED,
    CHARGING,
    CLIENT,
    COST,
    MOST_CLIENTS,
    REQUEST_LIMIT,
    TOKEN_RETRY_SECONDS,
    bucket,
    clients_of,
    limit,
    policies,
    retry_seconds,
)
from .render import NO_KEY_SET, NO_KEYS
from .tokens import REQUIREMENT, KeySet, requirement

GROUP = "speculative.limits"
"""Metadata key of an entry: which group counts its requests, and the seconds to wait beyond it."""
_GROUP_OF_ENTRY = {
    "metadata": {
        "descriptor_key": "group",
        "metadata_key": {"key": GROUP, "path": [{"key": "group"}]},
        "source": "ROUTE_ENTRY",
    }
}

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Guard:
    """One member's access, and who has it now."""

    access: gateway.Access
    keys: Keys = NO_KEYS
    key_set: KeySet = NO_KEY_SET

    @property
    def is_locked(self) -> bool:
        """Whether nobody is let in, for want of a key."""
        return self.access.auth is not None and not (self.keys.by_client or self.key_set.text)

    @property
    def jwt(self) -> gateway.Jwt | None:
        """What it asks of tokens."""
        return self.access.auth.jwt if self.access.auth else None

    @property
    def limits(self) -> gateway.RateLimit | None:
        """None: nobody is counted."""
        return None if clients_of(self.access, self.keys) == [] else self.access.rate_limit

    @property
    def group(self) -> str:
        """Names those who are counted together."""
        return digest(self.access.model_dump(mode="json", include={"auth", "rate_limit"}))


def is_one(guards: Iterable[Guard]) -> bool:
    """Whether all let in the same, and as often."""
    first, *others = guards
    return all(each.access == first.access for each in others)


def common(guards: Mapping[str, Guard]) -> Guard:
    """For what is no member's alone: what all of them say alike; limits are of who has a key."""
    first, *others = guards.values()
    said = {
        name: getattr(first.access, name)
        for name in gateway.Access.model_fields
        if all(getattr(each.access, name) == getattr(first.access, name) for each in others)
    }
    if "auth" not in said:
        said.pop("rate_limit", None)
    return Guard(gateway.Access(**said), first.keys, first.key_set)


def is_shown(guard: Guard, to_all: Guard) -> bool:
    """Whether whoever `to_all` lets in may hear of the member behind this one."""
    mine, theirs = guard.access, to_all.access
    return mine.auth == theirs.auth and mine.allowed_cidrs == theirs.allowed_cidrs


def of_the_host(guards: Iterable[Guard]) -> Fields:
    """Every bucket. Of what it says nothing about the listener decides: nobody is let in."""
    groups = {each.group: each for each in guards if each.limits is not None}
    requests, tokens = {}, {}
    for group, each in sorted(groups.items()):
        if each.limits and (most := each.limits.requests_per_minute_per_key):
            requests[group] = most
        if each.limits and (most := each.limits.tokens_per_minute_per_key):
            tokens[group] = most
    configured: Fields = {}
    if requests:
        retry_after = f"%METADATA(ROUTE:{GROUP}:retry)%"
        configured[REQUEST_LIMIT] = _limit("requests", groups, requests, retry_after)
    if tokens:
        charged = _limit("tokens", groups, tokens, str(TOKEN_RETRY_SECONDS))
        charged["rate_limits"][0]["hits_addend"] = CHARGED
        configured |= {COST: CHARGING, CHARGE_LIMIT: charged}
    return {"typed_per_filter_config": configured}


def guarded(entry: Mapping[str, Any], guard: Guard, host: Fields) -> Fields:
    """The entry with whom it lets in, at a virtual host with the fields `host`.

    Raises:
        RouteRefused: see `policies`.
    """
    name = requirement(guard.jwt) if guard.jwt else REQUIREMENT
    found = policies(guard.access, guard.keys, name)
    own = found["typed_per_filter_config"]
    for counted in (REQUEST_LIMIT, COST, CHARGE_LIMIT):
        if own.pop(counted, None) is None and counted in host["typed_per_filter_config"]:
            own[counted] = OFF
    limits, known = guard.limits, entry.get("metadata", {}).get("filter_metadata", {})
    if limits is not None:
        if (at_once := limits.concurrent_requests_per_key) is not None:
            own[ANSWERS] = at_most(at_once, guard.group)
        per_minute = limits.requests_per_minute_per_key or 1
        said = {"group": guard.group, "retry": str(retry_seconds(per_minute))}
        known = {**known, GROUP: said}
    return {**entry, **found, "metadata": {"filter_metadata": known}}


def _limit(
    name: str, groups: Mapping[str, Guard], per_minute: Mapping[str, int], retry_after: str
) -> Fields:
    """A bucket for each client of each group; those whose tokens name none share one."""
    descriptors = []
    for group, most in per_minute.items():
        whose = {"key": "group", "value": group}
        clients = clients_of(groups[group].access, groups[group].keys)
        named = [{"key": "client"}] if clients is None else [_client(each) for each in clients]
        found = [[whose, each] for each in named] + ([[whose]] if clients is None else [])
        descriptors += [{"entries": each, "token_bucket": bucket(most)} for each in found]
    return limit(
        name,
        actions=[_GROUP_OF_ENTRY, {"request_headers": {**CLIENT, "skip_if_absent": True}}],
        descriptors=descriptors,
        # Whoever is counted is in a group.
        otherwise=bucket(1),
        retry_after=retry_after,
        max_dynamic_descriptors=MOST_CLIENTS,
    )


def _client(name: str) -> dict[str, str]:
    return {"key": "client", "value": name}
