"""What follows from status memory: pods per revision and the shares of the route.

Re-derived in every pass, so that a crash between any two writes heals.
"""

from speculative_operator.decision import Scale, Share
from speculative_operator.rollout.capacity import canary_pods, canary_weight
from speculative_operator.rollout.leaving import leaving_weight, pods_left, stable_pods
from speculative_operator.rollout.returning import guard_pods, guard_weight, is_kept
from speculative_operator.rollout.transition import has_failed, wanted
from speculative_operator.rollout.unaided import unaided_share
from speculative_operator.snapshot import Snapshot


def shares(snapshot: Snapshot) -> tuple[Share, ...]:
    """Percent per revision, stable first, summing to 100; empty before the first revision.

    A revision without a ready pod gets 0 whatever was decided: its share goes to
    stable until its pods are back.
    """
    status = snapshot.status
    if status.stable is None:
        return ()
    weight = _tried_weight(snapshot)
    listed = [Share(status.stable.hash, 100 - weight)]
    if status.canary is not None:
        listed.append(Share(status.canary.hash, weight))
    elif status.guard is not None and is_kept(snapshot):
        listed.append(Share(status.guard.hash, weight))
    for entry in status.retiring:
        if entry.route_removed_at is None:
            keeps = min(leaving_weight(snapshot, entry), listed[0].weight)
            listed.append(Share(entry.hash, keeps))
            listed[0] = Share(status.stable.hash, listed[0].weight - keeps)
    unaided = unaided_share(snapshot)
    if unaided is not None:
        taken = min(unaided.weight, listed[0].weight)
        listed.append(Share(unaided.hash, taken))
        listed[0] = Share(status.stable.hash, listed[0].weight - taken)
    return tuple(listed)


def _tried_weight(snapshot: Snapshot) -> int:
    if not snapshot.spec.gateway.mode.splits:
        return 0
    return canary_weight(snapshot) if snapshot.status.canary else guard_weight(snapshot)


def scales(snapshot: Snapshot) -> tuple[Scale, ...]:
    """Every revision that keeps a Deployment, with its pods."""
    status = snapshot.status
    if status.stable is None:
        return ()
    failed_first = status.stable.available_at is None and has_failed(snapshot, status.stable.hash)
    found = [Scale(status.stable.hash, "stable", 0 if failed_first else stable_pods(snapshot))]
    if status.canary is not None:
        found.append(Scale(status.canary.hash, "canary", canary_pods(snapshot)))
    if status.guard is not None and is_kept(snapshot):
        found.append(Scale(status.guard.hash, "previous", guard_pods(snapshot)))
    found += [Scale(e.hash, "retiring", pods_left(snapshot, e)) for e in status.retiring]
    named = {scale.hash for scale in found}
    revision = wanted(snapshot)
    if revision is not None and revision not in named and revision in snapshot.deployments:
        # Kept at 0 while the spec still names it, for whoever looks at why it failed.
        found.append(Scale(revision, "failed", 0))
    return tuple(found)
