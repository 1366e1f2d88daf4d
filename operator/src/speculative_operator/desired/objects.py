"""All objects of one resource: `desired_objects`, in creation order.

`reconcile` creates what is missing, applies the rest server-side and removes
what is ours and not named here. Bodies hold only fields that we own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from speculative_api.labels import CHANGE_CAUSE, RENDER
from speculative_api.revisions import is_native
from speculative_api.v1alpha1 import GatewayMode
from speculative_operator.decision import Decision, Scale
from speculative_operator.desired import groups, names
from speculative_operator.desired.autoscaling import autoscaler
from speculative_operator.desired.gateway import gateway_objects
from speculative_operator.desired.http_route import POOL_KIND, http_route, inference_pool
from speculative_operator.desired.keda import scaled_object
from speculative_operator.desired.native import NativeLane, native_lane
from speculative_operator.desired.preflight import preflight_jobs
from speculative_operator.desired.restarts import (
    kept_renders,
    record_in_force,
    revision_bytes,
    stamped,
)
from speculative_operator.desired.route import next_route, route_config_map
from speculative_operator.desired.services import revision_service, users_service
from speculative_operator.desired.spot import parts
from speculative_operator.desired.workers import pod_template, worker_deployment
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord, Snapshot, Words

MAX_REVISION_BYTES: Final = 256 * 1024
"""Largest stored revision, words and template together; etcd takes 1.5 MiB per object."""

OWNED_KINDS: Final = (
    ("apps/v1", "ControllerRevision"),
    ("v1", "ServiceAccount"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    (groups.API_VERSION, groups.KIND),
    ("policy/v1", "PodDisruptionBudget"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ("inference.networking.k8s.io/v1", "InferencePool"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("batch/v1", "Job"),
    ("keda.sh/v1alpha1", "ScaledObject"),
)
"""(apiVersion, kind) of everything that may be here: what pruning looks through."""
LONGEST_CAUSE: Final = 1024
"""Characters of a change cause that are kept with a revision."""
CREATE_ONLY: Final = frozenset({"ControllerRevision", "Job"})
"""Kinds that are created once and never applied: their content is immutable."""

_ROUTES: Final = ("ConfigMap", "HTTPRoute")
"""Kinds that say where requests go, by mode of the gateway."""

Body = dict[str, Any]


class RevisionTooLarge(ValueError):
    """Words and template of a revision exceed `MAX_REVISION_BYTES`."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A revision that keeps pods, with its record (stored already or new)."""

    scale: Scale
    record: RevisionRecord


def desired_objects(snapshot: Snapshot, decision: Decision, settings: Settings) -> tuple[Body, ...]:
    """What should exist, without status and without fields that others own.

    A revision whose record is lost while the spec has moved on can't be
    rendered: it is absent here and named by `untouched`.

    Raises:
        RevisionTooLarge: `checks.findings` reports the same beforehand.
    """
    metadata = _metadata(snapshot)
    lane = native_lane(snapshot, decision)
    live = tuple(_live(snapshot, decision, settings, lane))
    name = snapshot.name
    scaler = autoscaler(snapshot, metadata)
    scaler = scaler or scaled_object(snapshot, decision, settings, metadata)
    gateway = _gateway(snapshot, decision, settings, metadata, lane)
    picker = snapshot.spec.gateway.endpoint_picker_ref
    if POOL_KIND in snapshot.missing_kinds:
        picker = None
    records = [*(item.record for item in live), *_history(snapshot, decision, lane)]
    records += kept_renders(snapshot, decision, records)
    revisions = {(record.hash, record.render): record for record in records}
    return (
        *(
            controller_revision(record, name=name, metadata=metadata)
            for record in revisions.values()
        ),
        *(body for body in gateway if body["kind"] not in (*_ROUTES, "Deployment")),
        *(
            revision_service(
                item.scale.hash,
                name=name,
                metadata=metadata,
                shared_gateway=snapshot.spec.gateway.shared_name,
            )
            for item in live
        ),
        *(
            inference_pool(item.scale.hash, picker, name=name, metadata=metadata)
            for item in live
            if picker is not None
        ),
        # The Services and pools that a route names come before it.
        *(body for body in gateway if body["kind"] in _ROUTES),
        *(body for item in live for body in _workers(item, snapshot, decision, metadata)),
        *(body for body in gateway if body["kind"] == "Deployment"),
        *((scaler,) if scaler else ()),
        *preflight_jobs(snapshot, decision, settings, metadata=metadata),
    )


def _workers(
    live: _Live, snapshot: Snapshot, decision: Decision, metadata: dict[str, Any]
) -> Iterator[Body]:
    """What keeps the pods of one revision."""
    scale, words, rollout = live.scale, live.record.words, snapshot.spec.rollout
    template = stamped(live.record.template, scale.hash, snapshot, decision)
    name, nodes = snapshot.name, groups.nodes_of(words)
    if nodes > 1:
        if groups.KIND not in snapshot.missing_kinds:
            yield groups.worker_groups(
                scale, template, nodes=nodes, name=name, metadata=metadata, rollout=rollout
            )
        return
    for part in parts(scale, template, words):
        yield worker_deployment(
            scale,
            part.template,
            name=name,
            metadata=metadata,
            rollout=rollout,
            capacity=part.capacity,
            replicas=part.replicas,
        )


