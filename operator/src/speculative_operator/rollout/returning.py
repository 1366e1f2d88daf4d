"""The old revision under guard: its pods, its share, and how it takes over again.

Kept whole it takes over at once. Kept as one pod, or not at all, it is brought
up first and gets traffic only as far as its ready pods carry it; the promoted
revision, though worse, serves the rest until then.
"""

from speculative_api.v1alpha1 import GuardKeep, GuardStatus, StableStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.gateways import everyone_uses, is_unseen
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


def holdback_limit(*, pods: int, total: int) -> int:
    """The most percent that so many pods carry, where `total` pods carry everything."""
    return min(100, 100 * pods // max(total, 1))


def new_guard(snapshot: Snapshot, old: StableStatus) -> GuardStatus:
    """The memory of a guard that begins now, with `old` as what was stable."""
    asked = snapshot.spec.rollout.guard
    splits = snapshot.spec.gateway.mode.splits
    limits = {
        GuardKeep.FULL: 100,
        GuardKeep.ONE: holdback_limit(pods=1, total=snapshot.spec.replicas),
        GuardKeep.NONE: 0,
    }
    return GuardStatus(
        revision=old.revision,
        hash=old.hash,
        started_at=stamp(snapshot.now),
        weight=min(asked.holdback_weight, limits[asked.keep]) if splits else 0,
        keep=asked.keep.value,
    )


def guard_weight(snapshot: Snapshot) -> int:
    """Percent that the old revision gets now; never more than one kept pod carries."""
    guard = snapshot.status.guard
    if guard is None or not is_kept(snapshot):
        return 0
    limit = holdback_limit(pods=snapshot.ready_pods(guard.hash), total=snapshot.spec.replicas)
    if limit == 0:
        return 0
    if is_returning(snapshot):
        return limit
    return guard.weight if guard.keep == "Full" else min(guard.weight, limit)


def guard_pods(snapshot: Snapshot) -> int:
    """Pods that the old revision keeps; those beyond one go after traffic was seen to leave."""
    guard, total = snapshot.status.guard, snapshot.spec.replicas
    if guard is None:
        return 0
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
    read_back = snapshot.spec.gateway.mode.reads_back
    followed = (
        everyone_uses(snapshot, guard.hash, weight)
        if read_back
        else not is_unseen(snapshot, guard.started_at)
    )
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
    if ready < snapshot.spec.replicas:
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
