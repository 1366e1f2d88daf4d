"""What the gateway's fields add to its pods; a pod for which nothing is asked stays as it is.

Only what Envoy's frozen listener needs, or what is mounted, is here: each of
these replaces the gateway's pods. Everything else comes with the route.
"""

from collections.abc import Sequence
from typing import Any, Final

from speculative_api.v1alpha1 import Auth, Gateway

KEYS_DIRECTORY: Final = "/etc/gateway/keys"
"""The Secret with the API keys, of several each in a folder of its name; in the agent's container
only."""

TLS_DIRECTORY: Final = "/etc/gateway/tls"
"""The Secret with the users' certificate; in Envoy's container only."""
KEY_SET_DIRECTORY: Final = "/etc/gateway/key-set"
"""The ConfigMap with an issuer's public keys, or several; likewise."""

AUTHORITIES_DIRECTORY: Final = "/etc/gateway/authorities"
"""A folder for each Secret that vouches for engines; in Envoy's container only."""


def with_authorities(
    pod_spec: dict[str, Any], names: tuple[str, ...], *, group: int
) -> dict[str, Any]:
    """The pod with `ca.crt` of these Secrets, and nothing else of them."""
    found = pod_spec
    for container in ("envoy", "agent") if names else ():
        # The agent only has to know what is there.
        found = _with_variable(found, container, "AUTHORITIES", ",".join(names))
    for number, name in enumerate(names):
        source = {"secret": {"secretName": name, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
        path = f"{AUTHORITIES_DIRECTORY}/{name}"
        found = _mounted(found, "envoy", f"authority-{number}", path, source, group)
    return found


def with_options(
    pod_spec: dict[str, Any], wanted: Gateway, accesses: tuple[Gateway, ...], *, group: int
) -> dict[str, Any]:
    """The pod with everything that these fields add; its files are the group's to read.

    Args:
        accesses: whose `auth` and `rateLimit` count.
    """
    found = pod_spec
    limits = [each.rate_limit for each in accesses if each.rate_limit is not None]
    if any(each.concurrent_requests_per_key for each in limits):
        # Counts are one per thread.
        found = _with_variable(found, "envoy", "CONCURRENCY", "1")
    if wanted.trusted_proxy_hops:
        hops = str(wanted.trusted_proxy_hops)
        found = _with_variable(found, "envoy", "TRUSTED_PROXY_HOPS", hops)
    if wanted.tls is not None:
        found = _with_variable(found, "envoy", "TLS_MINIMUM", wanted.tls.min_version)
        # The agent only has to know that there must be one.
        for container in ("envoy", "agent"):
            found = _with_variable(found, container, "TLS_DIRECTORY", TLS_DIRECTORY)
        source: dict[str, Any] = {"secret": {"secretName": wanted.tls.secret_name}}
        found = _mounted(found, "envoy", "tls", TLS_DIRECTORY, source, group)
    return _with_credentials(found, [each.auth for each in accesses if each.auth], group=group)


def _with_credentials(
    pod_spec: dict[str, Any], auths: Sequence[Auth], *, group: int
) -> dict[str, Any]:
    """The pod with the Secrets and ConfigMaps that say who is let in.

    They are optional to Kubernetes: without one the agent runs, refuses every request that
    needs it and says why, where a pod that can't start would say nothing.
    """
    named = [each.api_keys_secret for each in auths if each.api_keys_secret]
    secrets = {
        name: {"secret": {"secretName": name, "optional": True}} for name in sorted({*named})
    }
    issued = [each.jwt.jwks_config_map for each in auths if each.jwt and each.jwt.jwks_config_map]
    key_sets = {name: {"configMap": {"name": name, "optional": True}} for name in sorted({*issued})}
    found = _with_sources(pod_spec, "keys", "API_KEYS", KEYS_DIRECTORY, secrets, group)
    return _with_sources(found, "key-set", "KEY_SET", KEY_SET_DIRECTORY, key_sets, group)


def _with_sources(
    pod_spec: dict[str, Any],
    volume: str,
    variable: str,
    folder: str,
    sources: dict[str, dict[str, Any]],
    group: int,
) -> dict[str, Any]:
    """The pod with these mounted for the agent: a lone one in the folder, others below it."""
    if not sources:
        return pod_spec
    found = _with_variable(pod_spec, "agent", f"{variable}_DIRECTORY", folder)
    if len(sources) == 1:
        (source,) = sources.values()
        return _mounted(found, "agent", volume, folder, source, group)
    found = _with_variable(found, "agent", f"{variable}_NAMES", ",".join(sources))
    for number, (name, source) in enumerate(sources.items()):
        found = _mounted(found, "agent", f"{volume}-{number}", f"{folder}/{name}", source, group)
    return found


def _with_variable(
    pod_spec: dict[str, Any], container: str, name: str, value: str
) -> dict[str, Any]:
    return _extended(pod_spec, container, env=[{"name": name, "value": value}])


def _mounted(
    pod_spec: dict[str, Any],
    container: str,
    name: str,
    path: str,
    source: dict[str, dict[str, Any]],
    group: int,
) -> dict[str, Any]:
    """The pod with a volume of files that only the group may read, in one container."""
    volume = {"name": name, **{kind: {**it, "defaultMode": 0o440} for kind, it in source.items()}}
    mount = {"name": name, "mountPath": path, "readOnly": True}
    return {
        **_extended(pod_spec, container, volumeMounts=[mount]),
        "securityContext": {**pod_spec["securityContext"], "fsGroup": group},
        "volumes": [*pod_spec["volumes"], volume],
    }


def _extended(
    pod_spec: dict[str, Any], container: str, **more: list[dict[str, Any]]
) -> dict[str, Any]:
    containers = [
        {**each, **{key: [*each[key], *added] for key, added in more.items()}}
        if each["name"] == container
        else each
        for each in pod_spec["containers"]
    ]
    return {**pod_spec, "containers": containers}
