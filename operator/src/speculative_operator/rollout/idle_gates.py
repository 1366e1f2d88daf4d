"""Gates of idle times: pods are released when nobody has asked for long, and come back.

Written to status before anything is released or started. Never beside a
rollout: what is on trial, kept or on its way out keeps everything as it is.
"""

from typing import Literal

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import IdleStatus, StableStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.gateways import is_silent
from speculative_operator.rollout.restarting import is_restarting
from speculative_operator.rollout.times import moment, seconds_since, stamp
from speculative_operator.rollout.transition import Transition, has_failed, transition, wanted
from speculative_operator.scaling.idling import (
    FRESH_SECONDS,
    idle_of,
    is_released,
    is_telling,
    pods_while_idle,
    quiet_seconds,
    schedule_with_a_minimum,
)
from speculative_operator.snapshot import GatewayPod, Snapshot

Found = tuple[ConditionType, Literal["True", "False", "Unknown"], Reason, str]


def idle_begun(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Every gateway says that nobody has asked for long enough, and nothing else is going on."""
    idle = idle_of(snapshot.spec)
    if idle is None or snapshot.status.idle is not None or _why_awake(snapshot):
        return None
    gateways = [gateway for gateway in snapshot.gateways if not is_silent(gateway)]
    if not gateways or not all(_is_quiet(snapshot, each, idle.after_seconds) for each in gateways):
        return None
    message = (
        f"Nobody has asked for {idle.after_seconds} s: {pods_while_idle(snapshot)} of "
        f"{snapshot.spec.replicas} pods stay until somebody does."
    )
    return transition(
        snapshot, Event(Reason.IDLE, message), idle=IdleStatus(since=stamp(snapshot.now))
    )


def _is_quiet(snapshot: Snapshot, gateway: GatewayPod, seconds: int) -> bool:
    """Whether it knows now that nobody asks, and would notice the next one."""
    quiet = quiet_seconds(gateway, watching=True)
    newest = snapshot.route.sequence if snapshot.route is not None else -1
    return (
        quiet is not None
        and quiet >= seconds
        and gateway.silent_seconds < FRESH_SECONDS
        and gateway.state is not None
        and gateway.state.ready
        and gateway.state.sequence >= newest
        and not any(cluster.active for cluster in gateway.state.clusters)
    )


def _why_awake(snapshot: Snapshot) -> str:
    """Why pods stay whoever asks; empty when only requests keep them."""
    status = snapshot.status
    if snapshot.findings:
        return "the spec is refused"
    if status.stable is None or status.stable.available_at is None:
        return "the first revision is not available yet"
    if status.canary or status.guard or status.retiring or _has_a_trial_ahead(snapshot):
        return "a rollout goes on"
    if is_restarting(snapshot):
        return "a restart goes on"
    if name := schedule_with_a_minimum(snapshot):
        return f"schedule {name} asks for pods"
    if snapshot.spec.replicas <= pods_while_idle(snapshot):
        return "there is no pod to release"
    waits = snapshot.route is not None and snapshot.route.waiting is not None
    if pods_while_idle(snapshot) == 0 and not waits:
        return "the gateways do not wait for requests yet"
    if any(not is_telling(each) for each in snapshot.gateways if not is_silent(each)):
        return "a gateway pod does not say when somebody asked"
    return ""


def _has_a_trial_ahead(snapshot: Snapshot) -> bool:
    """Whether the spec asks for a revision that is to be tried."""
    stable, revision = snapshot.status.stable, wanted(snapshot)
    if stable is None or revision is None or revision == stable.hash:
        return False
    return not has_failed(snapshot, revision)


def idle_woken(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Somebody asks, or something else needs pods."""
    idle = snapshot.status.idle
    if idle is None or idle.woken_at is not None:
        return None
    why = _why_woken(snapshot, idle)
    if not why:
        return None
    woken = idle.model_copy(update={"woken_at": stamp(snapshot.now)})
    slept = seconds_since(idle.since, snapshot.now)
    message = f"After {slept:.0f} s {why}: {snapshot.spec.replicas} pods are wanted again."
    return transition(snapshot, Event(Reason.WAKING, message), idle=woken)


def _why_woken(snapshot: Snapshot, idle: IdleStatus) -> str:
    if idle_of(snapshot.spec) is None:
        return "spec.autoscaling.idle was taken out"
    if _has_a_trial_ahead(snapshot):
        return "there is a new revision to try"
    if name := schedule_with_a_minimum(snapshot):
        return f"schedule {name} asks for pods"
    slept = snapshot.now.timestamp() - moment(idle.since).timestamp()
    for gateway in snapshot.gateways:
        quiet = quiet_seconds(gateway, watching=False)
        if quiet is not None and quiet < slept:
            return "somebody asked"
        if gateway.state is not None and not is_telling(gateway):
            return f"{gateway.name} does not say when somebody asks"
    return ""


def idle_over(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A pod more than stayed is ready: how long that took is what clients are told next time.

    Where none comes in time the wake is over as well: what is wanted may be a revision that can
    start, and that waits until then.
    """
    idle, stable = snapshot.status.idle, snapshot.status.stable
    if idle is None or idle.woken_at is None or stable is None:
        return None
    ready = snapshot.ready_pods(stable.hash)
    if ready < min(snapshot.spec.replicas, pods_while_idle(snapshot) + 1):
        return _woken_in_vain(snapshot, idle, stable, ready)
    took = max(1, round(seconds_since(idle.woken_at, snapshot.now)))
    message = f"{ready} of {snapshot.spec.replicas} pods are ready {took} s after the wake."
    # Of a wake in which some pods had stayed, no client had to wait.
    measured = took if ready and pods_while_idle(snapshot) == 0 else snapshot.status.load_seconds
    return transition(snapshot, Event(Reason.AWAKE, message), idle=None, load_seconds=measured)


def _woken_in_vain(
    snapshot: Snapshot, idle: IdleStatus, stable: StableStatus, ready: int
) -> Transition | None:
    waited = seconds_since(idle.woken_at, snapshot.now)
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    if waited < deadline:
        return None
    said = (
        f"{ready} of {snapshot.spec.replicas} pods are ready {waited:.0f} s after the wake "
        f"(progressDeadlineSeconds {deadline}); whatever the spec asks for is tried now. "
        f"{snapshot.waiting_reason(stable.hash)}"
    )
    return transition(snapshot, Event(Reason.AWAKE, said.rstrip(), "Warning"), idle=None)


def idle_condition(snapshot: Snapshot) -> Found | None:
    """Whether pods are released; None where the spec does not speak of it."""
    kind, wanted_, idle = ConditionType.IDLE, idle_of(snapshot.spec), snapshot.status.idle
    if idle is None and wanted_ is None:
        return None
    if is_released(snapshot.status) and idle is not None:
        stay = pods_while_idle(snapshot)
        message = f"Since {idle.since} nobody has asked; {stay} pods stay until somebody does."
        return kind, "True", Reason.IDLE, message
    stable = snapshot.status.stable
    if idle is not None:
        ready = snapshot.ready_pods(stable.hash) if stable else 0
        words = snapshot.waiting_reason(stable.hash) if stable else ""
        message = (
            f"Woken at {idle.woken_at}: {ready} of {snapshot.spec.replicas} pods ready. {words}"
        )
        return kind, "False", Reason.WAKING, message.rstrip()
    seconds = wanted_.after_seconds if wanted_ else 0
    message = f"Pods are released when nobody has asked for {seconds} s."
    if why := _why_awake(snapshot):
        message = f"{message} For now they stay: {why}."
    return kind, "False", Reason.AWAKE, message
