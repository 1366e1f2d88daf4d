"""Envoy's admin interface, read only: what it really uses, as values.

Every call is one GET on loopback with a short timeout; the agent calls it to
verify a write and to answer `/state`. Nothing here changes Envoy.
"""

import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from .configuration import (
    TOKENS,
    Configuration,
    asks,
    bounds_of,
    content_digest,
    copies_of,
    shares,
    weights_of,
)
from .errors import EnvoySlow, EnvoyUnreachable

TIMEOUT_SECONDS = 2.0
_REVISION_STATISTICS = (
    r"/stats?format=json&filter=^(cluster\.[0-9a-f]{10}\.upstream_rq_(pending_)?active"
    r"|cluster\.[0-9a-f]{10}-shadow\.upstream_"
    r"(rq_((pending_)?active(_overflow)?|pending_overflow|[2-5]xx)"
    r"|cx_destroy_remote_with_active_rq)"
    r"|speculative\.answers\.revision\.[0-9a-f]{10}\..*)$"
)
_FIGURES = (
    r"/stats/prometheus?usedonly&filter=^speculative\."
    r"(first_byte_milliseconds|duration_milliseconds|(prompt|completion)_tokens)"
)
_REJECTIONS = r"/stats?format=json&filter=\.update_(rejected|failure)$"
_UNHEALTHY = ("failed_active_health_check", "failed_outlier_check", "pending_dynamic_removal")


@dataclass(frozen=True, slots=True)
class Host:
    """One endpoint of a cluster as Envoy sees it."""

    address: str
    """`ip:port`."""
    healthy: bool


@dataclass(frozen=True, slots=True)
class Life:
    """Which life of Envoy answered."""

    started_at: float
    """Unix seconds; every counter starts at 0 here."""
    draining: bool


class Admin:
    """A client of one Envoy's admin interface."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._base = f"http://127.0.0.1:{port}"

    async def life(self) -> Life:
        """Start time and draining state.

        Raises:
            EnvoyUnreachable: no answer, like every method of this class.
        """
        info = await self._json("/server_info")
        _, _, started_at = info["command_line_options"]["service_node"].rpartition("@")
        return Life(started_at=float(started_at), draining=info["state"] == "DRAINING")

    async def runtime(self) -> dict[str, str]:
        """Final value of every runtime key."""
        entries = (await self._json("/runtime")).get("entries", {})
        return {key: entry["final_value"] for key, entry in entries.items()}

    async def routes(self) -> dict[str, Any]:
        """The route configuration in use; empty before the first."""
        dump = await self._json("/config_dump?resource=dynamic_route_configs")
        for each in dump.get("configs", []):
            if "route_config" in each:
                found: dict[str, Any] = each["route_config"]
                return found
        return {}

    async def tokens(self) -> dict[str, Any]:
        """The filter that asks for tokens as it is in use; empty before the first."""
        dump = await self._json("/config_dump?resource=ecds_filters")
        for each in dump.get("configs", []):
            if each.get("ecds_filter", {}).get("name") == TOKENS:
                found: dict[str, Any] = each["ecds_filter"]["typed_config"]
                return found
        return {}

    async def certificates(self) -> int:
        """How many certificates the listener has loaded."""
        found = (await self._json("/certs")).get("certificates", [])
        return sum(len(each.get("cert_chain", [])) for each in found)

    async def cluster_digests(self) -> dict[str, str]:
        """Content digest of every warmed cluster."""
        dump = await self._json("/config_dump?resource=dynamic_active_clusters")
        return {
            each["cluster"]["name"]: content_digest(each["cluster"])
            for each in dump.get("configs", [])
        }

    async def hosts(self) -> dict[str, tuple[Host, ...]]:
        """Endpoints of every cluster that can take requests."""
        statuses = (await self._json("/clusters?format=json")).get("cluster_statuses", [])
        return {
            each["name"]: tuple(_host(host) for host in each.get("host_statuses", []))
            for each in statuses
        }

    async def statistics(self) -> dict[str, int]:
        """Requests in flight and answers of the revisions."""
        return await self._statistics(_REVISION_STATISTICS)

    async def figures(self) -> str:
        """Times and tokens by revision and lane, in Prometheus' text format."""
        return await self._text(_FIGURES)

    async def rejections(self) -> dict[str, int]:
        """How often Envoy has refused a file, by kind of file."""
        return await self._statistics(_REJECTIONS)

    async def _statistics(self, path: str) -> dict[str, int]:
        found = (await self._json(path)).get("stats", [])
        return {each["name"]: int(each["value"]) for each in found if "value" in each}

    async def _json(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._text(path))
        return answer

    async def _text(self, path: str) -> str:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with self._session.get(self._base + path, timeout=timeout) as response:
                text = await response.text()
                if response.status != 200:
                    raise EnvoyUnreachable(f"admin {path}: status {response.status}")
        except TimeoutError as error:
            raise EnvoySlow(f"admin {path}: no answer in {TIMEOUT_SECONDS:.0f} s") from error
        except aiohttp.ClientError as error:
            raise EnvoyUnreachable(f"admin {path}: {error!r}") from error
        return text


def _host(status: dict[str, Any]) -> Host:
    address = status["address"]["socket_address"]
    health = status.get("health_status", {})
    return Host(
        address=f"{address['address']}:{address['port_value']}",
        healthy=health.get("eds_health_status", "HEALTHY") == "HEALTHY"
        and not any(health.get(flag) for flag in _UNHEALTHY),
    )


async def differences(
    admin: Admin, wanted: Configuration, *, known: Configuration
) -> tuple[str, ...]:
    """What Envoy does not use of `wanted` yet; empty when it uses all of it.

    Compares content, never version texts: an empty file moves the version and
    changes nothing. Endpoints are compared for the clusters `known` to be in
    use; a cluster that is only being added has none to show yet.
    """
    found: list[str] = []
    runtime, routes = await admin.runtime(), await admin.routes()
    weights, bounds = weights_of(runtime), bounds_of(runtime)
    if content_digest_of_routes(routes) != content_digest_of_routes(wanted.routes):
        found.append("routes differ")
    elif (used := shares(routes, weights)) != (asked := shares(wanted.routes, wanted.weights)):
        found.append(f"weights are {used}, need {asked}")
    if wanted.tokens and asks(await admin.tokens()) != asks(wanted.tokens):
        found.append("what is asked of tokens differs")
    if bounds != wanted.bounds:
        found.append(f"bounds are {bounds}, need {dict(wanted.bounds)}")
    if (copies := copies_of(runtime)) != wanted.copies:
        found.append(f"copied percentages are {copies}, need {dict(wanted.copies)}")
    digests = await admin.cluster_digests()
    asked_digests = {name: content_digest(each) for name, each in wanted.clusters.items()}
    if digests != asked_digests:
        names = {name for name, _ in digests.items() ^ asked_digests.items()}
        found.append(f"clusters differ: {', '.join(sorted(names))}")
    hosts = await admin.hosts()
    for name in sorted(digests.keys() & known.clusters.keys() & wanted.assignments.keys()):
        addresses = {host.address for host in hosts.get(name, ())}
        if addresses != wanted.hosts(name):
            found.append(f"endpoints of {name} differ")
    return tuple(found)


def content_digest_of_routes(routes: Any) -> str:
    """The digest carried by the first virtual host; empty without one."""
    hosts = routes.get("virtual_hosts", [])
    return content_digest(hosts[0]) if hosts else ""