def _gateway(
    snapshot: Snapshot,
    decision: Decision,
    settings: Settings,
    metadata: dict[str, Any],
    lane: NativeLane,
) -> tuple[Body, ...]:
    """What stands between users and pods, by mode."""
    if snapshot.spec.gateway.mode is GatewayMode.NONE:
        return (users_service(snapshot, decision, metadata=metadata),)
    if snapshot.spec.gateway.mode is GatewayMode.GATEWAY_API:
        found = http_route(snapshot, decision, lane, metadata=metadata)
        pools = snapshot.spec.gateway.endpoint_picker_ref is not None
        needed = {"HTTPRoute", POOL_KIND} if pools else {"HTTPRoute"}
        return (found,) if found and not needed & snapshot.missing_kinds else ()
    route = next_route(snapshot, decision, lane)
    if shared := snapshot.spec.gateway.shared_name:
        name = snapshot.name
        return (route_config_map(route, name=name, metadata=metadata, shared_gateway=shared),)
    return (
        *gateway_objects(snapshot, decision, settings, metadata=metadata),
        route_config_map(route, name=snapshot.name, metadata=metadata),
    )


def untouched(snapshot: Snapshot, decision: Decision) -> frozenset[str]:
    """Hashes whose Deployment and Service must not be pruned, rendered or not."""
    lane = native_lane(snapshot, decision)
    return frozenset(scale.hash for scale in _scales(decision, lane))


def controller_revision(record: RevisionRecord, *, name: str, metadata: Mapping[str, Any]) -> Body:
    """The stored form of a revision: its words, and the template rendered from them.

    Raises:
        RevisionTooLarge: more than `MAX_REVISION_BYTES`.
    """
    data = {"spec": dict(record.words), "template": record.template}
    size = revision_bytes(record)
    if size > MAX_REVISION_BYTES:
        raise RevisionTooLarge(
            f"revision {record.hash}: {size} bytes, {MAX_REVISION_BYTES} at most"
        )
    notes = {CHANGE_CAUSE: record.cause} if record.cause else {}
    notes |= {RENDER: str(record.render)} if record.render else {}
    annotations = {"annotations": notes} if notes else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            **metadata,
            "name": names.controller_revision(name, record.hash, record.render),
            "labels": names.worker_labels(name, record.hash),
            **annotations,
        },
        "revision": record.number,
        "data": data,
    }


def _metadata(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "namespace": snapshot.namespace,
        "ownerReferences": [names.owner_reference(snapshot.name, snapshot.uid)],
    }


def _scales(decision: Decision, lane: NativeLane) -> tuple[Scale, ...]:
    wanted = (lane.wanted,) if lane.wanted else ()
    return (*decision.scales, *wanted, *lane.leaving)


def _live(
    snapshot: Snapshot, decision: Decision, settings: Settings, lane: NativeLane
) -> Iterator[_Live]:
    for scale in _scales(decision, lane):
        record = record_in_force(
            scale.hash, snapshot, decision, settings, at_most_bytes=MAX_REVISION_BYTES
        )
        if record is None:
            words = _known_words(snapshot, lane, scale.hash)
            if words is None:
                continue
            record = RevisionRecord(
                hash=words.hash,
                number=_number(decision, scale),
                words=words.canonical,
                template=pod_template(words, name=snapshot.name, settings=settings),
                cause=_cause(snapshot, words),
            )
        yield _Live(scale, record)


def _known_words(snapshot: Snapshot, lane: NativeLane, hash_: str) -> Words | None:
    known = (snapshot.words, lane.words)
    return next((words for words in known if words is not None and words.hash == hash_), None)


def _cause(snapshot: Snapshot, words: Words) -> str:
    """What the resource says about its present spec, if these are its words."""
    if words.hash != snapshot.words.hash:
        return ""
    return snapshot.annotations.get(CHANGE_CAUSE, "")[:LONGEST_CAUSE]


def _number(decision: Decision, scale: Scale) -> int:
    """The revision's number in the history; a native one has that of its stable."""
    status = decision.status
    for part in (status.stable, status.canary, status.guard):
        if part is not None and part.hash == scale.hash:
            return part.revision
    return status.stable.revision if status.stable is not None else 1


def _history(snapshot: Snapshot, decision: Decision, lane: NativeLane) -> list[RevisionRecord]:
    """Stored revisions without pods that are kept: the newest `revisionHistoryLimit` of them.

    Those that failed and are remembered as such stay too: their words are what
    a person looks at.
    """
    live = {scale.hash for scale in _scales(decision, lane)}
    failed = {entry.hash for entry in decision.status.failed_revisions}
    if decision.status.guard is not None:
        # What is returned to needs its words, also where none of its pods is kept.
        failed.add(decision.status.guard.hash)
    old = [record for hash_, record in snapshot.revisions.items() if hash_ not in live]
    mine = [record for record in old if not is_native(record.hash, record.words)]
    newest = sorted(mine, key=lambda record: (-record.number, record.hash))
    kept = newest[: snapshot.spec.rollout.revision_history_limit]
    return kept + [r for r in newest[len(kept) :] if r.hash in failed]
