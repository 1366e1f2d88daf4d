"""The operator's settings: read from the environment once, passed down, never read elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from speculative_operator.shard import Shard


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is the environment variable of the same name in capitals."""

    operator_namespace: str = "default"
    """Where the operator runs; names its installation in the Lease."""
    watch_namespace: str = ""
    """The only namespace to act in; empty: all."""
    shard: int = 0
    """Which of `shards` this operator acts on, from 0."""
    shards: int = 1
    """How many operators divide the namespaces among themselves; 1: one acts on all."""
    gateway_image: str = "ghcr.io/speculative-dev/speculative-gateway:0.1.0"
    """Image of gateway pods; a new value rolls the gateways, drained."""
    worker_image: str = "ghcr.io/speculative-dev/speculative-worker:0.32.0"
    """Default of `engine.image`."""
    image_pull_policy: str = "IfNotPresent"
    """Of gateway pods."""
    gateway_cluster_role: str = "speculative-operator-gateway"
    """ClusterRole that the operator may bind for gateways."""
    workers: int = 8
    """Passes at once."""
    http_port: int = 8082
    """/livez, /readyz and /metrics of the operator."""
    identity: str = "operator"
    """Holder name in the Lease: the pod's name."""
    lease_seconds: float = 5.0
    """Lease duration; renewed at a sixth of it, given up at three quarters. A crashed operator's
    successor works after at most 7/6 of it."""
    foreign_lease_seconds: float = 300.0
    """For so long a Lease of another installation must have been left alone before this one
    takes over: a node drain must not hand every gateway to other images."""
    request_timeout_seconds: float = 15.0
    """Longest single request to the API server."""
    scrape_timeout_seconds: float = 2.0
    """Longest single request to a worker or an agent."""
    external_metrics_certificates: str = ""
    """Folder with tls.crt and tls.key for external.metrics.k8s.io; empty: not served."""
    external_metrics_port: int = 8443
    """Where the API server's aggregator asks for metrics."""
    prometheus_url: str = ""
    """Prometheus with DCGM's figures, for the metric GpuUtilization; empty: it has no value."""
    evidence_write_seconds: float = 30.0
    """Shortest time between two writes of the evidence ConfigMap."""

    def __post_init__(self) -> None:
        whole = self.own_shard.is_whole
        if self.watch_namespace and not whole:
            raise ValueError(
                f"SHARDS={self.shards} with WATCH_NAMESPACE={self.watch_namespace}: namespaces are "
                "divided, so a single one can't be; unset one of the two"
            )

    @property
    def own_shard(self) -> Shard:
        """The namespaces to act on.

        Raises:
            ValueError: there is no such shard.
        """
        return Shard(self.shard, self.shards)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Reads the variables.

        Raises:
            ValueError: with the name of one that can't be, or of two that exclude each other.
        """
        found: dict[str, str | int | float] = {}
        for name, kind in cls.__annotations__.items():
            raw = environment.get(name.upper())
            if raw is None:
                continue
            convert = {"int": int, "float": float}.get(getattr(kind, "__name__", str(kind)), str)
            try:
                found[name] = convert(raw)
            except ValueError as error:
                raise ValueError(f"{name.upper()}={raw!r}: not a number") from error
        return cls(**found)  # type: ignore[arg-type]
