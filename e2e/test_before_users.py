"""What happens before users come or after they left: copies, checks by a Job, released pods."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.dsl import SIMULATED_WORKER, Trial, a_trial, load_on, wait_for
from e2e.kubectl import listed
from e2e.test_gateway import ask
from tests.worker.test_preflight import a_model

pytestmark = pytest.mark.cluster

SHADOWED = {
    "steps": [
        {"shadow": {"percent": 100, "durationSeconds": 20}},
        {"weight": 50},
        {"pause": {"durationSeconds": 10}},
    ],
    "analysis": {"periodSeconds": 2},
    "guard": {"durationSeconds": 5},
}


def test_a_bad_draft_is_found_by_copies_that_no_user_sees() -> None:
    with a_trial("shadow") as trial:
        trial.apply(k=4, rollout=SHADOWED)
        stable = trial.wait_available()
        with load_on(trial.url(), trial.namespace) as report:
            # when a draft that is hardly ever accepted gets copies of every request
            trial.apply(k=4, acceptance_percent=2, rollout=SHADOWED)
            trial.wait_progressing("CanaryShadowed")
            bad = trial.status["canary"]["hash"]
            # then it is found before it has a user
            status = trial.wait_progressing("RolledBack")
            assert status["failedRevisions"][0]["hash"] == bad
            assert status["failedRevisions"][0]["reason"] == "AcceptanceWorse"
            wait_for("only stable runs", lambda: trial.revisions_running() == {stable})
            # and a good one goes from copies to users to all
            trial.apply(k=6, acceptance_percent=85, rollout=SHADOWED)
            trial.wait_progressing("CanaryShadowed")
            assert trial.status["canary"].get("weight", 0) == 0
            good = trial.status["canary"]["hash"]
            trial.wait_progressing("Complete")
            assert trial.status["stable"]["hash"] == good
    assert (report()["failed"], report()["cut"]) == (0, 0)
    assert bad not in report()["byRevision"]
    assert {stable, good} <= set(report()["byRevision"])


def test_pods_are_released_and_the_first_request_brings_them_back() -> None:
    idle = {"minReplicas": 1, "maxReplicas": 2, "idle": {"afterSeconds": 60, "holdSeconds": 60}}
    scaled = {
        "autoscaling": {**idle, "metrics": [{"name": "RequestsRunning", "targetPerPod": 4}]},
        "gateway": {"timeouts": {"idleSeconds": 120}},
    }
    with a_trial("idle") as trial:
        trial.apply(k=4, **scaled)
        trial.wait_available()
        assert ask(trial)[0] == 200
        wait_for("no pod is left", lambda: not trial.pods(), 180)
        assert trial.condition("Idle")["reason"] == "Idle"
        # when somebody asks, then the request is held and answered
        began = time.monotonic()
        status, _, body = ask(trial, seconds=90)
        assert status == 200, body
        assert body["choices"]
        print(f"\nanswered {time.monotonic() - began:.1f} s after it was asked of no pod")
        wait_for("its pod stays", lambda: trial.condition("Idle")["reason"] == "Awake")
        assert len(trial.pods()) == 1


@pytest.fixture
def models() -> Iterator[Path]:
    """Models where the Job may read them: a target, a draft of its words, one of others."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-models-", dir="/var/tmp"))
    folder.chmod(0o755)
    for name in ("target", "draft"):
        a_model(folder / name)
    a_model(folder / "other-words", tokens=["<s>", "b", "a", "c"])
    yield folder
    shutil.rmtree(folder)


def test_a_draft_of_other_words_is_refused_by_a_job_before_any_pod(models: Path) -> None:
    with a_trial("preflight") as trial:

        def drafting(name: str) -> None:
            trial.apply(
                target={"model": f"file://{models}/target"},
                speculation={
                    "method": "DraftModel",
                    "numSpeculativeTokens": 3,
                    "draft": {"model": f"file://{models}/{name}"},
                },
                # No engine is in this image; here only the check matters.
                engine={"image": SIMULATED_WORKER, "startupDeadlineSeconds": 60},
                rollout={"preflight": "Job"},
            )

        drafting("other-words")
        wait_for("it is refused", lambda: trial.status.get("failedRevisions"))
        assert trial.status["failedRevisions"][0]["reason"] == "VocabularyMismatch"
        assert not workers(trial)
        # when the draft fits, then its pods are made
        drafting("draft")
        wait_for("a Deployment of workers", lambda: workers(trial))
        wait_for("no Job is left", lambda: not listed("jobs", trial.namespace))


def workers(trial: Trial) -> list[str]:
    """Deployments of revisions."""
    selector = "speculative.dev/component=worker"
    found = listed("deployments", trial.namespace, selector)
    return [each["metadata"]["name"] for each in found]
