"""What a pod's containers say last, and why they do not run, read from its status.

Called by `gather` for workers and by `preflights` for the Job that checks them.
What a container wrote is hostile until looked at.
"""

from typing import Final

from pydantic import ValidationError

from speculative_api.conditions import WorkerReason
from speculative_api.worker import Termination
from speculative_operator.cluster.resources import JSON

_STARTING: Final = ("ContainerCreating", "PodInitializing")


def termination_of(containers: list[JSON]) -> Termination | None:
    """The newest last word of a container that ended badly."""
    ends = [
        end
        for container in containers
        for state in ("state", "lastState")
        if (end := (container.get(state) or {}).get("terminated")) and end.get("exitCode")
    ]
    if not ends:
        return None
    newest = max(ends, key=lambda end: str(end.get("finishedAt", "")))
    try:
        said = Termination.model_validate_json(newest.get("message") or "")
    except ValidationError:
        return _unsaid(newest)
    if said.reason in set(WorkerReason):
        return said
    # A newer worker's, or no worker of ours: its word is kept where any text may stand.
    detail = f"{said.reason[:64]}: {said.detail}"
    return said.model_copy(update={"reason": WorkerReason.ENGINE_CRASHED, "detail": detail})


def _unsaid(end: JSON) -> Termination:
    """Ended without our words: killed, or not our image."""
    why, code = end.get("reason", ""), end.get("exitCode")
    detail = f"exit code {code} {why} {str(end.get('message') or '')[-1024:]}".strip()
    reason = WorkerReason.HOST_MEMORY if why == "OOMKilled" else WorkerReason.ENGINE_CRASHED
    return Termination(reason=reason, retryable=True, detail=detail)


def waiting_reason_of(status: JSON, containers: list[JSON]) -> str:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:1024]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in _STARTING:
            return f"{waiting.get('reason', '')}: {waiting.get('message', '')}"[:1024]
    return ""
