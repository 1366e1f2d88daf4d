"""Pure: what Envoy said becomes `GatewayState` and the text of `/metrics`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_api import gateway

from .admin import Host
from .configuration import (
    SHADOW,
    WAITING,
    copies_of,
    copying_clusters,
    named_clusters,
    revision_of,
    shares,
    weights_of,
)
from .logs import LANE, OVERFLOW, STATISTICS

States = Mapping[str, gateway.GatewayState]
"""By member of a shared gateway; under an empty name all there is."""
CLASSES = ("2xx", "3xx", "4xx", "5xx")
NO_WORKER = "UH"
"""Envoy's flag of a request that found no healthy endpoint."""
BROKEN = frozenset({"UC", "UR", "UPE", "UT", "SI"})
"""Upstream termination, reset, protocol error, timeout, silence beyond the idle timeout."""

_THEIRS, _OURS = f"envoy_{STATISTICS}_", "speculative_gateway_"
_ANSWER = re.compile(
    rf"{STATISTICS}\.answers\.revision\.(?P<revision>[0-9a-f]{{10}})"
    r"\.by\.(?P<by>[^.]+)\.status\.(?P<status>[^.]+)"
    r"\.kind\.(?P<kind>[^.]*)\.flags\.(?P<flags>.+)"
)
_REVISION = re.compile(r'revision="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one life of Envoy."""

    started_at: float
    taken_at: float
    runtime: Mapping[str, str]
    """Final value of every key."""
    routes: Mapping[str, Any]
    hosts: Mapping[str, tuple[Host, ...]]
    statistics: Mapping[str, int]

    def clusters(self) -> tuple[gateway.ClusterState, ...]:
        """Every revision that Envoy has a cluster for."""
        weights = shares(self.routes, weights_of(self.runtime))
        used = {revision_of(name): weight for name, weight in weights.items()}
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
            responses=_by_class(answers),
            shed=sum(n for answer, n in answers.items() if OVERFLOW in answer.flags),
            cut=_cut(answers),
            kinds={kind: _of_kind(answers, kind) for kind in gateway.REQUEST_KINDS},
            shadow=self._shadow(name + SHADOW) if name + SHADOW in self.hosts else None,
        )

    def _shadow(self, cluster: str) -> gateway.ShadowState:
        """Copies have no line in the log: the cluster's own counters say how they fared.

        They hold our refusals too, each a 503 of ours among the 5xx. A worker that breaks off
        is a closed connection, before its answer a 503 as well: what is not among the 5xx
        was cut, at least (measured, Envoy 1.40).
        """

        def count(statistic: str) -> int:
            return self.statistics.get(f"cluster.{cluster}.upstream_{statistic}", 0)

        skipped = count("rq_active_overflow") + count("rq_pending_overflow")
        classes = {each: count(f"rq_{each}") for each in CLASSES}
        failed = max(0, classes["5xx"] - skipped)
        copied = cluster in copying_clusters(self.routes)
        return gateway.ShadowState(
            percent=copies_of(self.runtime).get(cluster, 0) if copied else 0,
            active=count("rq_active") + count("rq_pending_active"),
            responses={**classes, "5xx": failed},
            skipped=skipped,
            cut=max(0, count("cx_destroy_remote_with_active_rq") - failed),
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """How a request ended."""

    by: str
    """Revision of the worker that was asked; `-` where none was."""
    status: int
    """0 where the client left before the answer began."""
    flags: frozenset[str]
    kind: str = ""
    """What the request asked for; empty: nothing that is told apart."""

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


def never_falling(
    state: gateway.GatewayState, before: gateway.GatewayState | None
) -> gateway.GatewayState:
    """The state without counts of copies that fell since the one before, in one life of Envoy.

    They are differences of counters that are not read in the same instant; whoever adds up
    what came in between would take a count that falls for a new beginning.
    """
    if before is None or before.envoy_started_at != state.envoy_started_at:
        return state
    known = {each.hash: each.shadow for each in before.clusters}
    return state.model_copy(
        update={
            "clusters": tuple(
                each.model_copy(update={"shadow": _at_least(each.shadow, known.get(each.hash))})
                for each in state.clusters
            )
        }
    )


def _at_least(
    shadow: gateway.ShadowState | None, before: gateway.ShadowState | None
) -> gateway.ShadowState | None:
    if shadow is None or before is None:
        return shadow
    responses = {k: max(n, before.responses.get(k, 0)) for k, n in shadow.responses.items()}
    return shadow.model_copy(update={"responses": responses, "cut": max(shadow.cut, before.cut)})


def _answers(statistics: Mapping[str, int], revision: str) -> dict[_Answer, int]:
    found: dict[_Answer, int] = {}
    for name, value in statistics.items():
        match = _ANSWER.fullmatch(name)
        if match is not None and match["revision"] == revision:
            status = int(match["status"]) if match["status"].isdigit() else 0
            flags = frozenset(match["flags"].split(","))
            answer = _Answer(match["by"], status, flags, match["kind"])
            found[answer] = found.get(answer, 0) + value
    return found


def _by_class(answers: Mapping[_Answer, int]) -> dict[str, int]:
    return {
        each: sum(n for answer, n in answers.items() if answer.of_class == each) for each in CLASSES
    }


def _cut(answers: Mapping[_Answer, int]) -> int:
    return sum(n for answer, n in answers.items() if answer.cut)


def _of_kind(answers: Mapping[_Answer, int], kind: str) -> gateway.KindState:
    its = {answer: n for answer, n in answers.items() if answer.kind == kind}
    return gateway.KindState(responses=_by_class(its), cut=_cut(its))


def lanes(routes: Mapping[str, Any]) -> dict[str, str]:
    """The lane of every revision that a route sends to."""
    found: dict[str, str] = {}
    for host in routes.get("virtual_hosts", []):
        for entry in host.get("routes", []):
            lane = entry.get("metadata", {}).get("filter_metadata", {}).get(LANE, {})
            for name in named_clusters({"virtual_hosts": [{"routes": [entry]}]}):
                found[revision_of(name)] = lane.get("name", "accelerated")
    return found


def named(
    clusters: tuple[gateway.ClusterState, ...], names: Mapping[str, str] | None
) -> tuple[gateway.ClusterState, ...]:
    """The clusters that have one of these names in Envoy, under their own; all without names."""
    if names is None:
        return clusters
    return tuple(
        each.model_copy(update={"hash": names[each.hash]})
        for each in clusters
        if each.hash in names
    )


def passed_on(figures: str, states: States, names: Mapping[str, Mapping[str, str]]) -> str:
    """Envoy's own figures under our name, without those of revisions that are gone.

    Args:
        names: of members of a shared gateway, their revisions by their name in Envoy.
    """
    shown = {each.hash: f'revision="{each.hash}"' for each in states[""].clusters}
    for member, revisions in names.items():
        # A figure of Envoy's has one label to find it by, and gets the member's beside it.
        told = {k: f'deployment="{member}",revision="{v}"' for k, v in revisions.items()}
        shown |= told
    kept = []
    for line in figures.splitlines():
        if line.startswith("#"):
            kept.append(line.replace(_THEIRS, _OURS, 1))
        elif line.startswith(_THEIRS):
            found = _REVISION.search(line)
            if found is not None and found[1] in shown:
                line = line.replace(found[0], shown[found[1]], 1)
                kept.append(line.replace(_THEIRS, _OURS, 1))
    return "".join(line + "\n" for line in kept)


def metrics(states: States) -> str:
    """The states in Prometheus' text format; a member's have label `deployment`."""
    families: dict[str, tuple[str, str, list[str]]] = {}

    def add(name: str, form: str, text: str, value: float, /, **labels: str) -> None:
        full = f"speculative_gateway_{name}"
        shown = ",".join(f'{key}="{each}"' for key, each in labels.items())
        family = families.setdefault(full, (form, text, []))
        family[2].append(f"{full}{{{shown}}} {value:.15g}" if shown else f"{full} {value:.15g}")

    members = {name: state for name, state in states.items() if name}
    whole = states[""]
    add("envoy_start_time_seconds", "gauge", "When Envoy started.", whole.envoy_started_at)
    for name, state in (members or {"": whole}).items():
        whose = {"deployment": name} if name else {}
        newest = "Sequence of the route in use; -1: none."
        add("route_sequence", "gauge", newest, state.sequence, **whose)
        add("ready", "gauge", "1 once a route was read back from Envoy.", state.ready, **whose)
        error = bool(state.error)
        add("route_error", "gauge", "1 while the newest route is refused.", error, **whose)
    clusters = [
        ({"deployment": name} if name else {}, each)
        for name, state in (members or {"": whole}).items()
        for each in state.clusters
    ]
    for whose, each in clusters:
        who = {**whose, "revision": each.hash, "lane": each.lane}
        add("weight", "gauge", "Weight in use.", each.weight, **who)
        add("endpoints", "gauge", "Healthy endpoints.", each.endpoints, **who)
        add("active_requests", "gauge", "Requests in flight.", each.active, **who)
        add("shed_total", "counter", "Refused, as too many were in flight.", each.shed, **who)
        add("cut_total", "counter", "Answers that broke off.", each.cut, **who)
        for kind, value in each.responses.items():
            add("responses_total", "counter", "Answers by class.", value, **who, **{"class": kind})
        for asked, answered in each.kinds.items():
            of = {**who, "kind": asked}
            for kind, value in answered.responses.items():
                told = "Answers to a kind of requests, by class."
                add("kind_responses_total", "counter", told, value, **of, **{"class": kind})
            told = "Answers to a kind of requests that broke off."
            add("kind_cut_total", "counter", told, answered.cut, **of)
        if each.shadow is not None:
            for name, form, text, value in _copies(each.shadow):
                add(f"shadow_{name}", form, text, value, **who)
            for kind, value in each.shadow.responses.items():
                text = "Answers to copies by class."
                add("shadow_responses_total", "counter", text, value, **who, **{"class": kind})
    lines = []
    for name, (kind, text, samples) in families.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"


def _copies(shadow: gateway.ShadowState) -> tuple[tuple[str, str, str, int], ...]:
    return (
        ("percent", "gauge", "Percent of requests that are copied.", shadow.percent),
        ("active_requests", "gauge", "Copies in flight.", shadow.active),
        ("skipped_total", "counter", "Copies not made, as too many were.", shadow.skipped),
        ("cut_total", "counter", "Answers to copies that broke off.", shadow.cut),
    )
