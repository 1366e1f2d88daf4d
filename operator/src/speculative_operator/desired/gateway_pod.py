"""What the gateway's fields add to its pods; a pod for which nothing is asked stays as it is.

Only what Envoy's frozen listener needs, or what is mounted, is here: each of
these replaces the gateway's pods. Everything else comes with the route.
"""

from typing import Any, Final

from speculative_api.v1alpha1 import Gateway

KEYS_DIRECTORY: Final = "/etc/gateway/keys"
"""The Secret with the API keys; in the agent's container only."""

TLS_DIRECTORY: Final = "/etc/gateway/tls"
"""The Secret with the users' certificate; in Envoy's container only."""
KEY_SET_DIRECTORY: Final = "/etc/gateway/key-set"
"""The ConfigMap with an issuer's public keys; likewise."""

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


def with_options(pod_spec: dict[str, Any], wanted: Gateway, *, group: int) -> dict[str, Any]:
    """The pod with everything that these fields add; its files are the group's to read."""
    found = pod_spec
    if wanted.rate_limit is not None and wanted.rate_limit.concurrent_requests_per_key:
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
    if wanted.auth is not None and wanted.auth.api_keys_secret is not None:
        # Optional to Kubernetes: without it the agent runs, refuses every request and says
        # why, where a pod that can't start would say nothing.
        secret = {"secretName": wanted.auth.api_keys_secret, "optional": True}
        found = _with_variable(found, "agent", "API_KEYS_DIRECTORY", KEYS_DIRECTORY)
        found = _mounted(found, "agent", "keys", KEYS_DIRECTORY, {"secret": secret}, group)
    if wanted.auth is not None and wanted.auth.jwt is not None and wanted.auth.jwt.jwks_config_map:
        source = {"configMap": {"name": wanted.auth.jwt.jwks_config_map, "optional": True}}
        found = _with_variable(found, "agent", "KEY_SET_DIRECTORY", KEY_SET_DIRECTORY)
        found = _mounted(found, "agent", "key-set", KEY_SET_DIRECTORY, source, group)
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
