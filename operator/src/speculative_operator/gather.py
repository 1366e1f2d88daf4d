"""Caches and last answers of pods become a Snapshot. Called once per pass.

Reads stores only, no request. What can't be read is left out or, for the spec
itself, given back as `Unreadable`; a pass never fails for a bad object.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from speculative_api import labels
from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.cluster import applied, groups
from speculative_operator.cluster.autoscaler import autoscaler_of
from speculative_operator.cluster.companions import shared_pods, shared_view
from speculative_operator.cluster.fetched_models import fetched_models
from speculative_operator.cluster.http_routes import http_route_of, pools_of
from speculative_operator.cluster.last_words import termination_of, waiting_reason_of
from speculative_operator.cluster.preflights import check_of
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    JSON,
    LEADER_WORKER_SET,
    POD,
    Key,
    controller_uid,
    uid_of,
)
from speculative_operator.metrics.source import Source, Target, state_key
from speculative_operator.readings import Readings
from speculative_operator.settings import Settings
from speculative_operator.snapshot import (
    DeploymentView,
    GatewayPod,
    RevisionRecord,
    Snapshot,
    WorkerPod,
)
from speculative_operator.specs import ReadSpec, Specs, Unreadable

log = logging.getLogger(__name__)

_OVER: Final = ("Succeeded", "Failed")
"""Phases of a pod that runs nothing any more; an evicted one stays around as Failed."""

Stores = Mapping[str, Store]


def gather(
    key: Key,
    parent: JSON,
    *,
    stores: Stores,
    source: Source,
    settings: Settings,
    now: datetime,
    conflicts: tuple[str, ...] = (),
    refusals: tuple[str, ...] = (),
    shared_conflicts: tuple[str, ...] = (),
    specs: Specs | None = None,
    readings: Readings | None = None,
) -> Snapshot | Unreadable:
    """Everything the pass may know about one resource.

    `specs` and `readings` spare reading again what did not change.
    """
    known = readings or Readings()
    found = (specs or Specs(settings)).read(key, parent.get("spec", {}))
    if isinstance(found, Unreadable):
        return found
    namespace, name = key
    uid = uid_of(parent)
    pods = [pod for pod in pods_of(stores, key) if not _is_older(pod, parent)]
    status = known.healed(key, parent, now)
    records = sorted(_revisions(stores, key, uid, status), key=lambda record: record.render)
    revisions = {record.hash: record for record in records}
    shared, spec = shared_view(stores, key, found.spec, uid, shared_conflicts)
    contested = applied.warning(parent["metadata"], autoscaled=found.spec.autoscaling is not None)
    return Snapshot(
        now=now,
        namespace=namespace,
        name=name,
        uid=uid,
        generation=int(parent["metadata"].get("generation", 0)),
        spec=spec,
        status=status,
        words=found.words,
        annotations=parent["metadata"].get("annotations") or {},
        findings=found.findings,
        warnings=(*found.warnings, *((contested,) if contested else ())),
        conflicts=conflicts,
        refusals=refusals,
        revisions=revisions,
        older_renders=tuple(r for r in records if revisions[r.hash] is not r),
        deployments=_by_revision(_deployments(stores, key, uid)),
        pods=tuple(_workers(pods, source)),
        gateways=(
            *_gateways(pods, source, now, member=""),
            *_gateways(shared_pods(stores, key), source, now, member=name),
        ),
        autoscaler=autoscaler_of(stores, key, uid),
        route=known.route(key, stores[CONFIG_MAP.kind], uid, shared=shared is not None),
        shared=shared,
        http_route=http_route_of(stores, key, uid, spec.gateway.parent_ref),
        pools=pools_of(stores, key, uid, spec.gateway.parent_ref),
        check=check_of(stores, key, uid, status.preflight, source.digest),
        models_in_use=fetched_models(stores, namespace) if _may_clean_up(found, status) else None,
        missing_kinds=frozenset(kind for kind, store in stores.items() if store.missing),
    )


def _may_clean_up(found: ReadSpec, status: SpeculativeDeploymentStatus) -> bool:
    """Whether a revision may begin, with a Job that looks after the cache: others are spared it."""
    settled = status.stable is not None and status.stable.hash == found.words.hash
    return found.spec.rollout.clean_up is not None and not settled


def pods_of(stores: Stores, key: Key) -> list[JSON]:
    """All pods of the resource, by name."""
    return [pod for _, pod in sorted(stores[POD.kind].of(key).items())]


def targets_of(stores: Stores, key: Key) -> Iterator[Target]:
    """Whom to ask: pods with an address that still run something."""
    drafting = dict(_drafting(stores, key))
    for pod in pods_of(stores, key):
        status = pod.get("status", {})
        address = status.get("podIP", "")
        if not address or status.get("phase") in _OVER:
            continue
        component = _label(pod, labels.COMPONENT)
        if component == labels.COMPONENT_WORKER:
            method, tokens = drafting.get(_label(pod, labels.REVISION), ("", None))
            pod_name = pod["metadata"]["name"]
            yield Target(uid_of(pod), address, "worker", method, tokens, pod_name)
        elif component == labels.COMPONENT_DOWNLOAD:
            yield Target(uid_of(pod), address, "worker", pod=pod["metadata"]["name"])
        elif component == labels.COMPONENT_GATEWAY:
            yield Target(uid_of(pod), address, "gateway")
    for pod in shared_pods(stores, key):
        status = pod.get("status", {})
        if (address := status.get("podIP", "")) and status.get("phase") not in _OVER:
            asked_as = state_key(uid_of(pod), key[1])
            yield Target(asked_as, address, "gateway", member=key[1])


def _drafting(stores: Stores, key: Key) -> Iterator[tuple[str, tuple[str, int | None]]]:
    """How each stored revision drafts, by its hash."""
    for thing in stores[CONTROLLER_REVISION.kind].of(key).values():
        spec = (thing.get("data") or {}).get("spec") or {}
        if not any(
            o.get("kind") == labels.KIND for o in thing["metadata"].get("ownerReferences", ())
        ):
            # A StatefulSet's, which has its pods' labels: that of a LeaderWorkerSet.
            continue
        said = spec.get("speculation") or {}
        tokens = said.get("numSpeculativeTokens")
        method = str(said.get("method", "None"))
        yield _label(thing, labels.REVISION), (method, tokens if isinstance(tokens, int) else None)


def _revisions(
    stores: Stores, key: Key, uid: str, status: SpeculativeDeploymentStatus
) -> Iterator[RevisionRecord]:
    """All stored renderings, but for one that was taken back."""
    back = status.restart if status.restart and status.restart.outcome == "Reverted" else None
    for thing in stores[CONTROLLER_REVISION.kind].of(key).values():
        data = thing.get("data") or {}
        hash_, render = _label(thing, labels.REVISION), _render(thing)
        if back is not None and (back.hash, back.render) == (hash_, render):
            continue
        if controller_uid(thing) == uid and "spec" in data and "template" in data:
            yield RevisionRecord(
                hash=hash_,
                render=render,
                number=int(thing.get("revision", 0)),
                words=data["spec"],
                template=data["template"],
                cause=(thing["metadata"].get("annotations") or {}).get(labels.CHANGE_CAUSE, ""),
            )


def _render(thing: JSON) -> int:
    said = (thing["metadata"].get("annotations") or {}).get(labels.RENDER, "0")
    return int(said) if said.isascii() and said.isdigit() else 0


def _restarted_at(thing: JSON) -> str:
    """Of a pod, or of a Deployment's template."""
    annotations = (thing.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(labels.RESTARTED_AT, ""))


