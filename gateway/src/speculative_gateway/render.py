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

from .configuration import (
    SHADOW,
    WAITING,
    WAY,
    Configuration,
    marked,
    revision_of,
    watched,
)
from .errors import RouteRefused
from .fallback import ANSWERED, destination, has_ways, spare_of, ways
from .keys import Keys
from .routes import AS_NAMED, Shown, routes
from .shadow import COPIED_BODY_BYTES, bounds, copied_to, copies
from .tokens import REQUIREMENT, KeySet, tokens
from .upstream_tls import PROBE, encrypted
from .waiting import waiting_cluster

UPSTREAM_IDLE_SECONDS = 4
"""Below the 5 s keep-alive of vLLM's server: reusing a connection that the
server is about to close is an error that must not be retried."""

NO_KEYS = Keys()
NO_KEY_SET = KeySet()

_TYPE = "type.googleapis.com/"
_UNLIMITED = 1_000_000


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
    route: gateway.Route,
    endpoints: Endpoints,
    *,
    folder: PurePath,
    keys: Keys = NO_KEYS,
    key_set: KeySet = NO_KEY_SET,
    waiting_port: int = labels.WAITING_PORT,
    shown: Shown = AS_NAMED,
) -> Configuration:
    """What Envoy should hold for this route, its files lying in `folder`.

    A route with `auth` and no keys, or no key set for its tokens, lets nobody in.
    `shown` has the revisions that users are told another hash of than the route's.

    Raises:
        RouteRefused: an endpoint is not an IP address with sane ports.
    """
    revisions = list(route.backends)
    # It may have a part of the accelerated lane too: the same pods, the same cluster.
    if route.native is not None and route.native.hash not in {each.hash for each in revisions}:
        revisions.append(route.native)
    used = _Used(endpoints, folder, shown)
    for index, each in enumerate(revisions):
        used.add(each.hash, each, eject=50 if index == 0 else 0)
    if (copied := copied_to(route)) is not None:
        used.add(copied.hash + SHADOW, copied, eject=0)
    if (spare := spare_of(route)) is not None:
        ready = len(endpoints.get(spare.native.service, ()))
        most = max(1, spare.per_endpoint * ready)
        used.add(spare.cluster, spare.native, eject=100, most_requests=most)
        # With a lane to fall back to, even the last endpoint may be set aside.
        used.add(route.backends[0].hash, route.backends[0], eject=100)
    return Configuration(
        assignments=used.assignments,
        clusters=used.clusters | _last_resorts(route, waiting_port),
        routes=routes(route, keys, shown),
        weights={destination(route, backend): backend.weight for backend in route.backends},
        tokens=tokens({REQUIREMENT: (route.auth.jwt, key_set)})
        if route.auth and route.auth.jwt
        else tokens({}),
        bounds={
            each.hash: each.requests_per_endpoint * max(1, len(endpoints.get(each.service, ())))
            for each in revisions
            if each.requests_per_endpoint is not None
        }
        | bounds(route),
        copies=copies(route),
    )


class _Used:
    """Clusters of workers, each with its endpoints."""

    def __init__(self, endpoints: Endpoints, folder: PurePath, shown: Shown) -> None:
        self._endpoints, self._folder, self._shown = endpoints, folder, shown
        self.assignments: dict[str, dict[str, Any]] = {}
        self.clusters: dict[str, dict[str, Any]] = {}

    def add(
        self, name: str, backend: gateway.Backend, *, eject: int, most_requests: int = _UNLIMITED
    ) -> None:
        """A cluster of this backend's workers; the last one of a name counts."""
        ready = self._endpoints.get(backend.service, ())
        revision = self._shown.get(backend.hash, backend.hash)
        self.assignments[name] = _assignment(name, revision, ready)
        self.clusters[name] = _cluster(
            name, self._folder, eject=eject, most_requests=most_requests, tls=backend.tls
        )


