"""What `status` shows beside the resource: its pods, what each accepts, and the evidence.

Everything here is a courtesy: what can't be had, for want of rights or of an
answer, becomes a note and the rest is shown. Reads the API server only; a
worker's figures come through its pod proxy.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pydantic import ValidationError

from speculative_api import labels
from speculative_api.assessment import JudgedTrial
from speculative_api.worker import Digest

from . import evidence
from .errors import CliError, NotFound
from .resource import Resource

SHOWN_PODS: Final = 8
"""Pods of a revision that are shown unless all are asked for."""
AT_ONCE: Final = 16
"""Pods asked at the same time."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of the resource."""

    name: str
    component: str
    revision: str
    ready: bool
    words: str
    """What is to be said of its state."""
    acceptance_length: float | None = None
    """Tokens per decoding step since its engine started; None if not known."""


@dataclass(frozen=True, slots=True)
class View:
    """What was found; `notes` say what was not, and why."""

    pods: tuple[PodView, ...] = ()
    trial: JudgedTrial | None = None
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """The part of `Cluster` that is needed here."""

    def pods(self, name: str) -> list[dict[str, Any]]: ...
    def gateway_pods(self, gateway: str) -> list[dict[str, Any]]: ...
    def digest(self, pod: str) -> str: ...
    def config_map(self, name: str) -> dict[str, Any]: ...


def look(reader: Reader, resource: Resource, *, every_pod: bool) -> View:
    """Pods, their figures, and the evidence of the trial that goes on."""
    notes: list[str] = []

    def tried(what: str, question: Callable[[], Any], instead: Any) -> Any:
        try:
            return question()
        except CliError as error:
            notes.append(f"{what}: {error}")
            return instead

    raw = tried("pods are not shown", lambda: reader.pods(resource.name), [])
    if gateway := resource.shared_gateway:
        words = f"pods of gateway {gateway} are not shown"
        raw = [*raw, *tried(words, lambda: reader.gateway_pods(gateway), [])]
    pods = [pod_view(thing) for thing in raw if _is_named(thing)]
    pods = _with_figures(reader, pods, notes, every_pod=every_pod)
    trial = tried("evidence is not shown", lambda: _trial(reader, resource), None)
    return View(tuple(pods), trial, tuple(notes))


def _trial(reader: Reader, resource: Resource) -> JudgedTrial | None:
    status = resource.status
    tried = status.canary or (status.stable if status.guard is not None else None)
    if tried is None:
        return None
    stored = reader.config_map(f"{resource.name}{labels.EVIDENCE_SUFFIX}")
    try:
        found = evidence.trial(stored, resource)
    except NotFound:
        return None
    stage = "canary" if status.canary is not None else "guard"
    return found if (found.candidate, found.stage) == (tried.hash, stage) else None


def _is_named(raw: Any) -> bool:
    return isinstance(raw, dict) and bool((raw.get("metadata") or {}).get("name"))


def pod_view(raw: Mapping[str, Any]) -> PodView:
    """A raw pod, as far as it can be read."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    marks = metadata.get("labels") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    leaving = bool(metadata.get("deletionTimestamp"))
    return PodView(
        name=metadata["name"],
        component=marks.get(labels.COMPONENT, ""),
        revision=marks.get(labels.REVISION, ""),
        ready=ready and not leaving,
        words="terminating" if leaving else "ready" if ready else _why(status, conditions),
    )


def _why(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', '')}: {scheduled.get('message', '')}".rstrip(": ")
    for container in status.get("containerStatuses") or []:
        restarts = int(container.get("restartCount") or 0)
        again = f", {restarts} restarts" if restarts else ""
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason', 'waiting')}{again}"
        if restarts:
            return f"not ready{again}"
    return "not ready" if status.get("phase") == "Running" else str(status.get("phase", "Pending"))


def shown(pods: Iterable[PodView], *, every_pod: bool) -> list[PodView]:
    """Those of one revision that are shown, the not ready ones first."""
    ordered = sorted(pods, key=lambda pod: (pod.ready, pod.name))
    return ordered if every_pod else ordered[:SHOWN_PODS]


def _with_figures(
    reader: Reader, pods: list[PodView], notes: list[str], *, every_pod: bool
) -> list[PodView]:
    workers = [pod for pod in pods if pod.component == labels.COMPONENT_WORKER and pod.ready]
    revisions = {pod.revision for pod in workers}
    asked = [
        pod
        for revision in sorted(revisions)
        for pod in shown((p for p in workers if p.revision == revision), every_pod=every_pod)
    ]
    if not asked:
        return pods
    failures: list[str] = []

    def figure(pod: PodView) -> float | None:
        try:
            return acceptance_length(reader.digest(pod.name))
        except CliError as error:
            failures.append(str(error))
            return None

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = dict(zip((pod.name for pod in asked), pool.map(figure, asked), strict=True))
    if failures:
        notes.append(
            f"{len(failures)} of {len(asked)} pods gave no figures through the API server "
            f"(needs `get` on pods/proxy): {failures[0]}"
        )
    return [replace(pod, acceptance_length=found.get(pod.name)) for pod in pods]


def acceptance_length(text: str) -> float | None:
    """Tokens per step out of a worker's digest; None where nothing was measured, or garbled."""
    try:
        digest = Digest.model_validate_json(text)
    except ValidationError:
        return None
    return (
        digest.generated_tokens / digest.steps if digest.generated_tokens and digest.steps else None
    )
