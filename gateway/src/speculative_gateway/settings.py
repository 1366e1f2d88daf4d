"""What both commands read from the environment, once, at start.

`Settings.from_environment` is called by `__main__`; everything else gets the
frozen result. Ports are settings only so that several gateways can share one
host (tests, a loopback run); in a pod they keep the contract's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from speculative_api import labels


@dataclass(frozen=True, slots=True)
class Settings:
    """One gateway pod."""

    directory: Path = Path("/run/gateway")
    """Folder that the supervisor and the agent share; a memory volume in a pod."""
    pod: str = ""
    """Name of the pod, shown in `/state`."""
    namespace: str = ""
    """Namespace of the route's ConfigMap and of the workers."""
    route_config_map: str = ""
    """Name of the ConfigMap that holds the route."""
    name: str = ""
    """Name of the SpeculativeDeployment; selects the EndpointSlices."""
    shared_gateway: str = ""
    """Name of this gateway where it has members; empty: it belongs to `name` alone. Then
    `route_config_map` holds what belongs to the gateway, and each member has a route's own."""
    api_keys_directory: Path | None = None
    """Where the Secret with the API keys is mounted; None where there is none."""
    api_keys_names: tuple[str, ...] = ()
    """At a shared gateway with several such Secrets: their names, each a folder's below it."""
    key_set_directory: Path | None = None
    """Where the ConfigMap with the issuer's public keys is mounted; None where there is none."""
    key_set_names: tuple[str, ...] = ()
    """Likewise of several ConfigMaps."""
    listen_address: str = "0.0.0.0"  # noqa: S104 - a gateway is there to be reached
    """Address of the users' listener and of the agent."""
    gateway_port: int = labels.GATEWAY_PORT
    admin_port: int = labels.ENVOY_ADMIN_PORT
    """Envoy's admin interface, always on 127.0.0.1."""
    agent_port: int = labels.AGENT_PORT
    waiting_port: int = labels.WAITING_PORT
    """Where the agent takes requests that find no worker, always on 127.0.0.1."""
    concurrency: int = 2
    """Envoy's worker threads."""
    tls_directory: Path | None = None
    """Where the users' certificate is mounted (`tls.crt`, `tls.key`); None: plain HTTP."""
    tls_minimum: str = "1.2"
    """Lowest TLS version, 1.2 or 1.3."""
    authorities_directory: Path = Path("/etc/gateway/authorities")
    """Holds a folder with `ca.crt` for each of `authorities`; Envoy's container only."""
    authorities: tuple[str, ...] = ()
    """Names of the Secrets that vouch for engines."""
    trusted_proxy_hops: int = 0
    """Proxies in front that add the address they saw to x-forwarded-for."""
    headers_seconds: float = 30
    """A request's headers must have arrived by then."""
    request_seconds: float = 300
    """A whole request must have arrived by then, its body included; answers are not meant."""
    drain_seconds: int = 120
    """The pod's grace period. Envoy is told to stop 10 seconds before it ends, or as soon as the
    drain time of the route is over."""
    drain_minimum_seconds: float = 5.0
    """Serve at least this long after SIGTERM, so that kube-proxy and load
    balancers stop sending before the listener goes away."""

    @property
    def xds(self) -> Path:
        """Folder of the dynamic files; Envoy watches it."""
        return self.directory / "xds"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Reads the settings; an absent variable keeps the default.

        Raises:
            ValueError: a number is not one; the message names the variable.
        """

        default = cls()

        def number(name: str, fallback: float) -> float:
            text = environment.get(name, "")
            try:
                return float(text) if text else fallback
            except ValueError:
                raise ValueError(f"{name}: {text!r} is not a number") from None

        def names(variable: str) -> tuple[str, ...]:
            return tuple(name for name in environment.get(variable, "").split(",") if name)

        return cls(
            directory=Path(environment.get("GATEWAY_DIRECTORY") or default.directory),
            pod=environment.get("POD_NAME", ""),
            namespace=environment.get("NAMESPACE", ""),
            route_config_map=environment.get("ROUTE_CONFIGMAP", ""),
            name=environment.get("SD_NAME", ""),
            shared_gateway=environment.get("SHARED_GATEWAY", ""),
            api_keys_directory=Path(keys)
            if (keys := environment.get("API_KEYS_DIRECTORY"))
            else None,
            api_keys_names=names("API_KEYS_NAMES"),
            key_set_directory=Path(folder)
            if (folder := environment.get("KEY_SET_DIRECTORY"))
            else None,
            key_set_names=names("KEY_SET_NAMES"),
            listen_address=environment.get("LISTEN_ADDRESS") or default.listen_address,
            gateway_port=int(number("GATEWAY_PORT", default.gateway_port)),
            admin_port=int(number("ADMIN_PORT", default.admin_port)),
            agent_port=int(number("AGENT_PORT", default.agent_port)),
            waiting_port=int(number("WAITING_PORT", default.waiting_port)),
            concurrency=int(number("CONCURRENCY", default.concurrency)),
            tls_directory=Path(found) if (found := environment.get("TLS_DIRECTORY")) else None,
            tls_minimum=environment.get("TLS_MINIMUM") or default.tls_minimum,
            authorities_directory=Path(
                environment.get("AUTHORITIES_DIRECTORY") or default.authorities_directory
            ),
            authorities=names("AUTHORITIES"),
            trusted_proxy_hops=int(number("TRUSTED_PROXY_HOPS", default.trusted_proxy_hops)),
            headers_seconds=number("REQUEST_HEADERS_SECONDS", default.headers_seconds),
            request_seconds=number("REQUEST_SECONDS", default.request_seconds),
            drain_seconds=int(number("DRAIN_SECONDS", default.drain_seconds)),
            drain_minimum_seconds=number("DRAIN_MINIMUM_SECONDS", default.drain_minimum_seconds),
        )
