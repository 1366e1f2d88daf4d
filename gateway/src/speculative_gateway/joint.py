"""Pure: the routes of a shared gateway's members become one configuration of one Envoy.

Each member is rendered as if it were alone, under hashes of its own: two members
with the same words have the same revision hash, and Envoy knows clusters, runtime
keys and counters by nothing else. Users, logs and `/state` are told the real ones.
Called by `many_routes`.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from speculative_api import gateway, labels

from .answers import UNKNOWN_MODEL
from .configuration import CONTENT, ROUTES, WAITING, Configuration, marked
from .guards import Guard, common, guarded, is_one, is_shown, of_the_host
from .logs import MEMBER
from .policies import NO_POLICIES, policies
from .render import Endpoints, rendered
from .routes import NO_BACKEND, answer, entries, silence
from .tokens import REQUIREMENT, requirement, tokens

MOST_NAMED = 50
"""Models that an answer to an unknown one names."""
LONGEST_OWN_ANSWER_BYTES = 1024 * 1024
"""Of the list of models; Envoy's default is 4 KiB."""

Entry = dict[str, Any]


def alias(member: str, revision: str) -> str:
    """What Envoy knows a member's revision as; of the form of a hash."""
    return hashlib.sha256(f"{member}/{revision}".encode()).hexdigest()[:10]


def revisions(member: str, route: gateway.Route) -> dict[str, str]:
    """A member's revision hashes by alias."""
    backends = [*route.backends, *([route.native] if route.native else [])]
    return {alias(member, each.hash): each.hash for each in backends}


def part(
    member: str,
    route: gateway.Route,
    endpoints: Endpoints,
    *,
    folder: PurePath,
    waiting_port: int = labels.WAITING_PORT,
) -> Configuration:
    """What one member adds; its routes are the entries under `/v1/` alone.

    Raises:
        RouteRefused: see `rendered`.
    """
    shown, own = revisions(member, route), aliased(member, route)
    found = rendered(own, endpoints, folder=folder, shown=shown, waiting_port=waiting_port)
    clusters = {
        # The agent is there for all members alike.
        name: each
        if name == WAITING
        else _stamped(each, member, shown.get(name.partition("-")[0], ""))
        for name, each in found.clusters.items()
    }
    named = {"name": member}
    mine = [{**_named(entry, named), **silence(route)} for entry in entries(own, shown)]
    return Configuration(
        assignments=found.assignments,
        clusters=clusters,
        routes={"entries": mine},
        weights=found.weights,
        bounds=found.bounds,
        copies=found.copies,
    )


def joint(
    members: Sequence[gateway.Member],
    parts: Mapping[str, Configuration],
    guards: Mapping[str, Guard],
) -> Configuration:
    """The whole: every part, and what belongs to no member alone.

    Args:
        guards: of every member.

    Raises:
        RouteRefused: see `policies`.
    """
    names = [each.name for each in members]
    found = [parts[name] for name in names if name in parts]
    own = {name: parts[name].routes["entries"] if name in parts else _absent() for name in names}
    asked = {
        requirement(each.jwt): (each.jwt, each.key_set) for each in guards.values() if each.jwt
    }
    host = {
        "name": "all",
        "domains": ["*"],
        **_guarded(members, own, guards, served=parts),
    }
    return Configuration(
        assignments=_union(each.assignments for each in found),
        clusters=_union(each.clusters for each in found),
        routes={
            "name": ROUTES,
            "validate_clusters": True,
            "max_direct_response_body_size_bytes": LONGEST_OWN_ANSWER_BYTES,
            "virtual_hosts": [marked(host)],
        },
        weights=_union(each.weights for each in found),
        tokens=tokens(asked),
        bounds=_union(each.bounds for each in found),
        copies=_union(each.copies for each in found),
    )


def _guarded(
    members: Sequence[gateway.Member],
    own: Mapping[str, list[Entry]],
    guards: Mapping[str, Guard],
    served: Collection[str],
) -> dict[str, Any]:
    """The virtual host's routes, and who is let in to which of them."""
    if not guards:
        return {"routes": _of_nobody([], own, served), **NO_POLICIES}
    if is_one(guards.values()):
        # Once for all: of a thousand keys there is no copy at each way in.
        alone = next(iter(guards.values()))
        name = requirement(alone.jwt) if alone.jwt else REQUIREMENT
        routes = [*_ways(members, own), *_of_nobody([*own], own, served)]
        return {"routes": routes, **policies(alone.access, alone.keys, name)}
    host, to_all = of_the_host(guards.values()), common(guards)
    shown = [name for name in own if is_shown(guards[name], to_all)]
    behind = {
        name: [guarded(entry, guards[name], host) for entry in entries]
        for name, entries in own.items()
    }
    of_nobody = [guarded(each, to_all, host) for each in _of_nobody(shown, own, served)]
    return {"routes": [*_ways(members, behind), *of_nobody], **host}


