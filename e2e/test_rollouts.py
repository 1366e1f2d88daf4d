"""The main job with simulated workers: real API server, pods, Services and Envoy."""

import json
from collections.abc import Iterator

import pytest
from e2e.dsl import Trial, a_trial, load_on, wait_for
from e2e.kubectl import home, kubectl

pytestmark = pytest.mark.cluster


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    label = request.node.name.removeprefix("test_")[:16].rstrip("_").replace("_", "-")
    with a_trial(label) as made:
        yield made


def test_bad_draft_is_rolled_back_and_a_good_one_promoted_without_an_error(trial: Trial) -> None:
    # given a stable revision under load
    trial.apply(k=4, acceptance_percent=80)
    stable = trial.wait_available()
    stable_pods = set(trial.pods())
    with load_on(trial.url(), trial.namespace) as report:
        # when a revision is applied whose draft is hardly ever accepted
        trial.apply(k=4, acceptance_percent=2)
        trial.wait_progressing("CanaryWeighted")
        status = trial.wait_progressing("RolledBack")
        # then it is rolled back on acceptance, stable's pods untouched
        assert status["failedRevisions"][0]["reason"] == "AcceptanceWorse"
        assert "percent" in status["verdict"]["message"] or "%" in status["verdict"]["message"]
        wait_for("only stable runs", lambda: trial.revisions_running() == {stable})
        assert stable_pods <= set(trial.pods())
        # when a good revision is applied
        trial.apply(k=6, acceptance_percent=85)
        good = trial.wait_progressing("CanaryWeighted")["canary"]["hash"]
        canary_pods = trial.pods_of(good)
        trial.wait_progressing("Guarding")
        # then its pods serve on as stable, and the old revision goes after the guard
        assert trial.status["stable"]["hash"] != stable
        status = trial.wait_progressing("Complete")
        wait_for("the old revision is gone", lambda: stable not in trial.revisions_running())
        survivors = trial.pods()
        assert canary_pods <= set(survivors)
        restarts = [
            survivors[uid]["status"]["containerStatuses"][0]["restartCount"] for uid in canary_pods
        ]
        assert restarts == [0] * len(canary_pods)
    # and no user saw any of it
    assert report()["failed"] == 0
    assert report()["cut"] == 0
    assert report()["ok"] > 50


def test_failing_canary_is_rolled_back_on_errors(trial: Trial) -> None:
    trial.apply(k=4)
    trial.wait_available()
    with load_on(trial.url(), trial.namespace):
        trial.apply(k=4, error_percent=40)
        status = trial.wait_progressing("RolledBack")
    assert status["failedRevisions"][0]["reason"] in {"ErrorsWorse", "CanaryUnhealthy"}


def test_canary_that_can_never_start_fails_once_and_leaves_stable_alone(trial: Trial) -> None:
    trial.apply(k=4)
    stable = trial.wait_available()
    text = (
        "ValueError: Target and draft model should have the same vocabulary size. Target model "
        "vocab_size=49152. Draft model vocab_size=32000."
    )
    trial.apply(k=4, crash_text=text)
    status = trial.wait_progressing("RolledBack")
    assert status["failedRevisions"][0]["reason"] == "VocabularyMismatch"
    wait_for("only stable runs", lambda: trial.revisions_running() == {stable})
    failed = status["failedRevisions"][0]["hash"]
    deployment = json.loads(
        kubectl("get", "deployment", f"chat-{failed}", "-n", trial.namespace, "-o", "json")
    )
    assert deployment["spec"]["replicas"] == 0
    events = json.loads(
        kubectl(
            "get",
            "events",
            "-n",
            trial.namespace,
            "-o",
            "json",
            "--field-selector",
            "reason=RolledBack",
        )
    )["items"]
    assert len(events) == 1


def test_second_pass_over_an_unchanged_world_sends_no_write(trial: Trial) -> None:
    trial.apply(k=4)
    trial.wait_available()
    # sentences wait for up to a minute before they are written; a start writes what is left
    look_again(trial, "first")
    before = len(writes_of_operator(trial))
    look_again(trial, "second")
    assert writes_of_operator(trial)[before:] == []


def look_again(trial: Trial, mark: str) -> None:
    """Restarts the operator and waits for its first pass and for those that a touch wakes."""
    passes = "speculative_operator_passes_total"
    trial.operator.stop()
    trial.operator.start()
    wait_for("a pass", lambda: trial.operator.metric(passes) >= 1)
    kubectl("annotate", "specdep", "chat", "-n", trial.namespace, f"example.com/{mark}=yes")
    wait_for("more passes", lambda: trial.operator.metric(passes) >= 3)


def writes_of_operator(trial: Trial) -> list[str]:
    """Every write in the namespace that the API server's audit log has from our client."""
    found = []
    with (home() / "cluster" / "audit.log").open(encoding="utf-8") as lines:
        for line in lines:
            if trial.namespace not in line:
                continue
            event = json.loads(line)
            resource = event.get("objectRef", {})
            if "aiohttp" not in event.get("userAgent", "") or resource["resource"] == "leases":
                continue
            if event["stage"] == "ResponseComplete":
                found.append(f"{event['verb']} {resource['resource']}/{resource.get('name')}")
    return found


def test_deleting_with_the_operator_down_leaves_nothing(trial: Trial) -> None:
    trial.apply(k=4)
    trial.wait_available()
    trial.operator.kill()
    kubectl("delete", "speculativedeployment", "chat", "-n", trial.namespace, "--timeout=60s")
    kinds = "deployments,services,configmaps,controllerrevisions,serviceaccounts,rolebindings,pods"
    selector = "speculative.dev/name=chat"

    def left() -> list[str]:
        text = kubectl("get", kinds, "-n", trial.namespace, "-l", selector, "-o", "name")
        return text.split()

    wait_for("all children are gone", lambda: not left(), 120)
