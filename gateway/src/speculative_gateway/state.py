"""Pure: what Envoy said becomes `GatewayState` and the text of `/metrics`."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_api import gateway

from .admin import Host
from .configuration import WAITING, named_clusters, revision_of, shares
from .logs import LANE, OVERFLOW, STATISTICS

CLASSES = ("2xx", "3xx", "4xx", "5xx")
NO_WORKER = "UH"
"""Envoy's flag of a request that found no healthy endpoint."""
BROKEN = frozenset({"UC", "UR", "UPE", "UT", "SI"})
"""Upstream termination, reset, protocol error, timeout, silence beyond the idle timeout."""

_THEIRS, _OURS = f"envoy_{STATISTICS}_", "speculative_gateway_"
_ANSWER = re.compile(
    rf"{STATISTICS}\.answers\.revision\.(?P<revision>[0-9a-f]{{10}})"
    r"\.by\.(?P<by>[^.]+)\.status\.(?P<status>[^.]+)\.flags\.(?P<flags>.+)"
)
_REVISION = re.compile(r'revision="([^"]*)"')


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
            for name in sorted({revision_of(cluster) for cluster in self.hosts} - {WAITING})
        )

    def _cluster(self, name: str, weight: int, hosts: tuple[Host, ...]) -> gateway.ClusterState:
        def count(statistic: str) -> int:
            return self.statistics.get(f"cluster.{name}.upstream_rq_{statistic}", 0)

        answers = _answers(self.statistics, name)
        return gateway.ClusterState(
            hash=name,
            weight=weight,
            lane=lanes(self.routes).get(name, "accelerated"),
            endpoints=sum(host.healthy for host in hosts),
            # A request that waits for its connection is in flight too.
            active=count("active") + count("pending_active"),
            responses={
                each: sum(n for answer, n in answers.items() if answer.of_class == each)
                for each in CLASSES
            },
            shed=sum(n for answer, n in answers.items() if OVERFLOW in answer.flags),
            cut=sum(n for answer, n in answers.items() if answer.cut),
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """How a request ended."""

    by: str
    """Revision of the worker that was asked; `-` where none was."""
    status: int
    """0 where the client left before the answer began."""
    flags: frozenset[str]

    @property
    def of_class(self) -> str:
        """Class of an answer that is the revision's: a worker's, or there was no worker.

        What the gateway refused by itself (401, 413, 429, too many in flight) is none.
        """
        ours = OVERFLOW in self.flags or (self.by == "-" and NO_WORKER not in self.flags)
        return "" if ours else f"{self.status // 100}xx"

    @property
    def cut(self) -> bool:
        """The answer began and the worker did not finish it. A client that hangs up is no cut.

        An answer that ends before its first byte is a plain 503 to the user.
        """
        return 0 < self.status < 500 and bool(self.flags & BROKEN)


def _answers(statistics: Mapping[str, int], revision: str) -> dict[_Answer, int]:
    found: dict[_Answer, int] = {}
    for name, value in statistics.items():
        match = _ANSWER.fullmatch(name)
        if match is not None and match["revision"] == revision:
            status = int(match["status"]) if match["status"].isdigit() else 0
            answer = _Answer(match["by"], status, frozenset(match["flags"].split(",")))
            found[answer] = found.get(answer, 0) + value
    return found


def lanes(routes: Mapping[str, Any]) -> dict[str, str]:
    """The lane of every revision that a route sends to."""
    found: dict[str, str] = {}
    for host in routes.get("virtual_hosts", []):
        for entry in host.get("routes", []):
            lane = entry.get("metadata", {}).get("filter_metadata", {}).get(LANE, {})
            for name in named_clusters({"virtual_hosts": [{"routes": [entry]}]}):
                found[revision_of(name)] = lane.get("name", "accelerated")
    return found


def passed_on(figures: str, revisions: Collection[str]) -> str:
    """Envoy's own figures under our name, without those of revisions that are gone."""
    kept = []
    for line in figures.splitlines():
        if line.startswith("#"):
            kept.append(line.replace(_THEIRS, _OURS, 1))
        elif line.startswith(_THEIRS):
            named = _REVISION.search(line)
            if named is not None and named[1] in revisions:
                kept.append(line.replace(_THEIRS, _OURS, 1))
    return "".join(line + "\n" for line in kept)


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
        who = {"revision": each.hash, "lane": each.lane}
        add("weight", "gauge", "Weight in use.", each.weight, **who)
        add("endpoints", "gauge", "Healthy endpoints.", each.endpoints, **who)
        add("active_requests", "gauge", "Requests in flight.", each.active, **who)
        add("shed_total", "counter", "Refused, as too many were in flight.", each.shed, **who)
        add("cut_total", "counter", "Answers that broke off.", each.cut, **who)
        for kind, value in each.responses.items():
            add("responses_total", "counter", "Answers by class.", value, **who, **{"class": kind})
    lines = []
    for name, (kind, text, samples) in families.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"
