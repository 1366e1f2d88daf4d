"""How many pods two revisions have while traffic moves from one to the other, and its share.

Surge: the canary's pods come on top; with `dynamicStable` stable gives up what
every gateway was seen to send elsewhere. InPlace: both share one room; one pod
at a time is given up, drained, and taken by the other side, whose share is at
most its part of the room. Everything is derived from what is there, so that a
crash, a lost pod or another `replicas` in the middle only changes the next look.
"""

from dataclasses import dataclass

from speculative_api.v1alpha1 import Capacity
from speculative_operator.rollout.gateways import highest_weight, lowest_weight
from speculative_operator.rollout.steps import (
    canary_replicas,
    is_finishing,
    step_at,
    step_weight,
)
from speculative_operator.snapshot import Snapshot


def is_in_place(snapshot: Snapshot) -> bool:
    """Whether revisions share the pods that there are."""
    wanted = snapshot.spec.rollout.capacity is Capacity.IN_PLACE
    return wanted and snapshot.spec.replicas > 0


def gives_up_capacity(snapshot: Snapshot) -> bool:
    """Whether stable may have fewer pods than it needs alone while a canary serves."""
    return is_in_place(snapshot) or snapshot.spec.rollout.dynamic_stable


def room(snapshot: Snapshot) -> int:
    """Pods that both revisions have together in place.

    Two where one is asked for and downtime is not allowed: then stable keeps its pod.
    """
    least = 1 if snapshot.spec.rollout.allow_downtime else 2
    return max(snapshot.spec.replicas, least)


