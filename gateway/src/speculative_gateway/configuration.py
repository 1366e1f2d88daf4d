"""Pure: what Envoy holds, as values; the way from one to another; their files.

`render` makes a `Configuration`, the agent walks the steps of `plan`, writes
`files` and reads `from_files` back when it starts.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

ROUTES = "routes"
"""Name of the route configuration."""
WEIGHTS_LAYER = "weights"
"""Name of the runtime layer that holds the weights."""
WEIGHT_PREFIX = "rev"
"""A revision's weight is the runtime key `rev.<hash>`."""
RDS_FILE, CDS_FILE, RTDS_FILE = "rds.json", "cds.json", "rtds.json"
ECDS_FILE = "ecds.json"
TOKENS = "speculative.tokens"
"""Name of the filter that asks for tokens."""
WAY = "-way"
"""Suffix of the aggregate cluster that is a revision, and for stable what it falls back to."""
AS_FALLBACK = "-fallback"
"""Suffix of native's second cluster: the same endpoints with a bound on requests of its own."""
WAITING = "waiting"
"""Name of the cluster that is the agent, behind every revision."""
SHADOW = "-shadow"
"""Suffix of the cluster that a revision's copies go to: the same endpoints, counted apart."""
SHADOW_PREFIX = "shadow"
"""Percent of requests that are copied to a cluster: the runtime key `shadow.<cluster>`."""
CONTENT = "speculative.content"
"""Metadata key with a digest of the resource's own content: seeing it in
Envoy's dump proves the content is in use (a version text proves nothing)."""

_TYPE = "type.googleapis.com/"
OFF = {"@type": _TYPE + "envoy.config.route.v3.FilterConfig", "disabled": True}
"""A filter's settings of a route, whatever its kind: it has no part in the request."""
_BOUND = re.compile(r"circuit_breakers\.(.+)\.default\.max_requests")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything dynamic that Envoy holds."""

    assignments: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, Any] = field(default_factory=dict)
    routes: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, Any] = field(default_factory=dict)
    """The filter that asks for tokens."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Most requests in flight, by cluster; in the runtime, since a cluster that changes counts
    its answers anew."""
    copies: Mapping[str, int] = field(default_factory=dict)
    """Percent of the accelerated lane's requests that are copied, by the copies' cluster."""

    def hosts(self, revision: str) -> frozenset[str]:
        """Addresses `ip:port` that a revision's cluster should have."""
        return frozenset(
            "{address}:{port_value}".format(**each["endpoint"]["address"]["socket_address"])
            for locality in self.assignments.get(revision, {}).get("endpoints", [])
            for each in locality["lb_endpoints"]
        )


def watched(path: PurePath) -> dict[str, Any]:
    """Config source that re-reads `path` whenever a file is renamed into its folder."""
    return {
        "path_config_source": {"path": str(path), "watched_directory": {"path": str(path.parent)}},
        "resource_api_version": "V3",
    }


def wrapped(kind: str, *resources: Mapping[str, Any]) -> dict[str, Any]:
    """A discovery response as Envoy reads it from a file."""
    typed = [{"@type": _TYPE + kind, **resource} for resource in resources]
    return {"version_info": digest(typed), "resources": typed}


