"""Pure: what Envoy said becomes `GatewayState` and the text of `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_api import gateway

from .admin import Host
from .configuration import revision_of, shares

CLASSES = ("2xx", "3xx", "4xx", "5xx")
CUT_PREFIX = "speculative.cut.revision."


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one life of Envoy."""

    started_at: float
    taken_at: float
    weights: Mapping[str, int]
    routes: Mapping[str, Any]
    hosts: Mapping[str, tuple[Host, ...]]
    statistics: Mapping[str, int]

    def clusters(self) -> tuple[gateway.ClusterState, ...]:
        """Every revision that Envoy has a cluster for."""
        used = {
            revision_of(name): weight for name, weight in shares(self.routes, self.weights).items()
        }
        return tuple(
            self._cluster(name, used.get(name, 0), self.hosts.get(name, ()))
            for name in sorted({revision_of(cluster) for cluster in self.hosts})
        )

    def _cluster(self, name: str, weight: int, hosts: tuple[Host, ...]) -> gateway.ClusterState:
        def count(statistic: str) -> int:
            return self.statistics.get(f"cluster.{name}.upstream_rq_{statistic}", 0)

        return gateway.ClusterState(
            hash=name,
            weight=weight,
            endpoints=sum(host.healthy for host in hosts),
            # A request that waits for its connection is in flight too.
            active=count("active") + count("pending_active"),
            responses={each: count(each) for each in CLASSES},
            cut=self.statistics.get(CUT_PREFIX + name, 0),
        )


def metrics(state: gateway.GatewayState) -> str:
    """The state in Prometheus' text format."""
    families: dict[str, tuple[str, str, list[str]]] = {}

    def add(name: str, kind: str, text: str, value: float, **labels: str) -> None:
        full = f"speculative_gateway_{name}"
        shown = ",".join(f'{key}="{each}"' for key, each in labels.items())
        family = families.setdefault(full, (kind, text, []))
        family[2].append(f"{full}{{{shown}}} {value:.15g}" if shown else f"{full} {value:.15g}")

    add("envoy_start_time_seconds", "gauge", "When Envoy started.", state.envoy_started_at)
    add("route_sequence", "gauge", "Sequence of the route in use; -1: none.", state.sequence)
    add("ready", "gauge", "1 once a route was read back from Envoy.", state.ready)
    add("route_error", "gauge", "1 while the newest route is refused.", bool(state.error))
    for each in state.clusters:
        add("weight", "gauge", "Weight in use.", each.weight, revision=each.hash)
        add("endpoints", "gauge", "Healthy endpoints.", each.endpoints, revision=each.hash)
        add("active_requests", "gauge", "Requests in flight.", each.active, revision=each.hash)
        add("cut_total", "counter", "Answers that broke off.", each.cut, revision=each.hash)
        for kind, value in each.responses.items():
            add(
                "responses_total",
                "counter",
                "Answers by class.",
                value,
                revision=each.hash,
                **{"class": kind},
            )
    lines = []
    for name, (kind, text, samples) in families.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"
