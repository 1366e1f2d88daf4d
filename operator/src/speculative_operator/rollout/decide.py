"""Snapshot and assessment in, decision out: the ordered gates of a rollout (pure).

The first gate that fires makes the transition of this pass; the next look is
then at once. The order of `GATES` is part of the rules and has its own test.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from speculative_api.conditions import ConditionType
from speculative_operator.decision import Assessment, Decision
from speculative_operator.rollout import (
    at_zero,
    canary_gates,
    drifting,
    groups,
    guard_gates,
    idle_gates,
    mode_gates,
    pausing,
    preflight_gates,
    removal_gates,
    restarting,
    returning,
    shadow_gates,
    stable_gates,
    steering,
    step_gates,
)
from speculative_operator.rollout.shadowing import copies
from speculative_operator.rollout.shares import scales, shares
from speculative_operator.rollout.status import published
from speculative_operator.rollout.times import seconds_since
from speculative_operator.rollout.transition import Transition
from speculative_operator.rollout.trial import trial_of
from speculative_operator.scaling.idling import seconds_to_idle
from speculative_operator.scaling.schedules import seconds_to_change
from speculative_operator.snapshot import Snapshot

Gate = Callable[[Snapshot, Assessment], Transition | None]

GATES: Final[tuple[Gate, ...]] = (
    stable_gates.retry_requested,
    stable_gates.stable_restored,
    stable_gates.first_revision,
    stable_gates.first_revision_failed,
    stable_gates.stable_available,
    idle_gates.idle_woken,
    idle_gates.idle_over,
    groups.group_ended,
    # Ways out of a trial come before ways forward.
    canary_gates.abort_requested,
    canary_gates.canary_superseded,
    canary_gates.canary_cannot_start,
    canary_gates.canary_unhealthy,
    canary_gates.canary_worse,
    canary_gates.canary_late,
    guard_gates.guard_reverted,
    guard_gates.promoted_worse,
    returning.return_finished,
    guard_gates.guard_over,
    returning.holdback_seen,
    at_zero.zero_changed,
    pausing.pause_changed,
    mode_gates.weights_lost,
    step_gates.steps_changed,
    canary_gates.canary_promoted,
    steering.promoted_in_full,
    steering.step_skipped,
    step_gates.canary_ready,
    shadow_gates.shadow_given,
    step_gates.weight_given,
    shadow_gates.shadow_over,
    step_gates.pause_over,
    removal_gates.route_left,
    removal_gates.pods_released,
    restarting.restart_done,
    restarting.restart_stalled,
    drifting.drift_forgotten,
    drifting.drift_begun,
    drifting.recover_requested,
    drifting.baseline_measured,
    drifting.drift_shown,
    drifting.drift_over,
    drifting.pods_recycled,
    drifting.speculation_disabled,
    drifting.speculation_enabled,
    restarting.restart_requested,
    preflight_gates.preflight_dropped,
    preflight_gates.preflight_ended,
    stable_gates.stable_replaced_directly,
    canary_gates.canary_started,
    idle_gates.idle_begun,
)

FORWARD: Final[frozenset[Gate]] = frozenset(
    {
        canary_gates.canary_promoted,
        steering.promoted_in_full,
        steering.step_skipped,
        step_gates.canary_ready,
        shadow_gates.shadow_given,
        step_gates.weight_given,
        shadow_gates.shadow_over,
        step_gates.pause_over,
    }
)
"""Gates that stay shut while a person holds the rollout, or it is scaled to 0.

