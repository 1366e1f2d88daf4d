"""The Job before a revision's pods, and its own, become a view. Called by `gather`.

The container's own end counts, not the Job's: a sidecar that somebody injects
never ends. Pods are those of this very Job, so that no earlier attempt speaks.
"""

from collections.abc import Callable, Iterator, Mapping

from pydantic import ValidationError

from speculative_api import labels
from speculative_api.v1alpha1 import PreflightStatus
from speculative_api.worker import Digest, PreflightReport
from speculative_operator.cluster.last_words import termination_of, waiting_reason_of
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import JOB, JSON, POD, Key, controller_uid, uid_of
from speculative_operator.desired import names
from speculative_operator.desired.preflight import CONTAINER
from speculative_operator.snapshot import CheckView

_SAID_NOTHING = (
    "it ended without a word that this operator knows: an image of another version may not have "
    "the check; then set rollout.preflight to InPod"
)


def check_of(
    stores: Mapping[str, Store],
    key: Key,
    uid: str,
    status: PreflightStatus | None,
    digest: Callable[[str], Digest | None],
) -> CheckView | None:
    """How far the Job of the stage that status names has got; None where none is under way.

    Args:
        digest: the last answer of a pod, by its UID: a download says how far it is.
    """
    if status is None or status.outcome is not None:
        return None
    name = names.preflight(key[1], status.hash, status.started_at, stage=status.stage)
    job = stores[JOB.kind].of(key).get(name)
    if job is None or controller_uid(job) != uid:
        return CheckView()
    pods = [pod for pod in stores[POD.kind].of(key).values() if _job_of(pod) == name]
    pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    ours = [container for pod in pods for container in _containers(pod)]
    report = next((found for each in ours if (found := _report(each)) is not None), None)
    waiting = (waiting_reason_of(pod.get("status", {}), list(_containers(pod))) for pod in pods)
    return CheckView(
        report=report,
        termination=termination_of(ours),
        waiting_reason=next(filter(None, waiting), ""),
        progress=next(filter(None, (_progress(digest(uid_of(pod))) for pod in pods)), ""),
        failure="" if report is not None else _failure(job, ours),
    )


def _progress(digest: Digest | None) -> str:
    return digest.phase_detail if digest is not None else ""


def _job_of(pod: JSON) -> str:
    return str((pod["metadata"].get("labels") or {}).get(labels.JOB_NAME, ""))


def _containers(pod: JSON) -> Iterator[JSON]:
    for container in pod.get("status", {}).get("containerStatuses") or ():
        if container.get("name") == CONTAINER:
            yield container


def _report(container: JSON) -> PreflightReport | None:
    end = (container.get("state") or {}).get("terminated")
    if not end or end.get("exitCode") != 0:
        return None
    try:
        return PreflightReport.model_validate_json(end.get("message") or "")
    except ValidationError:
        return None


def _failure(job: JSON, containers: list[JSON]) -> str:
    for condition in job.get("status", {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Failed":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:1024]
        if condition.get("type") == "Complete":
            return _SAID_NOTHING
    silent = (((c.get("state") or {}).get("terminated") or {}).get("exitCode") for c in containers)
    return _SAID_NOTHING if any(code == 0 for code in silent) else ""
