"""A revision of several nodes: one LeaderWorkerSet, whose leaders alone are workers."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import NAME, a_record, a_snapshot, a_spec, a_status

from speculative_api import labels
from speculative_operator.decision import Decision, Scale
from speculative_operator.desired import names
from speculative_operator.desired.objects import desired_objects
from speculative_operator.desired.revision import words_of
from speculative_operator.desired.workers import pod_template
from speculative_operator.settings import Settings

SETTINGS = Settings(worker_image="worker:1")
TARGET = {
    "model": "file:///m",
    "tensorParallelSize": 8,
    "pipelineParallelSize": 2,
    "nodesPerReplica": 2,
}


def rendered(*, replicas: int = 2, missing: bool = False, **spec: Any) -> list[dict[str, Any]]:
    """All objects of a resource whose stable revision has groups."""
    wanted = a_spec(target=TARGET, replicas=replicas, **spec)
    words = words_of(wanted)
    template = pod_template(words, name=NAME, settings=SETTINGS)
    status = a_status(stable=words)
    snapshot = a_snapshot(wanted, status=status, revisions=[a_record(words, template=template)])
    if missing:
        snapshot = replace(snapshot, missing_kinds=frozenset({"LeaderWorkerSet"}))
    scales = (Scale(words.hash, "stable", replicas),)
    decision = Decision(status=status, transition=False, scales=scales, shares=())
    return list(desired_objects(snapshot, decision, SETTINGS))


def the_set(**spec: Any) -> dict[str, Any]:
    (found,) = [body for body in rendered(**spec) if body["kind"] == "LeaderWorkerSet"]
    return found


def parts(found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    template = found["spec"]["leaderWorkerTemplate"]
    return template["leaderTemplate"], template["workerTemplate"]


def test_gpus_are_divided_among_the_nodes() -> None:
    found = the_set()
    assert found["spec"]["leaderWorkerTemplate"]["size"] == 2
    for part in parts(found):
        (container,) = part["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_only_leaders_are_found_by_the_revisions_service() -> None:
    bodies = rendered()
    leader, follower = parts(the_set())
    services = [
        body["spec"]["selector"]
        for body in bodies
        if body["kind"] == "Service" and body["spec"].get("clusterIP") == "None"
    ]
    assert services
    for selector in services:
        assert selector.items() <= leader["metadata"]["labels"].items()
        assert not selector.items() <= follower["metadata"]["labels"].items()


def test_a_follower_differs_by_its_label_and_its_command() -> None:
    leader, follower = parts(the_set())
    assert leader["spec"]["containers"][0]["args"] == ["run"]
    assert follower["spec"]["containers"][0].pop("args") == ["follow"]
    assert follower["metadata"]["labels"].pop(labels.COMPONENT) == labels.COMPONENT_FOLLOWER
    del leader["spec"]["containers"][0]["args"], leader["metadata"]["labels"][labels.COMPONENT]
    assert leader == follower


def test_the_sets_own_service_does_not_meet_the_revisions() -> None:
    found = the_set()
    revision = found["metadata"]["labels"][labels.REVISION]
    assert found["metadata"]["name"] == names.groups(NAME, revision)
    assert found["metadata"]["name"] not in {
        body["metadata"]["name"] for body in rendered() if body["kind"] == "Service"
    }


def test_the_track_is_on_the_set_alone() -> None:
    found = the_set()
    assert found["metadata"]["labels"][labels.TRACK] == "stable"
    assert not any(labels.TRACK in part["metadata"]["labels"] for part in parts(found))


@pytest.mark.parametrize(
    ("rollout", "surge"),
    [({}, 1), ({"capacity": "InPlace"}, 0)],
    ids=["Surge", "InPlace"],
)
def test_a_restart_replaces_a_group_as_it_would_a_pod(rollout: dict[str, Any], surge: int) -> None:
    strategy = the_set(rollout=rollout)["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (strategy["maxSurge"], strategy["maxUnavailable"]) == (surge, 1 - surge)


def test_the_address_of_the_pod_can_be_said_by_the_spec() -> None:
    def said(**spec: Any) -> list[dict[str, Any]]:
        env = parts(the_set(**spec))[1]["spec"]["containers"][0]["env"]
        return [variable for variable in env if variable["name"] == "VLLM_HOST_IP"]

    assert said()[0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert said(pod={"env": [{"name": "VLLM_HOST_IP", "value": "10.9.0.1"}]}) == [
        {"name": "VLLM_HOST_IP", "value": "10.9.0.1"}
    ]


def test_native_pods_are_groups_too() -> None:
    bodies = rendered(lanes={"native": {"replicas": 1}})
    tracks = [
        body["metadata"]["labels"][labels.TRACK]
        for body in bodies
        if body["kind"] == "LeaderWorkerSet"
    ]
    assert tracks == ["stable", "native"]


def test_a_cluster_without_the_kind_is_not_asked_for_it() -> None:
    assert not [body for body in rendered(missing=True) if body["kind"] == "LeaderWorkerSet"]


def test_one_node_says_nothing_new() -> None:
    one, same = a_spec(), a_spec(target={"model": "file:///models/target", "nodesPerReplica": 1})
    assert words_of(one) == words_of(same)
    template = pod_template(words_of(one), name=NAME, settings=SETTINGS)
    assert "nodes" not in template["spec"]["containers"][0]["env"][0]["value"]
