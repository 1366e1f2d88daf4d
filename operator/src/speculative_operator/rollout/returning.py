"""The old revision under guard: its pods, its share, and how it takes over again.

Kept whole it takes over at once. Kept as one pod, or not at all, it is brought
up first and gets traffic only as far as its ready pods carry it; the promoted
revision, though worse, serves the rest until then.
"""

from speculative_api.v1alpha1 import GuardKeep, GuardStatus, StableStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.capacity import (
    Move,
    coming_pods,
    is_in_place,
    moved_weight,
    part,
    room,
)
from speculative_operator.rollout.gateways import is_followed
from speculative_operator.rollout.times import stamp
from speculative_operator.rollout.transition import Transition, retire, transition
from speculative_operator.snapshot import Snapshot


def is_returning(snapshot: Snapshot) -> bool:
    """Whether the promoted revision is being replaced by the old one."""
    guard = snapshot.status.guard
    return guard is not None and guard.returning_since is not None


def is_kept(snapshot: Snapshot) -> bool:
    """Whether the old revision has pods of its own beside the promoted one."""
    guard = snapshot.status.guard
    return guard is not None and (guard.keep != "None" or is_returning(snapshot))


def new_guard(snapshot: Snapshot, old: StableStatus) -> GuardStatus:
    """The memory of a guard that begins now, with `old` as what was stable."""
    asked = snapshot.spec.rollout.guard
    keep = asked.keep
    if is_in_place(snapshot) and room(snapshot) == 1:
        # The only pod there is serves.
        keep = GuardKeep.NONE
    splits = snapshot.spec.gateway.mode.splits
    limits = {
        GuardKeep.FULL: 100,
        GuardKeep.ONE: part(1, snapshot.spec.replicas),
        GuardKeep.NONE: 0,
    }
    return GuardStatus(
        revision=old.revision,
        hash=old.hash,
        started_at=stamp(snapshot.now),
        weight=min(asked.holdback_weight, limits[keep]) if splits else 0,
        keep=keep.value,
    )


def guard_move(snapshot: Snapshot) -> Move | None:
    """What a return in place moves; None without one."""
    guard, stable = snapshot.status.guard, snapshot.status.stable
    if guard is None or stable is None or not (is_returning(snapshot) and is_in_place(snapshot)):
        return None
    return Move(guard.hash, stable.hash, pods_to_take_over(snapshot), 100)


def pods_to_take_over(snapshot: Snapshot) -> int:
    """Ready pods with which a revision can be stable; in place the other one holds the last."""
    total = snapshot.spec.replicas
    return max(1, room(snapshot) - 1) if is_in_place(snapshot) else total


def guard_weight(snapshot: Snapshot) -> int:
    """Percent that the old revision gets now; never more than one kept pod carries."""
    guard = snapshot.status.guard
    if guard is None or not is_kept(snapshot) or not snapshot.spec.gateway.mode.splits:
        return 0
    move = guard_move(snapshot)
    if move is not None:
        return moved_weight(snapshot, move)
    limit = part(snapshot.ready_pods(guard.hash), snapshot.spec.replicas)
    if snapshot.ready_pods(guard.hash) == 0:
        return 0
    if is_returning(snapshot):
        return limit
    return guard.weight if guard.keep == "Full" else min(guard.weight, limit)


def guard_pods(snapshot: Snapshot) -> int:
    """Pods that the old revision keeps; those beyond one go after traffic was seen to leave."""
    guard, total = snapshot.status.guard, snapshot.spec.replicas
    if guard is None:
        return 0
    move = guard_move(snapshot)
    if move is not None:
        return coming_pods(snapshot, move)
    if guard.keep == "Full" or is_returning(snapshot):
        return total
    if guard.weight_observed_at is None:
        view = snapshot.deployments.get(guard.hash)
        return view.replicas if view is not None else total
    return min(total, 1)


def holdback_seen(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Every gateway turned to the promoted revision: of the old one a single pod is enough."""
    guard = snapshot.status.guard
    if guard is None or guard.keep != "One" or guard.weight_observed_at is not None:
        return None
    weight = guard_weight(snapshot)
    followed = is_followed(snapshot, guard.hash, weight, since=guard.started_at)
    if is_returning(snapshot) or not followed:
        return None
    seen = guard.model_copy(update={"weight_observed_at": stamp(snapshot.now)})
    message = f"Every gateway gives {guard.hash} {weight} percent; one pod of it is kept."
    return transition(snapshot, Event("HoldbackObserved", message), guard=seen)


def return_finished(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The old revision has all its pods again: it is stable, and the worse one is taken out."""
    guard, bad = snapshot.status.guard, snapshot.status.stable
    if guard is None or bad is None or guard.returning_since is None:
        return None
    ready = snapshot.ready_pods(guard.hash)
    if ready < pods_to_take_over(snapshot):
        return None
    stable = StableStatus(
        revision=guard.revision, hash=guard.hash, available_at=stamp(snapshot.now)
    )
    message = f"Revision {guard.revision} ({guard.hash}) is stable again: {ready} pods ready."
    return transition(
        snapshot,
        Event("ReturnFinished", message),
        stable=stable,
        guard=None,
        retiring=retire(snapshot, bad.hash),
    )