def _deployments(stores: Stores, key: Key, uid: str) -> Iterator[DeploymentView]:
    for name, thing in stores[DEPLOYMENT.kind].of(key).items():
        if controller_uid(thing) == uid and _label(thing, labels.REVISION):
            template = thing.get("spec", {}).get("template", {})
            yield _view(name, thing, template, failure=_replica_failure(thing))
    store = stores[LEADER_WORKER_SET.kind]
    # With its kind every object of it is gone, and the store has not heard.
    for name, thing in {} if store.missing else store.of(key).items():
        if controller_uid(thing) == uid and _label(thing, labels.REVISION):
            found = _view(name, thing, groups.template_of(thing), failure=groups.failure_of(thing))
            yield replace(found, is_groups=True)


def _view(name: str, thing: JSON, template: JSON, *, failure: str) -> DeploymentView:
    return DeploymentView(
        name=name,
        hash=_label(thing, labels.REVISION),
        track=_label(thing, labels.TRACK),
        replicas=int(thing.get("spec", {}).get("replicas", 0)),
        ready_replicas=int(thing.get("status", {}).get("readyReplicas", 0)),
        restarted_at=_restarted_at(template),
        failure=failure,
    )


def _by_revision(views: Iterable[DeploymentView]) -> dict[str, DeploymentView]:
    """One view of each revision; of one that is divided (`pod.spot`) the sum of its parts."""
    found: dict[str, DeploymentView] = {}
    for view in sorted(views, key=lambda each: each.name):
        other = found.get(view.hash)
        found[view.hash] = view if other is None else _sum(other, view)
    return found


