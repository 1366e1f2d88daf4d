"""The native lane: which revision without speculation should run, and which one is leaving.

A new native revision is brought up before the old one goes: the old Deployment
stays until the new one has a ready pod and no gateway's Envoy knows the old
cluster any more. Called by `objects` and `route`.
"""

from dataclasses import dataclass
from typing import Final

from speculative_operator.decision import Decision, Scale
from speculative_operator.desired.revision import native_words
from speculative_operator.scaling.idling import is_released, pods_while_idle
from speculative_operator.snapshot import Snapshot, Words

SILENT_SECONDS: Final = 15.0
"""A gateway pod that is not ready and silent for this long no longer holds a removal up."""
GIVEN_UP_SECONDS: Final = 60.0
"""Silent for this long, even a ready one does not: the workers' own drain remains."""


@dataclass(frozen=True, slots=True)
class NativeLane:
    """Pods of the lane: `wanted` with its words, `leaving` ones, and who gets the requests."""

    wanted: Scale | None = None
    words: Words | None = None
    leaving: tuple[Scale, ...] = ()
    serving: str | None = None
    """Hash that the route names; None while the lane is off."""


def words_of_stable(snapshot: Snapshot, decision: Decision) -> Words | None:
    """The stable revision's words; None while there is no stable or its record is lost."""
    stable = decision.status.stable
    if stable is None:
        return None
    record = snapshot.revisions.get(stable.hash)
    if record is not None:
        return Words(hash=record.hash, canonical=record.words)
    return snapshot.words if snapshot.words.hash == stable.hash else None


def native_lane(snapshot: Snapshot, decision: Decision) -> NativeLane:
    """The lane as it should be now, derived from stable's words."""
    stable = words_of_stable(snapshot, decision)
    present = {v.hash: v for v in snapshot.deployments.values() if v.track == "native"}
    if stable is None:
        # Stable's words are unknown for now: whatever runs stays as it is.
        kept = tuple(Scale(v.hash, "native", v.replicas) for v in present.values())
        return NativeLane(leaving=kept, serving=_routed(snapshot))
    words = native_words(stable)
    replicas = _replicas(snapshot, decision, words.hash)
    if replicas and is_released(decision.status) and pods_while_idle(snapshot) == 0:
        # The lane stays in the route: who asks for it wakes the pods too.
        released = Scale(words.hash, "native", 0)
        return NativeLane(wanted=released, words=words, serving=words.hash)
    old = [view for hash_, view in sorted(present.items()) if hash_ != words.hash]
    if replicas == 0:
        old = sorted(present.values(), key=lambda view: view.hash)
        leaving = tuple(Scale(v.hash, "native", v.replicas) for v in old if _used(snapshot, v.hash))
        return NativeLane(leaving=leaving)
    ready = snapshot.ready_pods(words.hash) > 0
    routed = _routed(snapshot)
    waits = not ready and routed in {view.hash for view in old}
    leaving = tuple(
        Scale(v.hash, "native", v.replicas) for v in old if not ready or _used(snapshot, v.hash)
    )
    return NativeLane(
        wanted=Scale(words.hash, "native", replicas),
        words=words,
        leaving=leaving,
        serving=routed if waits else words.hash,
    )


def _replicas(snapshot: Snapshot, decision: Decision, native: str) -> int:
    """Pods of the lane; none once the first revision was found to be hopeless.

    As many as stable has where they are to take its traffic, and until no
    gateway sends it there any more.

    Nobody judges native pods, so a target that can never load would crash in
    this lane for ever. Until that is known the lane starts beside stable.
    """
    status = decision.status
    if status.stable is None:
        return 0
    failed = any(entry.hash == status.stable.hash for entry in status.failed_revisions)
    hopeless = failed and status.stable.available_at is None
    lane = snapshot.spec.lanes.native.replicas
    drift = status.drift
    takes_over = drift is not None and (drift.hash, drift.state) == (status.stable.hash, "Disabled")
    if takes_over or _has_share(snapshot, decision, native):
        return max(lane, snapshot.spec.replicas)
    return 0 if hopeless else lane


def _has_share(snapshot: Snapshot, decision: Decision, native: str) -> bool:
    """Whether a part of the accelerated lane's requests goes to this native revision."""
    weights = [share.weight for share in decision.shares if share.hash == native]
    if snapshot.route is not None:
        weights += [each.weight for each in snapshot.route.backends if each.hash == native]
    for gateway in snapshot.gateways:
        silent = gateway.silent_seconds >= GIVEN_UP_SECONDS
        if gateway.state is not None and not silent:
            weights += [c.weight for c in gateway.state.clusters if c.hash == native]
    return any(weights)


def _routed(snapshot: Snapshot) -> str | None:
    route = snapshot.route
    return route.native.hash if route is not None and route.native is not None else None


def _used(snapshot: Snapshot, hash_: str) -> bool:
    """Whether the route or any answering gateway still knows this revision."""
    if _routed(snapshot) == hash_:
        return True
    for gateway in snapshot.gateways:
        limit = GIVEN_UP_SECONDS if gateway.ready else SILENT_SECONDS
        if gateway.silent_seconds >= limit:
            continue
        state = gateway.state
        if state is None or any(cluster.hash == hash_ for cluster in state.clusters):
            return True
    return False
