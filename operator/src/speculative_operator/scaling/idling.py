"""Pods released while nobody asks: what the spec wants, and what the gateways have seen.

Pure. Agents tell times by their own clocks; only differences of one clock are
used, so that clocks that differ neither release nor wake anything.
"""

from collections.abc import Iterator
from typing import Final

from speculative_api import gateway as api
from speculative_api.v1alpha1 import (
    Idle,
    SpeculativeDeploymentSpec,
    SpeculativeDeploymentStatus,
)
from speculative_operator.scaling.schedules import began_at
from speculative_operator.snapshot import GatewayPod, Snapshot

FRESH_SECONDS: Final = 5.0
"""An older answer does not say that nobody asks now."""
SOONEST_LOOK_SECONDS: Final = 15.1
"""Pods are asked again by the first pass after 15 s."""
UNMEASURED_LOAD_SECONDS: Final = 60
"""Told to clients until the first wake has shown how long pods take."""


def idle_of(spec: SpeculativeDeploymentSpec) -> Idle | None:
    """What the spec says about idle times; None where pods stay."""
    return spec.autoscaling.idle if spec.autoscaling is not None else None


def is_released(status: SpeculativeDeploymentStatus) -> bool:
    """Whether pods are released now and nobody has woken them."""
    return status.idle is not None and status.idle.woken_at is None


def pods_while_idle(snapshot: Snapshot) -> int:
    """Pods of stable that stay."""
    wanted = idle_of(snapshot.spec)
    return min(snapshot.spec.replicas, wanted.replicas) if wanted else snapshot.spec.replicas


def waiting(snapshot: Snapshot) -> api.Waiting | None:
    """What gateways do with requests that find no worker; None where pods always stay."""
    wanted = idle_of(snapshot.spec)
    if wanted is None or wanted.replicas > 0:
        return None
    return api.Waiting(
        hold_seconds=wanted.hold_seconds,
        retry_after_seconds=snapshot.status.load_seconds or UNMEASURED_LOAD_SECONDS,
    )


def is_telling(gateway: GatewayPod) -> bool:
    """Whether this gateway says when somebody asked."""
    return gateway.state is not None and gateway.state.activity is not None


def quiet_seconds(gateway: GatewayPod, *, watching: bool) -> float | None:
    """Seconds without a request, as far as this gateway knows; None where it does not say.

    Args:
        watching: whether the time before its first request counts from when it began to watch.
    """
    state = gateway.state
    if state is None or state.activity is None:
        return None
    since = state.activity.requested_at
    if since is None and watching:
        since = state.activity.since
    if since is None:
        return None
    return max(0.0, state.sampled_at - since) + gateway.silent_seconds


def seconds_to_idle(snapshot: Snapshot) -> float:
    """Until pods may be released; infinite where that is not in sight."""
    wanted = idle_of(snapshot.spec)
    if wanted is None or snapshot.status.idle is not None:
        return float("inf")
    known = [quiet_seconds(gateway, watching=True) for gateway in snapshot.gateways]
    quiet = min((seconds for seconds in known if seconds is not None), default=0.0)
    return max(SOONEST_LOOK_SECONDS, wanted.after_seconds - quiet)


def schedule_with_a_minimum(snapshot: Snapshot) -> str:
    """Name of a schedule in force that asks for pods, whoever asks; empty: none."""
    autoscaling = snapshot.spec.autoscaling
    schedules = autoscaling.schedules if autoscaling is not None else ()
    return next(
        (
            schedule.name
            for schedule in schedules
            if schedule.min_replicas and began_at(schedule, snapshot.now) is not None
        ),
        "",
    )


def findings(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    """What idle times can't be combined with, as far as the schema can't say it."""
    wanted = idle_of(spec)
    if wanted is None:
        return
    field = "spec.autoscaling.idle"
    if not spec.gateway.mode.reads_back:
        yield (
            f"{field} needs gateway.mode Envoy or Shared, not {spec.gateway.mode}: nobody else "
            "says when somebody asks"
        )
    if wanted.hold_seconds > spec.gateway.timeouts.idle_seconds:
        yield (
            f"{field}.holdSeconds {wanted.hold_seconds} is more than gateway.timeouts.idleSeconds "
            f"{spec.gateway.timeouts.idle_seconds}, which would end the request sooner: lower it, "
            "or raise the other"
        )
