"""What objects of the API server mean in a snapshot."""

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, NOW, UID, a_raw_spec, some_words

from speculative_api import labels
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    POD,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
    Resource,
)
from speculative_operator.desired import names
from speculative_operator.desired.revision import words_of
from speculative_operator.gather import Stores, gather, targets_of
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot, WorkerPod
from speculative_operator.specs import Unreadable

KEY = (NAMESPACE, NAME)
HASH = some_words().hash
BORN = "2026-01-02T00:00:00Z"


class Silence:
    """A Source of pods that never said anything."""

    async def ask(self, targets: Any) -> None:
        del targets

    def digest(self, uid: str) -> None:
        del uid

    def state(self, uid: str) -> None:
        del uid

    def silent_seconds(self, uid: str) -> float:
        del uid
        return 7.0


def stores_with(*things: tuple[Resource, dict[str, Any]]) -> Stores:
    stores = {resource.kind: Store(resource) for resource in WATCHED}
    for resource, thing in things:
        stores[resource.kind].put(thing)
    return stores


def a_thing(name: str, *, uid: str = UID, revision: str = HASH, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "labels": names.worker_labels(NAME, revision),
            "ownerReferences": [names.owner_reference(NAME, uid)],
        },
        **fields,
    }


def a_raw_pod(
    *, component: str = labels.COMPONENT_WORKER, created: str = NOW.isoformat(), **status: Any
) -> dict[str, Any]:
    pod = a_thing("pod-0", status={"phase": "Running", "podIP": "10.0.0.1"} | status)
    pod["metadata"]["labels"][labels.COMPONENT] = component
    pod["metadata"]["creationTimestamp"] = created
    return pod


def gathered(stores: Stores, **parent: Any) -> Snapshot | Unreadable:
    thing = {
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "generation": 3,
            "creationTimestamp": BORN,
        },
        "spec": a_raw_spec(),
    } | parent
    return gather(KEY, thing, stores=stores, source=Silence(), settings=Settings(), now=NOW)


def the_snapshot(stores: Stores, **parent: Any) -> Snapshot:
    found = gathered(stores, **parent)
    assert isinstance(found, Snapshot)
    return found


def the_pod(**status: Any) -> WorkerPod:
    (pod,) = the_snapshot(stores_with((POD, a_raw_pod(**status)))).pods
    return pod


def ended(message: str = "", *, at: str = "2026-01-02T03:00:00Z", **fields: Any) -> dict[str, Any]:
    end = {"exitCode": 1, "reason": "Error", "message": message, "finishedAt": at} | fields
    return {"terminated": end}


def test_a_pod_that_may_not_be_made_says_why() -> None:
    why = "pods forbidden: violates PodSecurity restricted: hostPath volumes"
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "F", "message": why}
    thing = a_thing(f"{NAME}-{HASH}", spec={"replicas": 1}, status={"conditions": [condition]})
    snapshot = the_snapshot(stores_with((DEPLOYMENT, thing)))
    assert why in snapshot.waiting_reason(HASH)


SAID = json.dumps({"reason": "VocabularyMismatch", "retryable": False, "detail": "1 is not 2"})


@pytest.mark.parametrize(
    "container,expected",
    [
        ({"lastState": ended(SAID), "state": {"running": {}}}, ("VocabularyMismatch", False)),
        ({"state": ended(SAID)}, ("VocabularyMismatch", False)),
        ({"state": ended("segfault")}, ("EngineCrashed", True)),
        (
            {"state": ended(json.dumps({"reason": "N" * 99, "retryable": False, "detail": "d"}))},
            ("EngineCrashed", False),
        ),
        ({"state": ended(reason="OOMKilled", exitCode=137)}, ("HostMemory", True)),
        ({"state": ended(exitCode=0)}, None),
        ({"state": {"running": {}}}, None),
        (
            {"state": ended("new", at="2026-01-02T03:00:09Z"), "lastState": ended(SAID)},
            ("EngineCrashed", True),
        ),
    ],
    ids=[
        "last words",
        "words",
        "no words",
        "unknown reason",
        "out of memory",
        "drained",
        "runs",
        "newest counts",
    ],
)
def test_last_words_of_a_worker(
    container: dict[str, Any], expected: tuple[str, bool] | None
) -> None:
    end = the_pod(containerStatuses=[{"name": "worker", "restartCount": 2, **container}])
    found = (end.termination.reason, end.termination.retryable) if end.termination else None
    assert found == expected
    assert end.restarts == 2


