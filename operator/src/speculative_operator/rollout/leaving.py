"""A revision on its way out beside stable: the pods and the share that it still has.

Where stable gave up pods for it (`dynamicStable`, InPlace), the traffic goes
back only as far as stable has pods again.
"""

from speculative_api.v1alpha1 import RetiringStatus
from speculative_operator.rollout.capacity import (
    is_in_place,
    leaving_pods,
    occupied,
    part,
    pods_for,
    replicas_of,
    room,
    shared,
    stable_beside_canary,
)
from speculative_operator.rollout.gateways import active_requests, highest_weight
from speculative_operator.rollout.returning import guard_move, guard_pods, is_kept
from speculative_operator.scaling.idling import is_released, pods_while_idle
from speculative_operator.snapshot import Snapshot


def stable_pods(snapshot: Snapshot) -> int:
    """Pods that stable's Deployment asks for now."""
    status, total = snapshot.status, snapshot.spec.replicas
    if status.stable is None:
        return 0
    if is_released(status):
        return pods_while_idle(snapshot)
    if status.canary is not None:
        return stable_beside_canary(snapshot)
    move = guard_move(snapshot)
    if move is not None:
        return leaving_pods(snapshot, move)
    if not is_in_place(snapshot):
        return total
    if status.guard is not None and status.guard.keep == "Full":
        # Promoted before the spec said InPlace: the old one's pods are on top of these.
        return total
    others = [entry.hash for entry in status.retiring]
    kept = 0
    if status.guard is not None and is_kept(snapshot):
        others.append(status.guard.hash)
        kept = guard_pods(snapshot)
    has = replicas_of(snapshot, status.stable.hash)
    taken = sum(occupied(snapshot, revision) for revision in others)
    # It grows only into room that was freed.
    return min(total, max(min(has, room(snapshot) - kept), room(snapshot) - taken))


def _stable_ready(snapshot: Snapshot) -> int:
    stable = snapshot.status.stable
    return snapshot.ready_pods(stable.hash) if stable is not None else 0


def _pods_to_keep(snapshot: Snapshot) -> int:
    """In place, a pod is given back when all that stable has are ready."""
    return max(0, room(snapshot) - _stable_ready(snapshot) - 1)


def leaving_weight(snapshot: Snapshot, entry: RetiringStatus) -> int:
    """Percent that a revision on its way out still gets: what stable cannot carry yet."""
    ready = snapshot.ready_pods(entry.hash)
    if not ready or not entry.weight or not snapshot.spec.gateway.mode.splits:
        return 0
    if not is_in_place(snapshot):
        return min(entry.weight, 100 - part(_stable_ready(snapshot), snapshot.spec.replicas))
    stable = snapshot.status.stable
    serving = shared(snapshot, entry.hash, stable.hash if stable is not None else "")
    # The pod that goes over carries nothing meanwhile, so that the share only falls. More than
    # one is missing after `replicas` was raised: stable can't carry more before they are ready.
    total = room(snapshot) if serving + 1 == room(snapshot) else serving
    pods = min(ready, _pods_to_keep(snapshot))
    return min(entry.weight, 100 - part(_stable_ready(snapshot), total), part(pods, total))


def pods_left(snapshot: Snapshot, entry: RetiringStatus) -> int:
    """Pods that a revision on its way out still has; none once nothing of it serves."""
    has, ready = replicas_of(snapshot, entry.hash), snapshot.ready_pods(entry.hash)
    if not ready and not active_requests(snapshot, entry.hash):
        return 0
    if not is_in_place(snapshot):
        return has
    sent = pods_for(highest_weight(snapshot, entry.hash), room(snapshot))
    return min(has, max(1, _pods_to_keep(snapshot), sent))
