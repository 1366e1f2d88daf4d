"""What follows from status memory: pods per revision and the shares of the route.

Re-derived in every pass, so that a crash between any two writes heals.
"""

from speculative_operator.decision import Scale, Share
from speculative_operator.rollout.gateways import active_requests
from speculative_operator.rollout.returning import guard_pods, guard_weight, is_kept
from speculative_operator.rollout.steps import canary_replicas
from speculative_operator.rollout.transition import has_failed, wanted
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
    leaving = [entry for entry in status.retiring if entry.route_removed_at is None]
    return (*listed, *(Share(entry.hash, 0) for entry in leaving))


def _tried_weight(snapshot: Snapshot) -> int:
    if not snapshot.spec.gateway.mode.splits:
        return 0
    canary = snapshot.status.canary
    if canary is None:
        return guard_weight(snapshot)
    return canary.weight if snapshot.ready_pods(canary.hash) > 0 else 0


def scales(snapshot: Snapshot) -> tuple[Scale, ...]:
    """Every revision that keeps a Deployment, with its pods."""
    status = snapshot.status
    if status.stable is None:
        return ()
    total = snapshot.spec.replicas
    failed_first = status.stable.available_at is None and has_failed(snapshot, status.stable.hash)
    found = [Scale(status.stable.hash, "stable", 0 if failed_first else total)]
    if status.canary is not None:
        found.append(Scale(status.canary.hash, "canary", canary_replicas(snapshot)))
    if status.guard is not None and is_kept(snapshot):
        found.append(Scale(status.guard.hash, "previous", guard_pods(snapshot)))
    found += [_leaving(snapshot, entry.hash) for entry in status.retiring]
    named = {scale.hash for scale in found}
    revision = wanted(snapshot)
    if revision is not None and revision not in named and revision in snapshot.deployments:
        # Kept at 0 while the spec still names it, for whoever looks at why it failed.
        found.append(Scale(revision, "failed", 0))
    return tuple(found)


def _leaving(snapshot: Snapshot, revision: str) -> Scale:
    view = snapshot.deployments.get(revision)
    serves = snapshot.ready_pods(revision) > 0 or active_requests(snapshot, revision) > 0
    return Scale(revision, "retiring", view.replicas if view is not None and serves else 0)