@pytest.mark.parametrize(
    "status,expected",
    [
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes: 1 Insufficient nvidia.com/gpu",
                    }
                ]
            },
            "Unschedulable: 0/1 nodes: 1 Insufficient nvidia.com/gpu",
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}
                ]
            },
            "ImagePullBackOff: x",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], expected: str) -> None:
    assert the_pod(**status).waiting_reason == expected


@pytest.mark.parametrize(
    "conditions, expected",
    [
        ([], None),
        ([{"type": "Ready", "status": "False", "lastTransitionTime": BORN}], None),
        ([{"type": "Ready", "status": "True", "lastTransitionTime": BORN}], 1767312000.0),
        ([{"type": "Ready", "status": "True"}], None),
    ],
    ids=["nothing said", "not ready", "ready", "ready without a time"],
)
def test_since_when_a_pod_is_ready(conditions: list[Any], expected: float | None) -> None:
    assert the_pod(conditions=conditions).ready_at == expected


def test_evicted_pod_no_longer_counts() -> None:
    pod = the_pod(phase="Failed")
    assert (pod.terminating, pod.over) == (True, True)
    assert not the_pod(phase="Running").over
    evicted = a_raw_pod(component=labels.COMPONENT_GATEWAY, phase="Failed")
    stores = stores_with((POD, evicted))
    assert the_snapshot(stores).gateways == ()
    assert list(targets_of(stores, KEY)) == []


def test_a_worker_is_asked_with_how_its_revision_drafts() -> None:
    words = some_words(5)
    revision = a_thing("r", revision=words.hash)
    revision["data"] = {"spec": dict(words.canonical), "template": {}}
    pods = [
        (POD, a_raw_pod(podIP="10.0.0.1") | a_thing(f"p-{each}", revision=each))
        for each in (words.hash, "0123456789")
    ]
    for _, pod in pods:
        pod["metadata"]["labels"][labels.COMPONENT] = labels.COMPONENT_WORKER
    found = targets_of(stores_with((CONTROLLER_REVISION, revision), *pods), KEY)
    assert sorted((target.method, target.num_speculative_tokens) for target in found) == [
        ("", None),
        ("NGram", 5),
    ]


def test_pod_of_a_former_resource_of_the_same_name_is_not_seen() -> None:
    old = a_raw_pod(created="2026-01-01T00:00:00Z")
    assert the_snapshot(stores_with((POD, old))).pods == ()


def test_gateway_without_an_address_is_silent_since_it_exists() -> None:
    created = (NOW - timedelta(seconds=40)).isoformat()
    pod = a_raw_pod(component=labels.COMPONENT_GATEWAY, created=created, podIP="")
    (gateway,) = the_snapshot(stores_with((POD, pod))).gateways
    assert gateway.silent_seconds == 40.0
    pod = a_raw_pod(component=labels.COMPONENT_GATEWAY, created=created)
    (gateway,) = the_snapshot(stores_with((POD, pod))).gateways
    assert gateway.silent_seconds == 7.0


def test_a_divided_revision_is_seen_as_one() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "Quota", "message": "full"}
    parts = [
        (DEPLOYMENT, a_thing("a", spec={"replicas": 3}, status={"readyReplicas": 2})),
        (
            DEPLOYMENT,
            a_thing(
                "a-spot",
                spec={"replicas": 2},
                status={"readyReplicas": 1, "conditions": [failure]},
            ),
        ),
    ]
    for order in (parts, parts[::-1]):
        (view,) = the_snapshot(stores_with(*order)).deployments.values()
        assert (view.name, view.replicas, view.ready_replicas) == ("a", 5, 3)
        assert view.failure == "Quota: full"


def test_children_of_somebody_else_are_not_seen() -> None:
    stores = stores_with(
        (DEPLOYMENT, a_thing("a", uid="other", spec={"replicas": 1})),
        (CONTROLLER_REVISION, a_thing("b", uid="other", data={"spec": {}, "template": {}})),
        (CONFIG_MAP, a_thing(names.route(NAME), uid="other", data={"route.json": "{}"})),
    )
    found = the_snapshot(stores)
    assert (found.deployments, found.revisions, found.route) == ({}, {}, None)


@pytest.mark.parametrize("text", ["", "{", '{"ownerUid": "u"}', "[]"])
def test_route_that_cannot_be_read_is_none(text: str) -> None:
    stores = stores_with((CONFIG_MAP, a_thing(names.route(NAME), data={"route.json": text})))
    assert the_snapshot(stores).route is None