def digest(content: object) -> str:
    """Twelve hex digits over the canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def marked(resource: dict[str, Any]) -> dict[str, Any]:
    """The resource with the digest of its own content in its metadata."""
    said = resource.get("metadata", {}).get("filter_metadata", {})
    said = {**said, CONTENT: {"digest": digest(resource)}}
    return {**resource, "metadata": {"filter_metadata": said}}


def revision_of(cluster: str) -> str:
    """The revision that a cluster counts for."""
    return cluster.removesuffix(WAY).removesuffix(AS_FALLBACK).removesuffix(SHADOW)


def content_digest(resource: Mapping[str, Any]) -> str:
    """The digest that `marked` put in; empty if it did not."""
    metadata = resource.get("metadata", {}).get("filter_metadata", {})
    found: str = metadata.get(CONTENT, {}).get("digest", "")
    return found


def asks(tokens: Mapping[str, Any]) -> str:
    """The digest of what is asked of tokens; empty where nothing is."""
    named = tokens.get("requirement_map", {})
    return next((name for name in sorted(named) if name.startswith(CONTENT)), "")


def with_providers(tokens: Mapping[str, Any], providers: Mapping[str, Any]) -> dict[str, Any]:
    """The filter that asks for tokens with these, each as a requirement of its name."""
    if not providers:
        return {"@type": tokens["@type"]}
    named = {name: {"provider_name": name} for name in providers}
    # There is no metadata: a requirement that no route names carries the digest.
    mark = f"{CONTENT}.{digest(providers)}"
    required = {**named, mark: {"provider_name": min(providers)}}
    return {"@type": tokens["@type"], "providers": dict(providers), "requirement_map": required}


def _merged(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is asked of tokens while routes may still ask for what was."""
    if not current or not wanted:
        return wanted
    providers = {**current.get("providers", {}), **wanted.get("providers", {})}
    return with_providers(wanted, providers)


def named_clusters(routes: Mapping[str, Any]) -> dict[str, int | None]:
    """Clusters that a route configuration sends to; with their default weight if weighted."""
    found: dict[str, int | None] = {}
    for host in routes.get("virtual_hosts", []):
        for entry in host.get("routes", []):
            action = entry.get("route", {})
            if "cluster" in action:
                found[action["cluster"]] = None
            for weighted in action.get("weighted_clusters", {}).get("clusters", []):
                found[weighted["name"]] = weighted.get("weight", 0)
    return found


def copying_clusters(routes: Mapping[str, Any]) -> frozenset[str]:
    """Clusters that a route configuration may send copies to."""
    return frozenset(
        policy["cluster"]
        for host in routes.get("virtual_hosts", [])
        for entry in host.get("routes", [])
        for policy in entry.get("route", {}).get("request_mirror_policies", [])
    )


def weights_of(layer: Mapping[str, Any]) -> dict[str, int]:
    """The weights among the runtime's keys, by cluster."""
    return _numbers(layer, WEIGHT_PREFIX)


def copies_of(layer: Mapping[str, Any]) -> dict[str, int]:
    """The percentages of copied requests among the runtime's keys, by cluster."""
    return _numbers(layer, SHADOW_PREFIX)


def _numbers(layer: Mapping[str, Any], name: str) -> dict[str, int]:
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): int(value)
        for key, value in layer.items()
        if key.startswith(prefix)
    }


def bounds_of(layer: Mapping[str, Any]) -> dict[str, int]:
    """The bounds on requests in flight among the runtime's keys, by cluster."""
    found = ((_BOUND.fullmatch(key), value) for key, value in layer.items())
    return {match[1]: int(value) for match, value in found if match}


def bound_key(cluster: str) -> str:
    """Envoy reads it for each request, before the cluster's own threshold."""
    return f"circuit_breakers.{cluster}.default.max_requests"


def shares(routes: Mapping[str, Any], weights: Mapping[str, int]) -> dict[str, int]:
    """The weight of each weighted cluster as Envoy computes it: runtime, else the route's own."""
    return {
        name: weights.get(name, default)
        for name, default in named_clusters(routes).items()
        if default is not None
    }


def _starves(routes: Mapping[str, Any], weights: Mapping[str, int]) -> bool:
    """Whether these weights leave one of the weighted routes with nobody to send to."""
    return any(
        sum(weights.get(each["name"], each.get("weight", 0)) for each in weighted["clusters"]) == 0
        for host in routes.get("virtual_hosts", [])
        for entry in host.get("routes", [])
        if (weighted := entry.get("route", {}).get("weighted_clusters"))
    )


