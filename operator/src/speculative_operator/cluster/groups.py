"""LeaderWorkerSets and the pods of their groups become views. Called by `gather`.

A group is seen as one pod, its leader; what goes wrong in another pod of it is
said of the leader, or nobody would ever say it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from speculative_api import labels
from speculative_api.worker import Termination
from speculative_operator.cluster.last_words import termination_of, waiting_reason_of
from speculative_operator.cluster.resources import JSON
from speculative_operator.snapshot import WorkerPod

UNSEEN = (
    "the LeaderWorkerSet has no status: does its controller run? "
    "(https://lws.sigs.k8s.io/docs/installation)"
)


def template_of(group: JSON) -> JSON:
    """The leader's pod template in a LeaderWorkerSet."""
    parts = group.get("spec", {}).get("leaderWorkerTemplate") or {}
    found: JSON = parts.get("leaderTemplate") or {}
    return found


def failure_of(group: JSON) -> str:
    """Why it has no pods, as far as the object says."""
    return "" if group.get("status") else UNSEEN


def followers_of(pods: Iterable[JSON]) -> dict[str, list[JSON]]:
    """The pods of groups but their leaders, by the leader's name."""
    found: dict[str, list[JSON]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        if (metadata.get("labels") or {}).get(labels.COMPONENT) == labels.COMPONENT_FOLLOWER:
            leader = (metadata.get("annotations") or {}).get(labels.LEADER_NAME, "")
            found.setdefault(leader, []).append(pod)
    return found


def with_followers(leader: WorkerPod, pod: JSON, followers: Iterable[JSON]) -> WorkerPod:
    """The leader with what its followers say; `pod` is the leader's own object."""
    born = _created(pod)
    # Followers of a former leader of the same name are older than this one.
    mine = [each for each in followers if _created(each) >= born]
    containers = {_name(each): _containers(each) for each in mine}
    return replace(
        leader,
        restarts=leader.restarts + sum(map(_restarts, containers.values())),
        termination=_telling(
            leader.termination, [termination_of(each) for each in containers.values()]
        ),
        waiting_reason=leader.waiting_reason or _waiting(mine),
    )


def _telling(own: Termination | None, others: list[Termination | None]) -> Termination | None:
    """The word that says most: one that no retry can cure, else the leader's, else any."""
    said = [end for end in (own, *others) if end is not None]
    return next((end for end in said if not end.retryable), next(iter(said), None))


def _waiting(followers: Iterable[JSON]) -> str:
    for pod in followers:
        said = waiting_reason_of(pod.get("status", {}), _containers(pod))
        if said:
            return f"{said} ({_name(pod)})"
    return ""


def _restarts(containers: list[JSON]) -> int:
    return sum(int(container.get("restartCount", 0)) for container in containers)


def _containers(pod: Mapping[str, Any]) -> list[JSON]:
    return pod.get("status", {}).get("containerStatuses") or []


def _name(pod: JSON) -> str:
    return str(pod["metadata"]["name"])


def _created(pod: JSON) -> str:
    """RFC 3339 sorts as text."""
    return str(pod["metadata"].get("creationTimestamp", ""))
