"""A group is seen as its leader, which says what is wrong with any of its pods."""

import json
from typing import Any

import pytest
from tests.builders import NAME, NOW
from tests.reconcile.test_gather import HASH, a_raw_pod, a_thing, stores_with, the_snapshot

from speculative_api import labels
from speculative_operator.cluster.groups import UNSEEN
from speculative_operator.cluster.resources import CONTROLLER_REVISION, LEADER_WORKER_SET, POD
from speculative_operator.gather import targets_of
from speculative_operator.snapshot import Snapshot, WorkerPod

KEY = ("llm", NAME)
EARLIER = "2026-01-02T03:04:00+00:00"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def a_member(rank: int, *, created: str = NOW.isoformat(), **status: Any) -> dict[str, Any]:
    component = labels.COMPONENT_FOLLOWER if rank else labels.COMPONENT_WORKER
    pod = a_raw_pod(component=component, created=created, **status)
    name = f"{NAME}-{HASH}-g-0" + (f"-{rank}" if rank else "")
    pod["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    pod["metadata"]["labels"][labels.GROUPS_NAME] = f"{NAME}-{HASH}-g"
    if rank:
        pod["metadata"]["annotations"] = {labels.LEADER_NAME: f"{NAME}-{HASH}-g-0"}
    return pod


def container(word: dict[str, Any] | None = None, *, restarts: int = 0) -> dict[str, Any]:
    end = {"exitCode": 1, "message": json.dumps(word), "finishedAt": "2026-01-02T03:00:00Z"}
    last = {"lastState": {"terminated": end}} if word else {}
    return {"containerStatuses": [{"restartCount": restarts, **last}]}


def the_group(*members: dict[str, Any]) -> WorkerPod:
    (leader,) = the_snapshot(stores_with(*((POD, member) for member in members))).pods
    return leader


def word(reason: str, *, retryable: bool = True) -> dict[str, Any]:
    return {"reason": reason, "retryable": retryable, "detail": reason}


def test_a_group_is_ready_when_its_leader_is() -> None:
    assert the_group(a_member(0, **READY), a_member(1)).ready
    assert not the_group(a_member(0), a_member(1, **READY)).ready
    assert the_group(a_member(0)).is_group


def test_only_leaders_are_asked() -> None:
    stores = stores_with((POD, a_member(0)), (POD, a_member(1)))
    assert [target.pod for target in targets_of(stores, KEY)] == [f"{NAME}-{HASH}-g-0"]


def test_restarts_of_every_pod_count() -> None:
    leader = a_member(0, **container(restarts=1))
    assert the_group(leader, a_member(1, **container(restarts=2))).restarts == 3


@pytest.mark.parametrize(
    ("leader", "follower", "told"),
    [
        (word("EngineCrashed"), word("HubUnreachable"), "EngineCrashed"),
        (word("EngineCrashed"), word("ModelNotFound", retryable=False), "ModelNotFound"),
        (None, word("HubUnreachable"), "HubUnreachable"),
    ],
    ids=["the leader's", "one that no retry cures", "whoever's there is"],
)
def test_of_several_last_words_the_telling_one(
    leader: dict[str, Any] | None, follower: dict[str, Any], told: str
) -> None:
    found = the_group(a_member(0, **container(leader)), a_member(1, **container(follower)))
    assert found.termination is not None
    assert found.termination.reason == told


def test_a_former_leaders_followers_say_nothing_of_this_one() -> None:
    old = a_member(1, created=EARLIER, **container(word("EngineCrashed"), restarts=1))
    found = the_group(a_member(0), old)
    assert (found.termination, found.restarts) == (None, 0)


def test_a_follower_that_finds_no_room_is_named() -> None:
    unscheduled = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/2 nodes are available",
            }
        ]
    }
    found = the_group(a_member(0), a_member(1, **unscheduled))
    assert found.waiting_reason == (f"Unschedulable: 0/2 nodes are available ({NAME}-{HASH}-g-0-1)")


def a_set(**status: Any) -> dict[str, Any]:
    stamp = {labels.RESTARTED_AT: "2026-01-01T00:00:00Z"}
    template = {"leaderTemplate": {"metadata": {"annotations": stamp}}}
    spec = {"replicas": 3, "leaderWorkerTemplate": template}
    thing = a_thing(f"{NAME}-{HASH}-g", spec=spec, **status)
    thing["metadata"]["labels"][labels.TRACK] = "stable"
    return thing


def view_of(*, missing: bool = False, **status: Any) -> Snapshot:
    stores = stores_with((LEADER_WORKER_SET, a_set(**status)))
    stores[LEADER_WORKER_SET.kind].missing = missing
    return the_snapshot(stores)


def test_a_set_is_seen_like_a_deployment() -> None:
    (view,) = view_of(status={"readyReplicas": 2, "replicas": 3}).deployments.values()
    assert (view.hash, view.track, view.is_groups) == (HASH, "stable", True)
    assert (view.replicas, view.ready_replicas, view.failure) == (3, 2, "")
    assert view.restarted_at == "2026-01-01T00:00:00Z"


def test_a_set_that_no_controller_has_seen_says_so() -> None:
    snapshot = view_of()
    assert snapshot.waiting_reason(HASH) == UNSEEN


def test_sets_go_with_their_kind() -> None:
    assert view_of(missing=True).deployments == {}


def test_a_stateful_sets_own_revision_says_nothing_of_drafts() -> None:
    ours = a_thing("ours", data={"spec": {"speculation": {"method": "MTP"}}, "template": {}})
    theirs = a_thing("zzz", data={"spec": {"template": {}}})
    theirs["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"
    stores = stores_with(
        (CONTROLLER_REVISION, ours), (CONTROLLER_REVISION, theirs), (POD, a_member(0))
    )
    assert [target.method for target in targets_of(stores, KEY)] == ["MTP"]
