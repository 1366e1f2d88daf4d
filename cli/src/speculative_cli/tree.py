"""One resource as a tree: gateway, lanes, revisions, pods, evidence. Pure.

Below the tree stands what `screen` says of the rollout. Weights are percent,
acceptance length is tokens per decoding step, evidence is drawn on a
logarithmic scale from none to what a verdict needs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from speculative_api import labels
from speculative_api.assessment import JudgedMetric, JudgedTrial, one_in
from speculative_api.v1alpha1 import CanaryStatus

from . import screen
from .looking import PodView, View, shown
from .resource import Resource
from .terminal import Style, printable

BAR: Final = 10
"""Characters of an evidence bar."""


@dataclass(frozen=True, slots=True)
class Node:
    """A line and what hangs below it."""

    line: str
    below: Sequence["Node"] = ()


def text(
    resource: Resource, view: View, now: datetime, style: Style, *, every_pod: bool = False
) -> str:
    """The whole screen, without a line break at its end."""
    status = resource.status
    head = f"{resource.namespace}/{resource.name}  method {resource.method}"
    if not screen.is_current(resource):
        head += "  (the newest spec was not looked at yet)"
    lines = [printable(head)]
    lines += [printable(status.message)] if status.message else []
    nodes = _nodes(resource, view, now, style, every_pod=every_pod)
    drawn = style.drawn("\n".join(_drawn(nodes, "")))
    rest = [_painted(printable(line), style) for line in screen.details(resource, now)]
    notes = [printable(f"(note)    {note}") for note in view.notes]
    return "\n".join([*lines, "", drawn, "", *rest, *notes]).rstrip()


def _painted(line: str, style: Style) -> str:
    return style.paint(line, "bad") if line.startswith("not good") else line


def _drawn(nodes: Sequence[Node], indent: str) -> list[str]:
    lines: list[str] = []
    for number, node in enumerate(nodes):
        last = number == len(nodes) - 1
        lines.append(f"{indent}{'└─' if last else '├─'} {node.line}")
        lines += _drawn(node.below, f"{indent}{'   ' if last else '│  '}")
    return lines


def _nodes(
    resource: Resource, view: View, now: datetime, style: Style, *, every_pod: bool
) -> list[Node]:
    gateways = [pod for pod in view.pods if pod.component == labels.COMPONENT_GATEWAY]
    workers = [pod for pod in view.pods if pod.component == labels.COMPONENT_WORKER]
    nodes = []
    if gateways:
        below = _pods(gateways, style, every_pod=every_pod)
        shared = resource.shared_gateway
        name = f"gateway {printable(shared)}, shared" if shared else "gateway"
        nodes.append(Node(f"{name}  {_readiness(gateways)}", below))
    revisions = _revisions(resource, view, workers, now, style, every_pod=every_pod)
    nodes.append(Node("lane accelerated" if revisions else "no revision yet", revisions))
    known = _known(resource)
    others = [pod for pod in workers if pod.revision not in known]
    if others:
        members = [*others, *(pod for pod in _followers(view) if pod.revision not in known)]
        below = _pods(members, style, every_pod=every_pod)
        nodes.append(Node(f"lane native  {_readiness(others)}", below))
    return nodes


def _followers(view: View) -> list[PodView]:
    """Pods of groups but their leaders: shown, and counted nowhere."""
    return [pod for pod in view.pods if pod.component == labels.COMPONENT_FOLLOWER]


def _known(resource: Resource) -> set[str]:
    status = resource.status
    parts = (status.stable, status.canary, status.guard, *status.retiring, *status.failed_revisions)
    return {part.hash for part in parts if part is not None}


def _readiness(pods: Sequence[PodView]) -> str:
    return f"{sum(pod.ready for pod in pods)} of {len(pods)} ready"


def _revisions(
    resource: Resource,
    view: View,
    workers: Sequence[PodView],
    now: datetime,
    style: Style,
    *,
    every_pod: bool,
) -> list[Node]:
    status = resource.status

    members = (*workers, *_followers(view))

    def below(revision: str) -> list[Node]:
        mine = [pod for pod in members if pod.revision == revision]
        return _pods(mine, style, every_pod=every_pod)

    taken = status.guard.weight if status.guard else status.canary.weight if status.canary else 0
    nodes = []
    judged = [_evidence(view.trial, now, style)] if view.trial is not None else []
    if status.stable is not None:
        stable = status.stable
        guarded = judged if status.guard is not None else []
        head = f"stable  {stable.revision} ({stable.hash})  {100 - taken} %"
        head += f"  {stable.ready_replicas}/{stable.replicas} ready"
        nodes.append(
            Node(
                printable(head + _figure(stable.acceptance_length)),
                [*below(stable.hash), *guarded],
            )
        )
    if status.canary is not None:
        canary = status.canary
        nodes.append(Node(printable(_canary(canary)), [*below(canary.hash), *judged]))
    if status.guard is not None:
        guard = status.guard
        head = f"guard  {guard.revision} ({guard.hash})  {guard.weight} %"
        nodes.append(Node(printable(head), below(guard.hash)))
    for leaving in status.retiring:
        nodes.append(Node(printable(f"retiring  {leaving.hash}  0 %"), below(leaving.hash)))
    return nodes


def _canary(canary: CanaryStatus) -> str:
    weight = f"{canary.weight} %"
    if canary.observed_weight != canary.weight:
        weight += f" (gateways: {canary.observed_weight} %)"
    if canary.shadow or canary.observed_shadow:
        weight = f"shadow {canary.shadow} %"
        if canary.observed_shadow != canary.shadow:
            weight += f" (gateways: {canary.observed_shadow} %)"
    head = f"canary  {canary.revision} ({canary.hash})  {weight}"
    ready = f"{canary.ready_replicas}/{canary.replicas} ready"
    return f"{head}  {ready}{_figure(canary.acceptance_length)}"


def _figure(acceptance_length: str | None) -> str:
    return f"  {acceptance_length} tokens/step" if acceptance_length else ""


def _pods(pods: Sequence[PodView], style: Style, *, every_pod: bool) -> list[Node]:
    chosen = shown(pods, every_pod=every_pod)
    nodes = [Node(_pod(pod, style)) for pod in chosen]
    names = {pod.name for pod in chosen}
    rest = [pod for pod in pods if pod.name not in names]
    if rest:
        nodes.append(Node(f"… {len(rest)} more, {_readiness(rest)} (--all-pods)"))
    return nodes


def _pod(pod: PodView, style: Style) -> str:
    words = printable(pod.words)
    words = words if pod.ready else style.paint(words, "doubtful")
    figure = f"  {pod.acceptance_length:.2f}" if pod.acceptance_length is not None else ""
    role = "  follower" if pod.component == labels.COMPONENT_FOLLOWER else ""
    return f"{printable(pod.name)}  {words}{figure}{role}"


def _evidence(trial: JudgedTrial, now: datetime, style: Style) -> Node:
    seen = screen.age(datetime.fromtimestamp(trial.at, UTC).isoformat(), now)
    head = f"evidence  {trial.candidate_requests} requests, last look {seen} ago"
    width = max((len(_label(metric)) for metric in trial.metrics), default=0)
    return Node(head, [Node(_metric(metric, width, style)) for metric in trial.metrics])


def _label(metric: JudgedMetric) -> str:
    return printable(metric.name) + (" (dry run)" if metric.dry_run else "")


def _metric(metric: JudgedMetric, width: int, style: Style) -> str:
    name = _label(metric).ljust(width)
    if not metric.measured:
        return f"{name}  not measured"
    worse = style.paint(bar(metric.worse, metric.needed_worse), "bad")
    good = style.paint(bar(metric.not_worse, metric.needed_not_worse), "good")
    return (
        f"{name}  worse {worse} {_of(metric.worse, metric.needed_worse)}  "
        f"not worse {good} {_of(metric.not_worse, metric.needed_not_worse)}"
    )


def _of(found: float, needed: float) -> str:
    return f"{one_in(found)} of {one_in(needed).removeprefix('1 in ')}"


def bar(found: float, needed: float) -> str:
    """How far evidence is on its way: from 1, none, to `needed`, logarithmically."""
    share = math.log(max(found, 1.0)) / math.log(max(needed, 1.01))
    full = min(BAR, int(BAR * share))
    return "█" * full + "░" * (BAR - full)


def pods_document(pods: Iterable[PodView]) -> list[dict[str, object]]:
    """The pods for programs."""
    return [
        {
            "name": pod.name,
            "component": pod.component,
            "revision": pod.revision,
            "ready": pod.ready,
            "state": pod.words,
            "acceptanceLength": pod.acceptance_length,
        }
        for pod in pods
    ]
