"""A canary that can't begin for want of something that may come: GPUs, an image, a hub.

That is no failure of the revision. It has a name from the first moment, and at
its deadline the canary is taken out and parked: tried again by itself, after a
time that doubles with every attempt, or at once after a retry.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from speculative_api.conditions import Reason, WorkerReason
from speculative_api.v1alpha1 import ParkedStatus
from speculative_operator.rollout.times import moment, seconds_since, stamp
from speculative_operator.rollout.transition import wanted
from speculative_operator.snapshot import Snapshot, WorkerPod

FIRST_WAIT: Final = timedelta(minutes=5)
"""Until the first new attempt; as long as a cluster takes to add a node with a GPU."""
LONGEST_WAIT: Final = timedelta(hours=1)
"""Beyond it waiting longer saves nothing."""

NODE_SECONDS: Final = 900.0
"""A node that was announced is there by then, or does not come: the Cluster Autoscaler's own
limit (`--max-node-provision-time`, 15 minutes)."""
LONGEST_EXTENSION_SECONDS: Final = 1800.0
"""Announced nodes that never come hold nothing up for longer."""
ASKED_BEFORE_SECONDS: Final = 60.0
"""Before the deadline: whoever adds nodes has said so long ago."""

_PULL: Final = ("ImagePullBackOff", "ErrImagePull", "ImageInspectError", "RegistryUnavailable")
_QUOTA: Final = (
    "exceeded quota",
    "failed quota",
    "insufficient quota",
    "status unknown for quota",
)
"""How quota admission refuses (`CheckRequest` of apiserver's `resourcequota/controller.go`); the
word alone may be part of a name."""
_PLACE: Final = ("Unschedulable", "SchedulingGated")


@dataclass(frozen=True, slots=True)
class Blockage:
    """What is in the way, and who says so."""

    reason: Reason
    words: str


def blockage(snapshot: Snapshot, revision: str) -> Blockage | None:
    """Why pods of a revision can't start though nothing is wrong with it; None if they can."""
    for pod in snapshot.pods_of(revision):
        found = None if pod.ready else _of_pod(pod)
        if found is not None:
            return found
    if ended := snapshot.group_failures(revision):
        found = (
            None if snapshot.ready_pods(revision) else _of_end(ended[-1].reason, ended[-1].message)
        )
        if found is not None:
            return found
    view = snapshot.deployments.get(revision)
    if view is not None and any(words in view.failure for words in _QUOTA):
        return Blockage(Reason.CAPACITY_BLOCKED, view.failure)
    return None


def _of_pod(pod: WorkerPod) -> Blockage | None:
    reason = reason_of_waiting(pod.waiting_reason)
    if reason is not None:
        return Blockage(reason, pod.waiting_reason)
    end = pod.termination
    return _of_end(end.reason, end.detail) if end is not None else None


def _of_end(reason: str, detail: str) -> Blockage | None:
    if reason != WorkerReason.HUB_UNREACHABLE:
        return None
    return Blockage(Reason.HUB_UNREACHABLE, detail.partition("\n")[0][:400])


def reason_of_waiting(said: str) -> Reason | None:
    """What keeps a pod from running, by the words of the scheduler or the kubelet."""
    kind = said.partition(":")[0]
    if kind in _PLACE:
        return Reason.CAPACITY_BLOCKED
    return Reason.IMAGE_UNAVAILABLE if kind in _PULL else None


def waits_for_room(snapshot: Snapshot) -> tuple[str, ...]:
    """UIDs of the canary's pods that no node has room for, shortly before it is given up."""
    canary = snapshot.status.canary
    if canary is None:
        return ()
    since = canary.started_at if canary.step < 0 else canary.unready_since
    left = snapshot.spec.rollout.progress_deadline_seconds - seconds_since(since, snapshot.now)
    if left > ASKED_BEFORE_SECONDS:
        return ()
    waiting = (pod for pod in snapshot.pods_of(canary.hash) if not pod.ready)
    return tuple(p.uid for p in waiting if p.waiting_reason.startswith("Unschedulable"))


def node_is_coming(snapshot: Snapshot, waited_seconds: float) -> bool:
    """Whether a canary without room waits longer, since somebody adds a node for it."""
    news, deadline = snapshot.node_news, snapshot.spec.rollout.progress_deadline_seconds
    if news is None or waited_seconds >= deadline + LONGEST_EXTENSION_SECONDS:
        return False
    return snapshot.now.timestamp() - news.at < NODE_SECONDS


def parked_again(snapshot: Snapshot, revision: str, found: Blockage, message: str) -> ParkedStatus:
    """The memory of one more attempt that came to nothing."""
    before = snapshot.status.parked
    attempts = before.attempts + 1 if before is not None and before.hash == revision else 1
    wait = min(FIRST_WAIT * 2 ** min(attempts - 1, 10), LONGEST_WAIT)
    return ParkedStatus(
        hash=revision,
        reason=found.reason,
        message=message[:1000],
        attempts=attempts,
        until=stamp(snapshot.now + wait),
    )


def is_waiting(snapshot: Snapshot) -> bool:
    """Whether the revision that the spec asks for is parked, and not due yet."""
    entry = snapshot.status.parked
    if entry is None or entry.hash != wanted(snapshot):
        return False
    return snapshot.now < moment(entry.until)