def _sum(first: DeploymentView, second: DeploymentView) -> DeploymentView:
    return replace(
        first,
        replicas=first.replicas + second.replicas,
        ready_replicas=first.ready_replicas + second.ready_replicas,
        failure=first.failure or second.failure,
    )


def _replica_failure(deployment: JSON) -> str:
    for condition in deployment.get("status", {}).get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:1024]
    return ""


def _workers(pods: list[JSON], source: Source) -> Iterator[WorkerPod]:
    """Every worker; of a group (`target.nodesPerReplica`) its leader, for all of it."""
    followers = groups.followers_of(pods)
    for pod in _of(pods, labels.COMPONENT_WORKER):
        worker = _worker(pod, source)
        mine = followers.get(worker.name)
        yield groups.with_followers(worker, pod, mine) if mine else worker


def _worker(pod: JSON, source: Source) -> WorkerPod:
    metadata, status = pod["metadata"], pod.get("status", {})
    containers = status.get("containerStatuses") or []
    return WorkerPod(
        name=metadata["name"],
        uid=uid_of(pod),
        revision=_label(pod, labels.REVISION),
        ready=_is_ready(pod),
        ready_at=_ready_at(pod),
        terminating=_is_leaving(pod),
        over=status.get("phase") in _OVER,
        address=status.get("podIP", ""),
        restarts=sum(int(container.get("restartCount", 0)) for container in containers),
        restarted_at=_restarted_at(pod),
        termination=termination_of(containers),
        waiting_reason=waiting_reason_of(status, containers),
        digest=source.digest(uid_of(pod)),
        is_group=bool(_label(pod, labels.GROUPS_NAME)),
    )


def _gateways(
    pods: list[JSON], source: Source, now: datetime, *, member: str
) -> Iterator[GatewayPod]:
    """Gateway pods that still run something; of a shared gateway what concerns the member."""
    for pod in _of(pods, labels.COMPONENT_GATEWAY):
        if pod.get("status", {}).get("phase") not in _OVER:
            yield _gateway(pod, source, now, asked_as=state_key(uid_of(pod), member))


def _gateway(pod: JSON, source: Source, now: datetime, *, asked_as: str) -> GatewayPod:
    address = pod.get("status", {}).get("podIP", "")
    # A pod without an address can't be asked: it is silent since it exists.
    silent = source.silent_seconds(asked_as) if address else _age(pod, now)
    return GatewayPod(
        name=pod["metadata"]["name"],
        uid=uid_of(pod),
        ready=_is_ready(pod),
        terminating=_is_leaving(pod),
        address=address,
        state=source.state(asked_as),
        silent_seconds=silent,
    )


def _is_ready(pod: JSON) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _ready_at(pod: JSON) -> float | None:
    for condition in pod.get("status", {}).get("conditions") or []:
        since = condition.get("lastTransitionTime")
        if condition.get("type") == "Ready" and condition.get("status") == "True" and since:
            return datetime.fromisoformat(since).timestamp()
    return None


def _is_leaving(pod: JSON) -> bool:
    over = pod.get("status", {}).get("phase") in _OVER
    return over or "deletionTimestamp" in pod["metadata"]


def _is_older(pod: JSON, parent: JSON) -> bool:
    """Whether it belongs to a former resource of the same name (RFC 3339 sorts as text)."""
    created, born = (t["metadata"].get("creationTimestamp", "") for t in (pod, parent))
    return bool(created and born and created < born)


def _age(pod: JSON, now: datetime) -> float:
    created = pod["metadata"].get("creationTimestamp", "")
    return (now - datetime.fromisoformat(created)).total_seconds() if created else 0.0


def _of(pods: list[JSON], component: str) -> Iterator[JSON]:
    return (pod for pod in pods if _label(pod, labels.COMPONENT) == component)


def _label(thing: JSON, label: str) -> str:
    return str((thing["metadata"].get("labels") or {}).get(label, ""))
