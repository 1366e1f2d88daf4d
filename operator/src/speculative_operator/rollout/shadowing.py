"""What follows from status memory about copies of requests: whose they are, and when they are over.

A canary is sent copies only while it has no users, so that whatever its pods
count is of one kind. The last copies have to be answered before users come, or
before it is promoted.
"""

from speculative_api.v1alpha1 import CanaryStatus, ShadowStep
from speculative_operator.decision import Copies
from speculative_operator.rollout.capacity import canary_weight
from speculative_operator.rollout.gateways import active_requests, nobody_copies
from speculative_operator.rollout.steps import shadow_steps, step_at
from speculative_operator.rollout.times import seconds_since
from speculative_operator.snapshot import Snapshot


def copies(snapshot: Snapshot) -> Copies | None:
    """Copies as the route has them: beside a canary that has a shadow step, 0 percent in between.

    What the route has stays there until the canary leaves it: taking it away, and
    putting it there, rewrites the route, which fills every bucket of the limits anew.
    """
    if not snapshot.spec.gateway.mode.reads_back:
        return None
    status, before = snapshot.status, snapshot.route.shadow if snapshot.route else None
    had = before.hash if before else ""
    if status.canary is None:
        leaves = any(e.hash == had and e.route_removed_at is None for e in status.retiring)
        return Copies(had, 0, None) if leaves else None
    step = _nearest(snapshot, status.canary)
    if step is None:
        return Copies(had, 0, None) if had == status.canary.hash else None
    return Copies(
        status.canary.hash, copied_percent(snapshot, status.canary), step.max_concurrent_requests
    )


def copied_percent(snapshot: Snapshot, canary: CanaryStatus) -> int:
    """Percent that is copied now: nothing to a canary that can't answer, or that has users."""
    serves = snapshot.ready_pods(canary.hash) > 0 and canary_weight(snapshot) == 0
    return canary.shadow if serves else 0


def _nearest(snapshot: Snapshot, canary: CanaryStatus) -> ShadowStep | None:
    """The shadow step that the canary is in; else the first."""
    step = step_at(snapshot.spec.rollout, canary.step)
    if step is not None and step.shadow is not None:
        return step.shadow
    return next(iter(shadow_steps(snapshot.spec.rollout)), None)


def copies_are_over(snapshot: Snapshot, canary: CanaryStatus) -> bool:
    """Whether the last copies were answered, or have had the time that a drained pod would have."""
    if canary.shadow_started_at is None:
        return True
    return nobody_copies(snapshot, canary.hash) and is_drained(snapshot, canary)


def is_drained(snapshot: Snapshot, canary: CanaryStatus) -> bool:
    """Whether nothing is in flight to it, or its step has waited for that long enough."""
    waited = seconds_since(canary.step_started_at, snapshot.now)
    if waited >= snapshot.spec.engine.drain_seconds:
        return True
    return active_requests(snapshot, canary.hash) == 0
