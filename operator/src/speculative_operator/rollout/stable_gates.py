"""Gates about the revision in service: the first one, a restored one, one replaced directly."""

from typing import Final

from speculative_api.conditions import Reason
from speculative_api.labels import RETRY
from speculative_api.v1alpha1 import RetiringStatus, StableStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.capacity import gives_up_capacity
from speculative_operator.rollout.preflight_gates import checked
from speculative_operator.rollout.times import stamp
from speculative_operator.rollout.transition import (
    Transition,
    fail,
    has_failed,
    next_number,
    retire,
    transition,
    wanted,
)
from speculative_operator.snapshot import Snapshot

_SERVING_TRACKS: Final = ("stable", "canary", "previous", "retiring")


def retry_requested(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person said retry: the named hash is forgotten as failed, once per annotation value."""
    asked = snapshot.annotations.get(RETRY)
    if not asked or asked == snapshot.status.observed_retry or len(asked) > 256:
        return None
    nothing_yet = snapshot.status.stable is None
    if nothing_yet and not (snapshot.status.failed_revisions or snapshot.status.parked):
        # Status may have been emptied: first find out what is in service.
        return None
    revision = asked.partition("@")[0]
    kept = [entry for entry in snapshot.status.failed_revisions if entry.hash != revision]
    parked = snapshot.status.parked
    waits = parked is not None and parked.hash == revision
    forgotten = waits or len(kept) < len(snapshot.status.failed_revisions)
    message = (
        f"Revision {revision} may be tried again."
        if forgotten
        else f"Nothing to retry: {revision} is not among the failed revisions."
    )
    return transition(
        snapshot,
        Event("RetryRequested", message),
        failed_revisions=kept,
        parked=None if waits else parked,
        group_failures=[e for e in snapshot.status.group_failures if e.hash != revision],
        # What was found in its files then may be another thing now.
        preflight=None if forgotten and _is_over(snapshot, revision) else snapshot.status.preflight,
        observed_retry=asked,
    )


def _is_over(snapshot: Snapshot, revision: str) -> bool:
    entry = snapshot.status.preflight
    return entry is not None and entry.hash == revision and entry.outcome is not None


def stable_restored(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Status is empty but children exist (a restore): stable is what the route says.

    Every other revision that may be serving is taken out in order.
    """
    if snapshot.status.stable is not None:
        return None
    revision = snapshot.route.default if snapshot.route else None
    if revision is None:
        tracks = (view.hash for view in snapshot.deployments.values() if view.track == "stable")
        revision = next(tracks, None)
    if revision is None or not (revision in snapshot.revisions or revision in snapshot.deployments):
        return None
    ready = snapshot.ready_pods(revision) > 0
    stable = StableStatus(
        revision=next_number(snapshot, revision),
        hash=revision,
        available_at=stamp(snapshot.now) if ready else None,
    )
    routed = [backend.hash for backend in snapshot.route.backends] if snapshot.route else []
    running = [v.hash for v in snapshot.deployments.values() if v.track in _SERVING_TRACKS]
    # What stable gave up pods for goes on serving until it has them again.
    has = {b.hash: b.weight for b in snapshot.route.backends} if snapshot.route else {}
    gave_up = gives_up_capacity(snapshot)
    leaving = [
        RetiringStatus(
            hash=other, since=stamp(snapshot.now), weight=has.get(other, 0) if gave_up else 0
        )
        for other in dict.fromkeys([*routed, *running])
        if other != revision
    ]
    message = f"Status was empty; {revision} is stable, as the route says."
    return transition(snapshot, Event("StableRestored", message), stable=stable, retiring=leaving)


def first_revision(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Nothing exists yet: the wanted revision becomes stable without a trial."""
    if snapshot.status.stable is not None or snapshot.is_refused:
        return None
    revision = snapshot.words.hash
    stable = StableStatus(revision=next_number(snapshot, revision), hash=revision)
    event = Event(Reason.REVISION_STARTING, f"Revision {stable.revision} ({revision}) starts.")
    return checked(snapshot, revision, transition(snapshot, event, stable=stable))


def stable_available(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Stable has all its pods ready for the first time: from now on it is protected."""
    stable = snapshot.status.stable
    if stable is None or stable.available_at is not None or snapshot.spec.replicas == 0:
        return None
    ready = snapshot.ready_pods(stable.hash)
    if ready < snapshot.spec.replicas:
        return None
    message = f"Revision {stable.revision} ({stable.hash}) is available: {ready} pods ready."
    return transition(
        snapshot,
        Event(Reason.STABLE_READY, message),
        stable=stable.model_copy(update={"available_at": stamp(snapshot.now)}),
    )


def first_revision_failed(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A revision that was never available ended with a reason that no retry can cure."""
    stable = snapshot.status.stable
    if stable is None or stable.available_at is not None or has_failed(snapshot, stable.hash):
        return None
    for end in snapshot.ends(stable.hash):
        if not end.retryable:
            message = f"Revision {stable.revision} ({stable.hash}): {end.detail}"
            return transition(
                snapshot,
                Event(end.reason, message, "Warning"),
                failed_revisions=fail(snapshot, stable.hash, reason=end.reason, message=message),
            )
    return None


def stable_replaced_directly(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Nothing serves yet (never available, or scaled to 0): a new spec needs no trial."""
    status = snapshot.status
    revision = wanted(snapshot)
    if status.stable is None or revision is None or revision == status.stable.hash:
        return None
    if status.canary is not None or status.guard is not None or has_failed(snapshot, revision):
        return None
    if status.stable.available_at is not None and snapshot.spec.replicas > 0:
        return None
    stable = StableStatus(revision=next_number(snapshot, revision), hash=revision)
    retiring = [e for e in retire(snapshot, status.stable.hash) if e.hash != revision]
    message = (
        f"Revision {stable.revision} ({revision}) replaces {status.stable.hash} directly: "
        "no pod of that was serving."
    )
    event = Event(Reason.SUPERSEDED, message)
    start = transition(snapshot, event, stable=stable, retiring=retiring)
    return checked(snapshot, revision, start)
