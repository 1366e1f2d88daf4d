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
from speculative_operator.rollout.times import moment, stamp
from speculative_operator.rollout.transition import wanted
from speculative_operator.snapshot import Snapshot, WorkerPod

FIRST_WAIT: Final = timedelta(minutes=5)
"""Until the first new attempt; as long as a cluster takes to add a node with a GPU."""
LONGEST_WAIT: Final = timedelta(hours=1)
"""Beyond it waiting longer saves nothing."""

_PULL: Final = ("ImagePullBackOff", "ErrImagePull", "ImageInspectError", "RegistryUnavailable")
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
    view = snapshot.deployments.get(revision)
    if view is not None and "quota" in view.failure:
        return Blockage(Reason.CAPACITY_BLOCKED, view.failure)
    return None


def _of_pod(pod: WorkerPod) -> Blockage | None:
    reason = reason_of_waiting(pod.waiting_reason)
    if reason is not None:
        return Blockage(reason, pod.waiting_reason)
    end = pod.termination
    if end is not None and end.reason == WorkerReason.HUB_UNREACHABLE:
        return Blockage(Reason.HUB_UNREACHABLE, end.detail.partition("\n")[0][:400])
    return None


def reason_of_waiting(said: str) -> Reason | None:
    """What keeps a pod from running, by the words of the scheduler or the kubelet."""
    kind = said.partition(":")[0]
    if kind in _PLACE:
        return Reason.CAPACITY_BLOCKED
    return Reason.IMAGE_UNAVAILABLE if kind in _PULL else None


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