def plan(current: Configuration, wanted: Configuration) -> list[Configuration]:
    """Configurations to write and read back one after the other; each changes one kind of file.

    Add: endpoints, bounds, clusters, tokens, route, weights, copies. Remove:
    copies, weights, route, tokens, clusters, bounds, endpoints. Weights go
    before the route as well, unless that would leave an old route with nothing
    to send to. Fewer copies come before everything and more after it, so that
    no revision has copies and users at once.
    """
    fewer = {
        name: min(percent, wanted.copies.get(name, 0)) for name, percent in current.copies.items()
    }
    steps = [replace(current, copies=fewer)]

    def then(**change: Any) -> None:
        steps.append(replace(steps[-1], **change))

    then(assignments={**current.assignments, **wanted.assignments})
    then(bounds={**current.bounds, **wanted.bounds})
    then(clusters={**current.clusters, **wanted.clusters})
    then(tokens=_merged(current.tokens, wanted.tokens))
    merged = {**current.weights, **wanted.weights}
    if not _starves(current.routes, merged):
        then(weights=merged)
    then(routes=wanted.routes)
    then(tokens=wanted.tokens)
    then(weights=wanted.weights)
    then(clusters=wanted.clusters)
    then(bounds=wanted.bounds)
    then(copies=wanted.copies)
    then(assignments=wanted.assignments)
    changed = []
    for previous, step in zip([current, *steps], steps, strict=False):
        if step != previous:
            changed.append(step)
    return changed


def files(configuration: Configuration) -> dict[str, str]:
    """File names and texts; the eds-*.json files are one per cluster."""
    api = "envoy.config."
    contents = {
        f"eds-{revision}.json": wrapped(api + "endpoint.v3.ClusterLoadAssignment", assignment)
        for revision, assignment in configuration.assignments.items()
    }
    contents[CDS_FILE] = wrapped(
        api + "cluster.v3.Cluster",
        *(configuration.clusters[name] for name in sorted(configuration.clusters)),
    )
    contents[RDS_FILE] = wrapped(api + "route.v3.RouteConfiguration", configuration.routes)
    if configuration.tokens:
        contents[ECDS_FILE] = wrapped(
            api + "core.v3.TypedExtensionConfig",
            {"name": TOKENS, "typed_config": configuration.tokens},
        )
    contents[RTDS_FILE] = wrapped(
        "envoy.service.runtime.v3.Runtime",
        {
            "name": WEIGHTS_LAYER,
            "layer": {
                **{
                    f"{WEIGHT_PREFIX}.{name}": weight
                    for name, weight in configuration.weights.items()
                },
                **{bound_key(name): bound for name, bound in configuration.bounds.items()},
                **{
                    f"{SHADOW_PREFIX}.{name}": percent
                    for name, percent in configuration.copies.items()
                },
            },
        },
    )
    # Without indentation: with it, a thousand keys take a tenth of a second at each step.
    return {name: json.dumps(content) + "\n" for name, content in contents.items()}


def from_files(texts: Mapping[str, str]) -> Configuration:
    """Reads back what `files` gave; a missing file counts as empty.

    Raises:
        ValueError: a text is not what `files` writes.
    """
    resources = {name: json.loads(text)["resources"] for name, text in texts.items()}
    for everything in resources.values():
        for resource in everything:
            resource.pop("@type", None)
    routes = resources.get(RDS_FILE) or [{}]
    runtime = resources.get(RTDS_FILE) or [{"layer": {}}]
    found = resources.get(ECDS_FILE) or [{"typed_config": {}}]
    return Configuration(
        tokens=found[0]["typed_config"],
        assignments={
            resource["cluster_name"]: resource
            for name, found in resources.items()
            if name.startswith("eds-")
            for resource in found
        },
        clusters={resource["name"]: resource for resource in resources.get(CDS_FILE, [])},
        routes=routes[0],
        weights=weights_of(runtime[0]["layer"]),
        bounds=bounds_of(runtime[0]["layer"]),
        copies=copies_of(runtime[0]["layer"]),
    )