def test_spec_of_an_unknown_shape_is_unreadable_and_says_where_without_the_value() -> None:
    secret = "hunter2"
    found = gathered(stores_with(), spec=a_raw_spec(pod={"env": secret}))
    assert isinstance(found, Unreadable)
    assert "pod.env" in found.message
    assert secret not in found.message


def test_k_of_0_forced_past_the_schema_is_unreadable() -> None:
    found = gathered(
        stores_with(), spec=a_raw_spec(speculation={"method": "NGram", "numSpeculativeTokens": 0})
    )
    assert isinstance(found, Unreadable)
    assert "numSpeculativeTokens: Input should be greater than or equal to 1" in found.message


def test_contradiction_is_a_finding() -> None:
    found = the_snapshot(stores_with(), spec=a_raw_spec(engine={"extraArgs": ["--max-num-seqs=3"]}))
    assert any("max-num-seqs" in finding for finding in found.findings)


def test_unreadable_status_is_an_empty_one() -> None:
    found = the_snapshot(stores_with(), status={"stable": {"revision": "x"}})
    assert found.status.stable is None


CLEANING = {"download": "Job", "cleanUp": {"mode": "Remove"}}
CACHED = {"modelCache": {"persistentVolumeClaim": "cache"}}


def with_models() -> Stores:
    """This resource's revision, another resource beside it, and one in another namespace."""
    draft = {"method": "DraftModel", "draft": {"model": "s3://b/draft"}}
    words = {"target": {"model": "hf://org/old@abc"}, "speculation": draft}
    record = a_thing(f"{NAME}-{HASH}", data={"spec": words, "template": {}})
    lora = {"adapters": [{"name": "a", "model": "hf://org/adapter"}]}
    beside = {"name": "beside", "namespace": NAMESPACE, "uid": "u2"}
    away = {"name": "away", "namespace": "elsewhere", "uid": "u3"}
    return stores_with(
        (CONTROLLER_REVISION, record),
        (
            SPECULATIVE_DEPLOYMENT,
            {"metadata": beside, "spec": {"target": {"model": "file:///x", "lora": lora}}},
        ),
        (SPECULATIVE_DEPLOYMENT, {"metadata": away, "spec": {"target": {"model": "hf://o/away"}}}),
    )


def test_models_of_every_resource_and_revision_of_the_namespace_are_in_use() -> None:
    spec = a_raw_spec(rollout=CLEANING, target={"model": "hf://org/new"}, **CACHED)
    found = the_snapshot(with_models(), spec=spec).models_in_use
    assert found == ("hf://org/adapter", "hf://org/old@abc", "s3://b/draft")


def test_they_are_looked_up_only_where_a_job_may_begin_that_cleans_up() -> None:
    spec = a_raw_spec(rollout=CLEANING, target={"model": "hf://org/new"}, **CACHED)
    words = words_of(SpeculativeDeploymentSpec.model_validate(spec))
    settled = {"stable": {"hash": words.hash, "revision": 1}}
    assert the_snapshot(with_models(), spec=spec, status=settled).models_in_use is None
    assert the_snapshot(with_models()).models_in_use is None


def test_a_shared_gateways_pods_are_asked_for_this_members_part() -> None:
    spec = a_raw_spec(gateway={"mode": "Shared", "shared": {"name": "edge"}})
    parent = a_thing(NAME)
    parent["metadata"]["uid"] = UID
    pod = a_raw_pod(component=labels.COMPONENT_GATEWAY)
    pod["metadata"]["labels"] = names.shared_labels("edge")
    stores = stores_with((SPECULATIVE_DEPLOYMENT, {**parent, "spec": spec}), (POD, pod))
    (gateway,) = the_snapshot(stores, spec=spec).gateways
    assert (gateway.name, gateway.uid, gateway.silent_seconds) == ("pod-0", "uid-pod-0", 7.0)
    (target,) = targets_of(stores, KEY)
    assert (target.uid, target.role, target.member) == (f"uid-pod-0/{NAME}", "gateway", NAME)
    # whoever has a gateway of its own has nothing to do with it
    stores = stores_with((SPECULATIVE_DEPLOYMENT, {**parent, "spec": a_raw_spec()}), (POD, pod))
    assert the_snapshot(stores).gateways == ()
    assert list(targets_of(stores, KEY)) == []