def _last_resorts(route: gateway.Route, waiting_port: int) -> dict[str, dict[str, Any]]:
    """Aggregates of what stands behind a revision, and the agent as the last of it."""
    found = {}
    if has_ways(route):
        last = [WAITING] if route.waiting is not None else []
        for revision, members in ways(route).items():
            found[revision + WAY] = _way(revision, [*members, *last])
    if route.waiting is not None:
        found[WAITING] = waiting_cluster(waiting_port)
    return found


def empty() -> Configuration:
    """Before the first route: every request is answered 503."""
    route = gateway.Route(owner_uid="", sequence=0, model="")
    return rendered(route, {}, folder=PurePath())


def _assignment(cluster: str, revision: str, endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    return {
        "cluster_name": cluster,
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
        },
        # Says who answered where a cluster holds two revisions.
        "metadata": {"filter_metadata": {ANSWERED: {"revision": revision}}},
    }


def _cluster(
    name: str,
    folder: PurePath,
    *,
    eject: int,
    most_requests: int = _UNLIMITED,
    tls: gateway.BackendTls | None = None,
) -> dict[str, Any]:
    """One revision's cluster; its endpoints come from its own file.

    `eject` is the percentage of endpoints that may be set aside for a few
    seconds for refusing connections. A canary never ejects: that would hide
    what is being judged.
    """
    cluster: dict[str, Any] = {
        "name": name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": watched(folder / f"eds-{name}.json")},
        "connect_timeout": "2s",
        "lb_policy": "LEAST_REQUEST",
        # Without it, membership changes wait up to a second.
        "common_lb_config": {"update_merge_window": "0s", "healthy_panic_threshold": {"value": 0}},
        # Without it, a removed endpoint keeps its traffic while its probe passes.
        "ignore_health_on_host_removal": True,
        "health_checks": [_probe(encrypted_engine=tls is not None)],
        **encrypted(tls, folder),
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": _UNLIMITED,
                    "max_pending_requests": _UNLIMITED,
                    "max_requests": most_requests,
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
    if name.endswith(SHADOW):
        # A canary that does not read its copies' bodies must not hold users' uploads back.
        cluster["per_connection_buffer_limit_bytes"] = COPIED_BODY_BYTES
    elif (revision := revision_of(name)) != name:
        # Its requests are the revision's, in every counter and log line.
        cluster["alt_stat_name"] = revision
    if eject:
        cluster["outlier_detection"] = _ejection(eject)
    return marked(cluster)


def _probe(*, encrypted_engine: bool) -> dict[str, Any]:
    return {
        **({"transport_socket_match_criteria": PROBE} if encrypted_engine else {}),
        # A worker on a busy node may answer late; a dead one refuses at once.
        "timeout": "5s",
        "interval": "1s",
        # The default probes a cluster without traffic once a minute.
        "no_traffic_interval": "1s",
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/readyz"},
    }


def _ejection(percent: int) -> dict[str, Any]:
    """For refused connections only: what a worker answers says nothing about reaching it."""
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 1,
        "enforcing_consecutive_local_origin_failure": 100,
        "enforcing_local_origin_success_rate": 0,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        # 50 percent never takes the last one.
        "max_ejection_percent": percent,
        **({"always_eject_one_host": True} if percent == 100 else {}),
        "interval": "1s",
        "base_ejection_time": "5s",
        "max_ejection_time": "10s",
    }


def _way(revision: str, members: list[str]) -> dict[str, Any]:
    """The first member, or the next while that has no healthy endpoint."""
    return marked(
        {
            "name": revision + WAY,
            # Answers are counted by the aggregate, requests in flight by its member (measured).
            "alt_stat_name": revision,
            "connect_timeout": "2s",
            "lb_policy": "CLUSTER_PROVIDED",
            "cluster_type": {
                "name": "envoy.clusters.aggregate",
                "typed_config": {
                    "@type": _TYPE + "envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                    "clusters": members,
                },
            },
            "circuit_breakers": {"thresholds": [{"max_retries": 1024}]},
        }
    )