Other steps are no way forward: an index into the old ones would be one."""

BEGINNINGS: Final[frozenset[Gate]] = frozenset(
    {
        restarting.restart_requested,
        stable_gates.stable_replaced_directly,
        canary_gates.canary_started,
    }
)
"""Gates that stay shut until pods that were released while nobody asked are back."""

IDLE_SECONDS: Final = 60.0
"""Next look while nothing is going on: events wake a pass sooner."""
BUSY_SECONDS: Final = 1.0
"""Next look while gateways are to follow a route: their answers come by scraping."""
SOONEST_SECONDS: Final = 0.03
"""First look after a revision was taken out: an Envoy uses a weight within about that time."""
STARTING_SECONDS: Final = 5.0
"""Next look while pods begin to start: their readiness comes as an event, so this is only for
messages and deadlines. Who waits long is looked at less often: a twelfth of the wait, at most
IDLE_SECONDS, as is who has no pod to ask at all: a thousand resources that wait for GPUs would
keep a core busy."""
AT_ONCE_SECONDS: Final = 0.0


def decide(snapshot: Snapshot, assessment: Assessment | None = None) -> Decision:
    """The decision of one pass. Never raises for a bad world."""
    evidence = assessment or Assessment()
    held = pausing.is_paused(snapshot) or at_zero.is_at_zero(snapshot)
    shut: frozenset[Gate] = FORWARD if held else frozenset()
    if snapshot.status.idle is not None:
        shut |= BEGINNINGS
    open_gates = (gate for gate in GATES if gate not in shut)
    fired = next((found for gate in open_gates if (found := gate(snapshot, evidence))), None)
    after = replace(snapshot, status=fired.status) if fired else snapshot
    trial = trial_of(after.status)
    return Decision(
        status=published(after, evidence),
        transition=fired is not None,
        scales=scales(after),
        shares=shares(after),
        copies=copies(after),
        events=fired.events if fired else (),
        next_look_seconds=AT_ONCE_SECONDS if fired else _next_look(after),
        judged=(trial.candidate, trial.control) if trial else None,
    )


def _next_look(snapshot: Snapshot) -> float:
    status = snapshot.status
    if status.preflight is not None and status.preflight.outcome is None:
        return STARTING_SECONDS
    if status.stable is None:
        return IDLE_SECONDS
    if status.retiring:
        youngest = min(seconds_since(entry.since, snapshot.now) for entry in status.retiring)
        return min(max(youngest / 4, SOONEST_SECONDS), BUSY_SECONDS)
    if _weight_is_awaited(snapshot) or _gateway_lags(snapshot):
        return BUSY_SECONDS
    if restarting.is_restarting(snapshot) or _gateway_complains(snapshot):
        return STARTING_SECONDS
    if status.canary is not None and status.canary.step < 0:
        return _starting(seconds_since(status.canary.step_started_at, snapshot.now))
    if status.stable.available_at is None:
        if not _can_be_asked(snapshot):
            # What says how far a start is has no address yet, and no deadline runs.
            return IDLE_SECONDS
        return _starting(_unavailable_seconds(snapshot))
    if returning.is_returning(snapshot):
        return STARTING_SECONDS
    if trial_of(status) is not None or status.canary is not None:
        return float(snapshot.spec.rollout.analysis.period_seconds)
    if status.idle is not None and status.idle.woken_at is not None:
        return STARTING_SECONDS
    due = (seconds_to_change(snapshot.spec.autoscaling, snapshot.now), seconds_to_idle(snapshot))
    asked = drifting.question(snapshot)
    # Four looks at a block; with the default that is as rare as without drift.
    judged = asked.block_seconds / 4 if asked is not None else IDLE_SECONDS
    return min(IDLE_SECONDS, judged, *due)


def _starting(waited_seconds: float) -> float:
    return min(max(STARTING_SECONDS, waited_seconds / 12), IDLE_SECONDS)


def _can_be_asked(snapshot: Snapshot) -> bool:
    workers, gateways = snapshot.pods, snapshot.gateways
    return any(p.address for p in workers) or any(g.address for g in gateways)


def _unavailable_seconds(snapshot: Snapshot) -> float:
    """For how long nothing has served, as far as status says."""
    conditions = snapshot.status.conditions
    since = [c.last_transition_time for c in conditions if c.type == ConditionType.AVAILABLE]
    return seconds_since(since[0], snapshot.now) if since else 0.0


def _weight_is_awaited(snapshot: Snapshot) -> bool:
    canary = snapshot.status.canary
    if canary is None:
        return False
    if shadow_gates.is_awaited(snapshot, canary):
        return True
    if canary.weight_observed_at is not None:
        return False
    return canary.weight > 0 or (canary.step < 0 and snapshot.ready_pods(canary.hash) > 0)


def _gateway_complains(snapshot: Snapshot) -> bool:
    """Whether one says what is wrong: it tries again by itself, and no event says how it went."""
    return any(gateway.state.error for gateway in snapshot.gateways if gateway.state is not None)


def _gateway_lags(snapshot: Snapshot) -> bool:
    """Whether a gateway that answers does not use the route yet."""
    wanted = snapshot.route.sequence if snapshot.route else 0
    return any(
        gateway.state.sequence != wanted or not gateway.state.ready
        for gateway in snapshot.gateways
        if gateway.state is not None
    ) or any(gateway.ready and gateway.state is None for gateway in snapshot.gateways)
