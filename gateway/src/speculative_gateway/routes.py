"""Pure: paths, lanes and the weighted choice, as Envoy's route configuration."""

from collections.abc import Mapping
from typing import Any

from speculative_api import gateway, labels

from .configuration import ROUTES, WEIGHT_PREFIX, marked
from .fallback import ANSWERING, destination, native_destination, spare_of
from .keys import Keys
from .lanes import by_rule
from .logs import LANE
from .policies import NO_POLICIES, policies
from .shadow import mirroring
from .waiting import named, with_another_try

NO_LANE = "There is no native lane. Leave out the header " + labels.LANE_HEADER + "."
NO_BACKEND = "No revision is ready to serve yet. Try again later."
NO_HOST = "This host name is not served here."
NOT_FOUND = "Only paths under /v1/ are served here."

_TYPE = "type.googleapis.com/"
_REPLACE = "OVERWRITE_IF_EXISTS_OR_ADD"


Shown = Mapping[str, str]
"""The hash that users are told, by the hash in the route."""
AS_NAMED: Shown = {}


def routes(route: gateway.Route, keys: Keys, shown: Shown = AS_NAMED) -> dict[str, Any]:
    """The route configuration, its first virtual host marked with its digest.

    Host names that are not ours have a second one, which needs no mark: it is
    there whenever the first has names of its own.
    """
    host: dict[str, Any] = {
        "name": "all",
        "domains": list(route.hosts) or ["*"],
        "routes": [*entries(route, shown), answer({"prefix": "/"}, 404, NOT_FOUND)],
        **policies(route, keys),
        **silence(route),
    }
    found: dict[str, Any] = {"name": ROUTES, "validate_clusters": True}
    if not route.hosts:
        return {**found, "virtual_hosts": [marked(host)]}
    others = {
        "name": "others",
        "domains": ["*"],
        "routes": [answer({"prefix": "/"}, 404, NO_HOST)],
        **NO_POLICIES,
    }
    hosts = [marked(host), others]
    return {**found, "ignore_port_in_host_matching": True, "virtual_hosts": hosts}


def entries(route: gateway.Route, shown: Shown) -> list[dict[str, Any]]:
    """Everything under `/v1/`, in order: who names the native lane, the rules, the rest."""
    lane = {
        "headers": [{"name": labels.LANE_HEADER, "string_match": {"exact": "native"}}],
        "prefix": "/v1/",
    }
    if route.native is None:
        native = answer(lane, 503, NO_LANE)
    else:
        native = _towards(lane, route, {"cluster": native_destination(route, route.native)})
        native.update(named(route, route.native.hash))
        known = shown.get(route.native.hash, route.native.hash)
        told = ANSWERING if route.waiting is not None else known
        native["response_headers_to_add"] = _told(route, labels.REVISION_HEADER, told)
    main = {"prefix": "/v1/"}
    if route.backends:
        accelerated = _towards(
            main,
            route,
            {"weighted_clusters": _split(route, shown), **_stickiness(route), **mirroring(route)},
        )
    else:
        accelerated = answer(main, 503, NO_BACKEND)
    native = _in_lane("native", native, route)
    accelerated = _in_lane("accelerated", accelerated, route)
    return [native, *by_rule(route, native=native, accelerated=accelerated), accelerated]


def silence(route: gateway.Route) -> dict[str, Any]:
    """Headers that a route keeps to itself; a worker must not say them either."""
    if route.revision_headers:
        return {}
    return {"response_headers_to_remove": [labels.REVISION_HEADER, labels.LANE_HEADER]}


def _split(route: gateway.Route, shown: Shown) -> dict[str, Any]:
    """The weighted route. These weights only count should the runtime ones be lost."""
    default = route.default or route.backends[0].hash
    return {
        "runtime_key_prefix": WEIGHT_PREFIX,
        # The choice is hash modulo 100: with the order and the total fixed, a session
        # that is on the second backend stays there while its weight grows (measured).
        **({"use_hash_policy": True} if route.affinity else {}),
        "clusters": [
            {
                "name": name,
                "weight": 100 if backend.hash == default else 0,
                "response_headers_to_add": _told(
                    route,
                    labels.REVISION_HEADER,
                    shown.get(backend.hash, backend.hash) if name == backend.hash else ANSWERING,
                ),
                **named(route, backend.hash),
            }
            for backend in route.backends
            for name in [destination(route, backend)]
        ],
    }


def _stickiness(route: gateway.Route) -> dict[str, Any]:
    if route.affinity is None:
        return {}
    salted = {"pattern": {"regex": "^"}, "substitution": route.affinity.salt}
    header = {"header_name": route.affinity.header, "regex_rewrite": salted}
    return {"hash_policy": [{"header": header, "terminal": True}]}


def _in_lane(lane: str, entry: dict[str, Any], route: gateway.Route) -> dict[str, Any]:
    """The entry with its lane's name, for the log, the figures and the client."""
    told = [*entry.get("response_headers_to_add", []), *_told(route, labels.LANE_HEADER, lane)]
    return {
        **entry,
        "metadata": {"filter_metadata": {LANE: {"name": lane}}},
        "response_headers_to_add": told,
    }


def _told(route: gateway.Route, header: str, value: str) -> list[dict[str, Any]]:
    """A header of the answer, unless the route keeps such things to itself."""
    if not route.revision_headers:
        return []
    return [{"header": {"key": header, "value": value}, "append_action": _REPLACE}]


def _towards(
    match: Mapping[str, Any], route: gateway.Route, target: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "match": match,
        "route": {
            **target,
            "timeout": f"{route.timeouts.request_seconds}s",
            "idle_timeout": f"{route.timeouts.idle_seconds}s",
            "retry_policy": _retries(route),
        },
    }


def _retries(route: gateway.Route) -> dict[str, Any]:
    """Only what the upstream cannot have begun to answer.

    `5xx` or `reset` made three generations out of one (measured).
    """
    retries = {
        "retry_on": "connect-failure,refused-stream,reset-before-request",
        "num_retries": 3,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": _TYPE + "envoy.extensions.retry.host.previous_hosts.v3."
                    "PreviousHostsPredicate"
                },
            }
        ],
        "host_selection_retry_max_attempts": 3,
    }
    if spare_of(route) is not None:
        # From an endpoint of stable that refuses to one of native.
        retries["retry_priority"] = {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": _TYPE + "envoy.extensions.retry.priority.previous_priorities.v3."
                "PreviousPrioritiesConfig",
                "update_frequency": 1,
            },
        }
    return with_another_try(retries) if route.waiting is not None else retries


def answer(match: Mapping[str, Any], status: int, message: str) -> dict[str, Any]:
    """The gateway's own; the listener turns the message into JSON."""
    return {
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": message}},
    }
