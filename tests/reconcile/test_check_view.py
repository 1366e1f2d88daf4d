"""What `gather` makes of the Job before a revision's pods, and whom a pass asks meanwhile."""

from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, NOW, UID, a_digest
from tests.reconcile.test_gather import HASH, KEY, a_thing, stores_with

from speculative_api import labels
from speculative_api.v1alpha1 import PreflightStatus
from speculative_api.worker import Digest, PreflightReport
from speculative_operator.cluster.preflights import check_of
from speculative_operator.cluster.resources import JOB, POD
from speculative_operator.desired import names
from speculative_operator.gather import targets_of
from speculative_operator.rollout.times import stamp
from speculative_operator.snapshot import CheckView

STATUS = PreflightStatus(hash=HASH, started_at=stamp(NOW), stage="Download")
JOB_OF_IT = names.preflight(NAME, HASH, STATUS.started_at, stage="Download")
TERMINATION = '{"reason": "HubUnreachable", "retryable": true, "detail": "away"}'


def a_job(**condition: str) -> dict[str, Any]:
    conditions = [{"status": "True", **condition}] if condition else []
    return a_thing(JOB_OF_IT, status={"conditions": conditions})


def a_pod_of_it(
    end: dict[str, Any] | None = None, *, job: str = JOB_OF_IT, **status: Any
) -> dict[str, Any]:
    state = {"terminated": end} if end else {"running": {}}
    containers = [{"name": "sidecar", "state": {"running": {}}}, {"name": "worker", "state": state}]
    body = {"podIP": "10.0.0.7", "containerStatuses": containers} | status
    pod = a_thing(f"{job}-x", status=body)
    own = names.component_labels(NAME, labels.COMPONENT_DOWNLOAD)
    pod["metadata"]["labels"] = own | {labels.JOB_NAME: job}
    return pod


def nobody(_: str) -> Digest | None:
    return None


def seen(job: dict[str, Any] | None, *pods: dict[str, Any], digest: Any = nobody) -> CheckView:
    things = [(JOB, job)] if job is not None else []
    stores = stores_with(*things, *((POD, pod) for pod in pods))
    found = check_of(stores, KEY, UID, STATUS, digest)
    assert found is not None
    return found


def test_none_is_looked_for_where_none_is_under_way() -> None:
    done = STATUS.model_copy(update={"outcome": "Passed"})
    assert check_of(stores_with((JOB, a_job())), KEY, UID, done, nobody) is None
    assert check_of(stores_with((JOB, a_job())), KEY, UID, None, nobody) is None


def test_a_report_counts_though_a_sidecar_keeps_the_pod_alive() -> None:
    found = seen(a_job(), a_pod_of_it({"exitCode": 0, "message": '{"notes": ["x"]}'}))
    assert found == CheckView(report=PreflightReport(notes=("x",)))


@pytest.mark.parametrize("message", ["", "hello", "[]", '{"notes": 3}'])
def test_an_end_without_words_of_ours_is_no_report(message: str) -> None:
    found = seen(a_job(), a_pod_of_it({"exitCode": 0, "message": message}))
    assert found.report is None
    assert "set rollout.preflight" in found.failure


def test_kubernetes_gives_up_and_the_pod_s_words_stay() -> None:
    job = a_job(type="Failed", reason="BackoffLimitExceeded", message="3 attempts")
    found = seen(job, a_pod_of_it({"exitCode": 1, "message": TERMINATION}))
    assert found.failure == "BackoffLimitExceeded: 3 attempts"
    assert found.termination is not None
    assert found.termination.detail == "away"


def test_a_job_that_ended_and_lost_its_pods_failed() -> None:
    assert seen(a_job(type="Complete")).failure


def test_the_pod_of_another_attempt_does_not_speak() -> None:
    report = {"exitCode": 0, "message": "{}"}
    other = names.preflight(NAME, HASH, stamp(NOW), stage="Check")
    assert seen(a_job(), a_pod_of_it(report, job=other)) == CheckView()
    assert seen(None, a_pod_of_it(report)) == CheckView()


def test_a_job_of_somebody_else_does_not_speak() -> None:
    foreign = a_thing(JOB_OF_IT, uid="other")
    assert seen(foreign, a_pod_of_it({"exitCode": 0, "message": "{}"})) == CheckView()


def test_why_it_waits() -> None:
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes",
    }
    found = seen(a_job(), a_pod_of_it(conditions=[unplaced], phase="Pending"))
    assert found.waiting_reason == "Unschedulable: 0/3 nodes"


def test_how_far_a_download_is_comes_from_its_pod_which_is_asked() -> None:
    pod = a_pod_of_it()

    def digest(uid: str) -> Digest | None:
        assert uid == pod["metadata"]["uid"]
        return a_digest(HASH, phase="Downloading", phase_detail="1.0 of 9.0 GiB")

    assert seen(a_job(), pod, digest=digest).progress == "1.0 of 9.0 GiB"
    (target,) = targets_of(stores_with((POD, pod)), (NAMESPACE, NAME))
    assert (target.role, target.address) == ("worker", "10.0.0.7")
