"""Groups of pods that ended: remembered in status, for nothing else knows of them.

A group of which one pod ends is made anew at once, by the LeaderWorkerSet's
controller: other pods, without restarts and without last words. Without this
memory a revision whose groups crash for ever would only ever seem to be starting.
"""

from typing import Final

from speculative_api.v1alpha1 import GroupFailure
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.times import moment, stamp
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import GROUP_MEMORY, Snapshot, WorkerPod

KEPT: Final = 16
"""The CRD's bound on the list; more than any limit that is counted to."""


def group_ended(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A pod of a group has ended; noted once for each group."""
    known = {entry.uid for entry in snapshot.status.group_failures}
    pod = next((p for p in snapshot.pods if p.uid not in known and _has_ended(p)), None)
    if pod is None or pod.termination is None:
        return None
    end = pod.termination
    entry = GroupFailure(
        hash=pod.revision,
        uid=pod.uid,
        reason=end.reason,
        retryable=end.retryable,
        message=end.detail[:1024],
        at=stamp(snapshot.now),
    )
    first_line = end.detail.partition("\n")[0]
    text = f"The group of {pod.name} ended and is made anew: {end.reason}: {first_line}"
    event = Event("GroupRecreated", text, "Warning")
    return transition(snapshot, event, group_failures=[*_recent(snapshot), entry][-KEPT:])


def _has_ended(pod: WorkerPod) -> bool:
    """Not one that was deleted, and killed because it took too long."""
    return (
        pod.is_group and pod.termination is not None and (pod.restarts > 0 or not pod.terminating)
    )


def _recent(snapshot: Snapshot) -> list[GroupFailure]:
    """Those that count still, and those of pods that are there and would be noted again."""
    there = {pod.uid for pod in snapshot.pods}
    since = snapshot.now - GROUP_MEMORY
    entries = snapshot.status.group_failures
    return [entry for entry in entries if entry.uid in there or moment(entry.at) >= since]
