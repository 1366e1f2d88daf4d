"""Replicas of several pods under LeaderWorkerSet's own controller, with simulated engines."""

from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster.local import dead_parts
from e2e.cluster.settings import current_settings
from e2e.dsl import Trial, a_manifest, a_trial, load_on, wait_for
from e2e.groups_controller import groups_installed
from e2e.kubectl import apply, kubectl, listed
from e2e.names import names_answered
from e2e.test_gateway import ask

pytestmark = pytest.mark.cluster

TARGET = {"model": "hf://example/simulated", "tensorParallelSize": 2, "nodesPerReplica": 2}


@pytest.fixture(scope="module", autouse=True)
def groups() -> Iterator[None]:
    if dead_parts(current_settings()):
        pytest.skip("on the local cluster only: its API server and pods reach this machine's ports")
    with groups_installed(), names_answered():
        yield


@pytest.fixture
def trial() -> Iterator[Trial]:
    with a_trial("groups") as made:
        yield made


def asked(trial: Trial, *, replicas: int = 1, **changes: Any) -> None:
    apply(a_manifest(trial.name, target=TARGET, replicas=replicas, **changes), trial.namespace)


def sets(trial: Trial) -> dict[str, int]:
    """Replicas that each LeaderWorkerSet asks for, by name."""
    found = listed("leaderworkersets", trial.namespace)
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}


def group_of(trial: Trial, leader: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A leader's followers, by UID."""
    name = leader["metadata"]["name"]
    key = "leaderworkerset.sigs.k8s.io/leader-name"
    followers = trial.pods("follower").items()
    return {
        uid: pod
        for uid, pod in followers
        if pod["metadata"].get("annotations", {}).get(key) == name
    }


def test_a_group_is_tried_promoted_replaced_and_taken_away_as_one(trial: Trial) -> None:
    asked(trial, replicas=2)
    stable = trial.wait_available()
    assert sets(trial) == {f"chat-{stable}-g": 2}
    assert trial.status["stable"]["readyReplicas"] == 2
    leaders = trial.pods()
    assert [len(group_of(trial, leader)) for leader in leaders.values()] == [1, 1]
    assert ask(trial)[0] == 200
    with load_on(trial.url(), trial.namespace) as report:
        # when a bad draft is tried, then a good one
        asked(trial, replicas=2, acceptance_percent=2)
        status = trial.wait_progressing("RolledBack")
        assert status["failedRevisions"][0]["reason"] == "AcceptanceWorse"
        wait_for("only stable runs", lambda: trial.revisions_running() == {stable})
        assert set(leaders) <= set(trial.pods())
        asked(trial, replicas=2, k=6, acceptance_percent=85)
        good = trial.wait_progressing("CanaryWeighted")["canary"]["hash"]
        tried = {uid for uid, pod in trial.pods().items() if of(good, pod)}
        trial.wait_progressing("Complete")
        wait_for("only the good one runs", lambda: trial.revisions_running() == {good})
        # then the groups that were tried serve on
        assert tried <= set(trial.pods())
        # when a follower is evicted
        victim = next(pod for pod in trial.pods().values() if pod["metadata"]["uid"] in tried)
        (follower,) = group_of(trial, victim).values()
    assert report()["failed"] == report()["cut"] == 0
    assert report()["ok"] > 50
    kubectl("delete", "pod", follower["metadata"]["name"], "-n", trial.namespace, "--wait=false")
    # then its group is made anew, and the other one serves meanwhile
    wait_for("its leader goes", lambda: victim["metadata"]["uid"] not in trial.pods())
    assert ask(trial)[0] == 200
    wait_for("both are ready", lambda: trial.status["stable"]["readyReplicas"] == 2, 120)
    # when one replica is enough
    asked(trial, replicas=1, k=6, acceptance_percent=85)
    wait_for("one group is left", lambda: len(trial.pods()) == len(trial.pods("follower")) == 1)
    (left,) = trial.pods().values()
    assert left["metadata"]["name"] == f"chat-{good}-g-0"
    assert ask(trial)[0] == 200


def of(revision: str, pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"]["labels"]["speculative.dev/revision"] == revision)


def test_groups_that_crash_fail_their_revision_and_leave_stable_alone(trial: Trial) -> None:
    asked(trial)
    stable = trial.wait_available()
    served_by = set(trial.pods())
    asked(trial, k=5, crash_text="RuntimeError: NCCL error: unhandled system error")
    status = trial.wait_progressing("RolledBack", 240)
    assert status["failedRevisions"][0]["reason"] == "CanaryUnhealthy"
    assert status["stable"]["hash"] == stable
    wait_for("only stable runs", lambda: trial.revisions_running() == {stable})
    assert served_by <= set(trial.pods())
    assert ask(trial)[0] == 200
