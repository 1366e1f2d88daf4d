"""What status says to and about autoscalers: the scale subresource, and AutoscalingActive.

Called by `status`, in every pass.
"""

from typing import Literal

from speculative_api import labels
from speculative_api.conditions import ConditionType, Reason
from speculative_operator.scaling.idling import is_released
from speculative_operator.scaling.schedules import bounds
from speculative_operator.snapshot import Snapshot

Found = tuple[ConditionType, Literal["True", "False", "Unknown"], Reason, str]


def scale_replicas(snapshot: Snapshot, serving: list[str]) -> int:
    """Pods that exist, as far as spec.replicas asks for them.

    The pods of a canary come on top of spec.replicas. Counted, they would creep
    in: an autoscaler near its target answers with the count it was shown.
    """
    present = sum(len(snapshot.pods_of(revision)) for revision in serving)
    return min(present, snapshot.spec.replicas)


def scale_selector(snapshot: Snapshot, serving: list[str]) -> str:
    """Selects the serving pods; with the name, since equal specs have equal hashes.

    Never empty: an autoscaler stops at an empty selector, whatever its metrics.
    """
    mine = f"{labels.NAME}={snapshot.name}"
    if not serving:
        return f"{mine},{labels.COMPONENT}={labels.COMPONENT_WORKER}"
    return f"{mine},{labels.REVISION} in ({','.join(serving)})"


def autoscaling_condition(snapshot: Snapshot) -> Found | None:
    """The autoscaler's own words; None where the spec asks for no autoscaling."""
    autoscaling = snapshot.spec.autoscaling
    if autoscaling is None:
        return None
    kind, view = ConditionType.AUTOSCALING_ACTIVE, snapshot.autoscaler
    now = bounds(autoscaling, snapshot.now)
    range_ = f"{now.minimum} to {now.maximum} pods"
    if now.schedule and now.until:
        range_ += f" (schedule {now.schedule} until {now.until:%Y-%m-%dT%H:%M:%SZ})"
    if is_released(snapshot.status):
        message = f"{range_}. Not while pods are released: see the condition Idle."
        return kind, "Unknown", Reason.IDLE, message
    if view is None or view.is_active is None:
        return kind, "Unknown", Reason.AUTOSCALER_STARTING, f"{range_}. Nothing said yet."
    if view.is_active:
        return kind, "True", Reason.AUTOSCALING, f"{range_}. {view.message}"
    return kind, "False", Reason.AUTOSCALER_BLIND, f"{range_}. {view.message}"