def _ways(members: Sequence[gateway.Member], own: Mapping[str, list[Entry]]) -> list[Entry]:
    """Every way in to every member."""
    return [
        *_by_host(members, own),
        *(_by_path(entry, name) for name, entries in own.items() for entry in entries),
        *(_by_header(entry, name) for name, entries in own.items() for entry in entries),
    ]


def _of_nobody(shown: list[str], members: Collection[str], served: Collection[str]) -> list[Entry]:
    """For requests that name no member: they are told of those that are `shown`."""
    listed = _models([name for name in shown if name in served])
    return [listed, _unknown(shown, are_all=len(shown) == len(members))]


def aliased(member: str, route: gateway.Route) -> gateway.Route:
    """A member's route with the hashes that Envoy knows, and without what is the gateway's."""

    def renamed(backend: gateway.Backend) -> gateway.Backend:
        return backend.model_copy(update={"hash": alias(member, backend.hash)})

    shadow = route.shadow
    return route.model_copy(
        update={
            "backends": tuple(renamed(each) for each in route.backends),
            "default": alias(member, route.default) if route.default else None,
            "native": renamed(route.native) if route.native else None,
            "shadow": shadow.model_copy(update={"hash": alias(member, shadow.hash)})
            if shadow
            else None,
            # These are the gateway's.
            "hosts": (),
            "auth": None,
            "rate_limit": None,
            "allowed_cidrs": (),
            "max_request_body_bytes": None,
        }
    )


def _stamped(cluster: Mapping[str, Any], member: str, revision: str) -> dict[str, Any]:
    """The cluster with whose it is, for the log."""
    said = {**cluster.get("metadata", {}).get("filter_metadata", {})}
    said.pop(CONTENT, None)
    said[MEMBER] = {"name": member, "revision": revision}
    return marked({**cluster, "metadata": {"filter_metadata": said}})


def _named(entry: Mapping[str, Any], said: Mapping[str, str]) -> Entry:
    known = entry.get("metadata", {}).get("filter_metadata", {})
    return {**entry, "metadata": {"filter_metadata": {**known, MEMBER: said}}}


def _absent() -> list[Entry]:
    """Of a member whose route was not seen yet."""
    return [answer({"prefix": "/v1/"}, 503, NO_BACKEND)]


def _by_host(members: Iterable[gateway.Member], own: Mapping[str, list[Entry]]) -> list[Entry]:
    """Exact names before those under a name, longer ones first; the first member has a name."""
    owner: dict[str, str] = {}
    for member in members:
        for host in member.hosts:
            owner.setdefault(host.lower(), member.name)
    order = sorted(owner, key=lambda host: (host.startswith("*"), -len(host), host))
    return [_with_header(entry, _at(host)) for host in order for entry in own[owner[host]]]


def _at(host: str) -> dict[str, Any]:
    """The Host of a request, whatever its case and port."""
    name = re.escape(host.removeprefix("*"))
    start = ".+" if host.startswith("*") else ""
    pattern = {"regex": f"(?i){start}{name}(:[0-9]+)?"}
    return {"name": ":authority", "string_match": {"safe_regex": pattern}}


def _by_path(entry: Mapping[str, Any], name: str) -> Entry:
    match = dict(entry["match"])
    kind = "prefix" if "prefix" in match else "path_separated_prefix"
    rest = match[kind]
    found = {**entry, "match": {**match, kind: f"/{name}{rest}"}}
    if "route" in entry:
        found["route"] = {**entry["route"], "prefix_rewrite": rest}
    return found


def _by_header(entry: Mapping[str, Any], name: str) -> Entry:
    return _with_header(entry, {"name": labels.MODEL_HEADER, "string_match": {"exact": name}})


def _with_header(entry: Mapping[str, Any], header: Mapping[str, Any]) -> Entry:
    match = entry["match"]
    return {**entry, "match": {**match, "headers": [header, *match.get("headers", [])]}}


def _models(names: Iterable[str]) -> Entry:
    """What `GET /v1/models` answers to a request that names none."""
    data = [
        {"id": name, "object": "model", "created": 0, "owned_by": labels.MANAGER} for name in names
    ]
    method = {"name": ":method", "string_match": {"exact": "GET"}}
    match = {"path": "/v1/models", "headers": [method, _unsaid()]}
    return answer(match, 200, json.dumps({"object": "list", "data": data}))


def _unsaid() -> dict[str, Any]:
    return {"name": labels.MODEL_HEADER, "present_match": False}


def _unknown(names: list[str], *, are_all: bool) -> Entry:
    which = "Models here" if are_all else "Models that everybody may ask"
    more = ", …" if len(names) > MOST_NAMED else ""
    message = (
        f"Which model? Name one in the path, /MODEL/v1/…, or in header {labels.MODEL_HEADER}. "
        f"{which}: {', '.join(names[:MOST_NAMED]) or 'none'}{more}."
    )
    return {**answer({"prefix": "/"}, 404, message), "name": UNKNOWN_MODEL}


def _union(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: each for mapping in parts for name, each in mapping.items()}