def part(pods: int, of: int) -> int:
    """Percent of the traffic that so many pods carry, rounded down."""
    return min(100, 100 * pods // max(of, 1))


def pods_for(weight: int, of: int) -> int:
    """Pods that a percentage of the traffic needs, rounded up."""
    return -(-of * weight // 100)


def occupied(snapshot: Snapshot, revision: str) -> int:
    """Pods of a revision that hold their GPUs or are about to: on their way out ones too."""
    pods = sum(pod.revision == revision and not pod.over for pod in snapshot.pods)
    return max(pods, replicas_of(snapshot, revision))


def replicas_of(snapshot: Snapshot, revision: str) -> int:
    """Pods that its Deployment was last asked for."""
    view = snapshot.deployments.get(revision)
    return view.replicas if view is not None else 0


@dataclass(frozen=True, slots=True)
class Move:
    """One way in place: pods go from `leaving` to `coming` until that has `goal` of them."""

    coming: str
    leaving: str
    goal: int
    weight: int
    """Percent that `coming` has at most when it is there."""


def moved_weight(snapshot: Snapshot, move: Move) -> int:
    """Percent that the coming revision gets now: what was decided, at most its part of the room."""
    ready, total = snapshot.ready_pods(move.coming), room(snapshot)
    if ready and total == 1:
        # Nobody else has a pod.
        return 100
    return min(move.weight, part(ready, shared(snapshot, move.coming, move.leaving)))


def shared(snapshot: Snapshot, *revisions: str) -> int:
    """Pods that the traffic is divided among: those that are ready, at most the room.

    After `replicas` was raised new pods load for a while, and carry nothing yet.
    """
    return min(room(snapshot), sum(snapshot.ready_pods(revision) for revision in revisions))


def _given(snapshot: Snapshot, move: Move) -> int:
    """Pods that the leaving revision does without: those that serve on the other side, and one.

    Once given, one is taken back only from a coming revision whose pods are not ready:
    a gateway that is silent for a moment changes nothing.
    """
    ready, total = snapshot.ready_pods(move.coming), room(snapshot)
    seen = lowest_weight(snapshot, move.coming, unknown=0)
    followed = seen >= moved_weight(snapshot, move)
    serving = ready if followed else min(ready, pods_for(seen, total))
    given = total - replicas_of(snapshot, move.leaving)
    return min(move.goal, max(serving + 1, min(given, ready + 1)))


def coming_pods(snapshot: Snapshot, move: Move) -> int:
    """Pods of the coming revision: as far as room was made, and no fewer than serve."""
    ready, total = snapshot.ready_pods(move.coming), room(snapshot)
    has = replicas_of(snapshot, move.coming)
    left = max(occupied(snapshot, move.leaving), total - _given(snapshot, move))
    pods = min(move.goal, max(total - left, min(has, ready + 1)))
    needed = pods_for(highest_weight(snapshot, move.coming), total) if ready else 0
    return max(pods, min(has, needed))


def leaving_pods(snapshot: Snapshot, move: Move) -> int:
    """Pods of the leaving revision; it grows again only into room that was freed."""
    total = room(snapshot)
    given = total - replicas_of(snapshot, move.leaving)
    taken = min(occupied(snapshot, move.coming), given)
    return min(snapshot.spec.replicas, total - max(_given(snapshot, move), taken))


def canary_move(snapshot: Snapshot) -> Move | None:
    """What a trial in place moves; None without a canary."""
    canary, stable = snapshot.status.canary, snapshot.status.stable
    if canary is None or stable is None:
        return None
    total = room(snapshot)
    most = max(1, total - 1)
    if is_finishing(snapshot.spec.rollout, canary.step):
        return Move(canary.hash, stable.hash, most, 100)
    # Until it has a share, one pod has to do: pods come with the traffic they take.
    pods = max(1, total * canary.weight // 100) if canary.step >= 0 else 1
    return Move(canary.hash, stable.hash, min(pods, most), canary.weight)


def canary_goal(snapshot: Snapshot) -> int:
    """Ready pods that the canary's step waits for."""
    move = canary_move(snapshot)
    if move is None or not is_in_place(snapshot):
        return canary_replicas(snapshot)
    return move.goal


def canary_pods(snapshot: Snapshot) -> int:
    """Pods that the canary's Deployment asks for now."""
    move = canary_move(snapshot)
    if move is None or not is_in_place(snapshot):
        return canary_replicas(snapshot)
    return coming_pods(snapshot, move)


def canary_weight(snapshot: Snapshot) -> int:
    """Percent that the canary gets now: none without a ready pod."""
    move = canary_move(snapshot)
    if move is None or not snapshot.ready_pods(move.coming):
        return 0
    if is_in_place(snapshot) and snapshot.status.canary and snapshot.status.canary.step >= 0:
        return moved_weight(snapshot, move)
    return snapshot.status.canary.weight if snapshot.status.canary else 0


def planned_weight(snapshot: Snapshot) -> int:
    """Percent that the canary has once its step's pods are ready."""
    move = canary_move(snapshot)
    if move is None or not is_in_place(snapshot):
        return snapshot.status.canary.weight if snapshot.status.canary else 0
    total = room(snapshot)
    return 100 if total == 1 else min(move.weight, part(move.goal, total))


def stable_beside_canary(snapshot: Snapshot) -> int:
    """Pods of stable while a canary is tried: what its share needs, rounded up.

    With `dynamicStable` it shrinks after every gateway was seen to send the rest elsewhere,
    and has grown again before a lower weight is given.
    """
    move, canary, total = canary_move(snapshot), snapshot.status.canary, snapshot.spec.replicas
    if move is None or canary is None:
        return total
    if is_in_place(snapshot):
        return leaving_pods(snapshot, move)
    if not snapshot.spec.rollout.dynamic_stable or not snapshot.ready_pods(canary.hash):
        return total
    leads_to = step_weight(step_at(snapshot.spec.rollout, canary.step))
    asked = canary.weight if leads_to is None else leads_to
    seen = lowest_weight(snapshot, canary.hash, unknown=canary.settled_weight)
    elsewhere = min(canary.settled_weight, canary.weight, asked, seen)
    return total - total * elsewhere // 100
