"""Builders of specs, statuses and snapshots that show only what matters to a test."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from speculative_api.gateway import ClusterState, GatewayState, Route
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec, SpeculativeDeploymentStatus
from speculative_api.worker import Digest, Termination
from speculative_operator.desired import revision
from speculative_operator.snapshot import (
    DeploymentView,
    GatewayPod,
    RevisionRecord,
    Snapshot,
    Words,
    WorkerPod,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NAME, NAMESPACE, UID = "chat", "llm", "0b7f6f9e-0000-4000-8000-000000000001"


def stamp(seconds_ago: float = 0) -> str:
    """The RFC 3339 time so many seconds before `NOW`."""
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_raw_spec(**changes: Any) -> dict[str, Any]:
    """The smallest spec as a user writes it (camelCase); `changes` replace or add blocks."""
    return {
        "target": {"model": "file:///models/target"},
        "speculation": {"method": "NGram", "numSpeculativeTokens": 4},
        **changes,
    }


def a_spec(*, k: int | None = None, **changes: Any) -> SpeculativeDeploymentSpec:
    """The parsed smallest spec; `k` is a short way to another n-gram revision."""
    raw = a_raw_spec(**changes)
    if k is not None:
        raw["speculation"] = {**raw["speculation"], "numSpeculativeTokens": k}
    return SpeculativeDeploymentSpec.model_validate(raw)


def some_words(k: int | None = 4, **changes: Any) -> Words:
    """The words of `a_spec(k=k, ...)`; another `k` is another revision."""
    return revision.words_of(a_spec(k=k, **changes))


def a_record(words: Words, *, number: int = 1, template: Any = None) -> RevisionRecord:
    """A stored revision of these words."""
    return RevisionRecord(
        hash=words.hash,
        number=number,
        words=words.canonical,
        template=template or {"metadata": {}, "spec": {"containers": [{"name": "worker"}]}},
    )


def a_status(
    *,
    stable: Words | str | None = None,
    canary: Words | str | None = None,
    available: bool = True,
    **fields: Any,
) -> SpeculativeDeploymentStatus:
    """A status with revision 1 as stable and 2 as canary; `fields` are camelCase.

    A mapping given as `stableFields` or `canaryFields` is laid over that block.
    """
    raw: dict[str, Any] = {"observedGeneration": 1}
    stable_fields, canary_fields = fields.pop("stableFields", {}), fields.pop("canaryFields", {})
    if stable is not None:
        raw["stable"] = {
            "revision": 1,
            "hash": _hash(stable),
            "replicas": 1,
            "readyReplicas": 1 if available else 0,
            **({"availableAt": stamp(3600)} if available else {}),
            **stable_fields,
        }
    if canary is not None:
        raw["canary"] = {
            "revision": 2,
            "hash": _hash(canary),
            "startedAt": stamp(60),
            "stepStartedAt": stamp(60),
            "replicas": 1,
            **canary_fields,
        }
    return SpeculativeDeploymentStatus.model_validate(raw | fields)


def a_pod(
    words: Words | str,
    *,
    ready: bool = True,
    number: int = 0,
    terminating: bool = False,
    restarts: int = 0,
    restarted_at: str = "",
    ready_at: float | None = None,
    termination: Termination | None = None,
    waiting_reason: str = "",
    digest: Digest | None = None,
) -> WorkerPod:
    """A worker pod of one revision; `number` tells pods of the same revision apart."""
    name = f"{NAME}-{_hash(words)}-{number}"
    return WorkerPod(
        name=name,
        uid=f"uid-{name}",
        revision=_hash(words),
        ready=ready,
        terminating=terminating,
        address=f"10.0.0.{number + 1}",
        ready_at=ready_at,
        restarts=restarts,
        restarted_at=restarted_at,
        termination=termination,
        waiting_reason=waiting_reason,
        digest=digest,
    )


def a_digest(words: Words | str, **fields: Any) -> Digest:
    """A serving worker's digest; `fields` are snake_case counters."""
    base: dict[str, Any] = {
        "revision": _hash(words),
        "ready": True,
        "engine_started_at": NOW.timestamp() - 600,
        "sampled_at": NOW.timestamp(),
        "method": "NGram",
        "num_speculative_tokens": 4,
    }
    return Digest.model_validate(base | fields)


def a_gateway(
    weights: Mapping[str, int] | None = None,
    *,
    number: int = 0,
    sequence: int = 1,
    active: Mapping[str, int] | None = None,
    endpoints: int = 1,
    ready: bool = True,
    terminating: bool = False,
    silent_seconds: float = 0.0,
    answered: bool = True,
    error: str = "",
) -> GatewayPod:
    """A gateway pod whose Envoy uses these weights by hash; `active` are requests in flight."""
    clusters = tuple(
        ClusterState(
            hash=hash_, weight=weight, endpoints=endpoints, active=(active or {}).get(hash_, 0)
        )
        for hash_, weight in (weights or {}).items()
    )
    state = GatewayState(
        pod=f"{NAME}-gateway-{number}",
        envoy_started_at=NOW.timestamp() - 600,
        sampled_at=NOW.timestamp() - silent_seconds,
        owner_uid=UID,
        sequence=sequence,
        ready=ready,
        error=error,
        clusters=clusters,
    )
    return GatewayPod(
        name=f"{NAME}-gateway-{number}",
        uid=f"uid-gateway-{number}",
        ready=ready,
        terminating=terminating,
        address=f"10.0.1.{number + 1}",
        state=state if answered else None,
        silent_seconds=silent_seconds,
    )


def a_deployment(
    words: Words | str, *, track: str = "stable", replicas: int = 1, ready: int | None = None
) -> DeploymentView:
    """The view of one revision's Deployment; all its pods are ready unless said otherwise."""
    return DeploymentView(
        name=f"{NAME}-{_hash(words)}",
        hash=_hash(words),
        track=track,
        replicas=replicas,
        ready_replicas=replicas if ready is None else ready,
    )


def a_snapshot(
    spec: SpeculativeDeploymentSpec | None = None,
    *,
    status: SpeculativeDeploymentStatus | None = None,
    now: datetime = NOW,
    generation: int = 1,
    annotations: Mapping[str, str] | None = None,
    findings: tuple[str, ...] = (),
    conflicts: tuple[str, ...] = (),
    revisions: Iterable[RevisionRecord] = (),
    deployments: Iterable[DeploymentView] = (),
    pods: Iterable[WorkerPod] = (),
    gateways: Iterable[GatewayPod] = (),
    route: Route | None = None,
) -> Snapshot:
    """One look at resource `llm/chat` at `NOW`; an empty world unless said otherwise."""
    spec = spec or a_spec()
    return Snapshot(
        now=now,
        namespace=NAMESPACE,
        name=NAME,
        uid=UID,
        generation=generation,
        spec=spec,
        status=status or SpeculativeDeploymentStatus(),
        words=revision.words_of(spec),
        annotations=annotations or {},
        findings=findings,
        conflicts=conflicts,
        revisions={record.hash: record for record in revisions},
        deployments={view.hash: view for view in deployments},
        pods=tuple(pods),
        gateways=tuple(gateways),
        route=route,
    )


def _hash(words: Words | str) -> str:
    return words if isinstance(words, str) else words.hash
