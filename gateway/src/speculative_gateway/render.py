"""Pure: a route and its endpoints become Envoy's dynamic files.

`rendered` turns what the operator and Kubernetes say into a `Configuration`;
the agent calls it. The traps and figures behind the choices were measured on
Envoy 1.40; `docs/gateway.md` lists them.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from speculative_api import gateway, labels

from .configuration import ROUTES, WEIGHT_PREFIX, Configuration, marked, watched
from .errors import RouteRefused
from .keys import Keys
from .policies import policies

UPSTREAM_IDLE_SECONDS = 4
"""Below the 5 s keep-alive of vLLM's server: reusing a connection that the
server is about to close is an error that must not be retried."""
NO_LANE = "There is no native lane. Leave out the header " + labels.LANE_HEADER + "."
NO_BACKEND = "No revision is ready to serve yet. Try again later."
NOT_FOUND = "Only paths under /v1/ are served here."

NO_KEYS = Keys()

_TYPE = "type.googleapis.com/"
_UNLIMITED = 1_000_000
_REPLACE = "OVERWRITE_IF_EXISTS_OR_ADD"


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One ready worker."""

    address: str
    port: int = labels.ENGINE_PORT
    health_port: int = labels.WORKER_PORT
    """Where the worker answers `/readyz`."""


Endpoints = Mapping[str, tuple[Endpoint, ...]]
"""Ready endpoints by Service name."""


def rendered(
    route: gateway.Route, endpoints: Endpoints, *, folder: PurePath, keys: Keys = NO_KEYS
) -> Configuration:
    """What Envoy should hold for this route, its files lying in `folder`.

    A route with `auth` and no keys lets nobody in.

    Raises:
        RouteRefused: an endpoint is not an IP address with sane ports, or the
            native lane and a backend are the same revision.
    """
    revisions = list(route.backends)
    if route.native is not None:
        if any(backend.hash == route.native.hash for backend in revisions):
            raise RouteRefused(f"native: {route.native.hash} is among the backends too")
        revisions.append(route.native)
    return Configuration(
        assignments={
            each.hash: _assignment(each.hash, endpoints.get(each.service, ())) for each in revisions
        },
        clusters={
            each.hash: _cluster(each.hash, folder, eject=index == 0)
            for index, each in enumerate(revisions)
        },
        routes=_routes(route, keys),
        weights={backend.hash: backend.weight for backend in route.backends},
    )


def empty() -> Configuration:
    """Before the first route: every request is answered 503."""
    route = gateway.Route(owner_uid="", sequence=0, model="")
    return rendered(route, {}, folder=PurePath())


def _assignment(revision: str, endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    return {
        "cluster_name": revision,
        "endpoints": [
            {"lb_endpoints": [_endpoint(revision, each) for each in sorted(set(endpoints))]}
        ],
    }


def _endpoint(revision: str, endpoint: Endpoint) -> dict[str, Any]:
    try:
        ipaddress.ip_address(endpoint.address)
    except ValueError:
        raise RouteRefused(
            f"endpoint of {revision}: {endpoint.address!r} is not an IP address"
        ) from None
    for port in (endpoint.port, endpoint.health_port):
        if not 0 < port < 65536:
            raise RouteRefused(f"endpoint of {revision}: port {port} is out of range")
    return {
        "endpoint": {
            "address": {
                "socket_address": {"address": endpoint.address, "port_value": endpoint.port}
            },
            "health_check_config": {"port_value": endpoint.health_port},
        }
    }


def _cluster(revision: str, folder: PurePath, *, eject: bool) -> dict[str, Any]:
    """One revision's cluster; its endpoints come from its own file.

    `eject` (stable only) keeps an endpoint that refuses connections out for a
    few seconds. A canary never ejects: that would hide what is being judged.
    """
    cluster: dict[str, Any] = {
        "name": revision,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": watched(folder / f"eds-{revision}.json")},
        "connect_timeout": "2s",
        "lb_policy": "LEAST_REQUEST",
        # Without it, membership changes wait up to a second.
        "common_lb_config": {"update_merge_window": "0s", "healthy_panic_threshold": {"value": 0}},
        # Without it, a removed endpoint keeps its traffic while its probe passes.
        "ignore_health_on_host_removal": True,
        "health_checks": [
            {
                # A worker on a busy node may answer late; a dead one refuses at once.
                "timeout": "5s",
                "interval": "1s",
                # The default probes a cluster without traffic once a minute.
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 3,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/readyz"},
            }
        ],
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": _UNLIMITED,
                    "max_pending_requests": _UNLIMITED,
                    "max_requests": _UNLIMITED,
                    "max_retries": 1024,
                }
            ]
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _TYPE + "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "common_http_protocol_options": {"idle_timeout": f"{UPSTREAM_IDLE_SECONDS}s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
    }
    if eject:
        cluster["outlier_detection"] = {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 1,
            "enforcing_consecutive_local_origin_failure": 100,
            "enforcing_local_origin_success_rate": 0,
            "enforcing_consecutive_5xx": 0,
            "enforcing_consecutive_gateway_failure": 0,
            "enforcing_success_rate": 0,
            # Never the last one: there is no lane to fall back to.
            "max_ejection_percent": 50,
            "interval": "1s",
            "base_ejection_time": "5s",
            "max_ejection_time": "10s",
        }
    return marked(cluster)


def _routes(route: gateway.Route, keys: Keys) -> dict[str, Any]:
    lane = {
        "headers": [{"name": labels.LANE_HEADER, "string_match": {"exact": "native"}}],
        "prefix": "/v1/",
    }
    if route.native is None:
        native = _answer(lane, 503, NO_LANE)
    else:
        native = _towards(lane, route, {"cluster": route.native.hash})
        native["response_headers_to_add"] = [_revision_header(route.native.hash)]
    main = {"prefix": "/v1/"}
    if route.backends:
        accelerated = _towards(main, route, {"weighted_clusters": _split(route)})
    else:
        accelerated = _answer(main, 503, NO_BACKEND)
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [native, accelerated, _answer({"prefix": "/"}, 404, NOT_FOUND)],
        **policies(route, keys),
    }
    return {"name": ROUTES, "validate_clusters": True, "virtual_hosts": [marked(host)]}


def _split(route: gateway.Route) -> dict[str, Any]:
    """The weighted route. These weights only count should the runtime ones be lost."""
    default = route.default or route.backends[0].hash
    return {
        "runtime_key_prefix": WEIGHT_PREFIX,
        "clusters": [
            {
                "name": backend.hash,
                "weight": 100 if backend.hash == default else 0,
                "response_headers_to_add": [_revision_header(backend.hash)],
            }
            for backend in route.backends
        ],
    }


def _revision_header(revision: str) -> dict[str, Any]:
    return {
        "header": {"key": labels.REVISION_HEADER, "value": revision},
        "append_action": _REPLACE,
    }


def _towards(
    match: Mapping[str, Any], route: gateway.Route, destination: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "match": match,
        "route": {
            **destination,
            "timeout": f"{route.timeouts.request_seconds}s",
            "idle_timeout": f"{route.timeouts.idle_seconds}s",
            # Only what the upstream cannot have begun to answer: `5xx` or `reset`
            # made three generations out of one (measured).
            "retry_policy": {
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
            },
        },
    }


def _answer(match: Mapping[str, Any], status: int, message: str) -> dict[str, Any]:
    """The listener turns the message into JSON."""
    return {
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": message}},
    }
