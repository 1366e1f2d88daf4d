"""The order of the gates is a rule: ways out of a trial come before ways forward."""

from speculative_operator.rollout.decide import GATES

ORDER = [
    "retry_requested",
    "stable_restored",
    "first_revision",
    "first_revision_failed",
    "stable_available",
    "idle_woken",
    "idle_over",
    "abort_requested",
    "canary_superseded",
    "canary_cannot_start",
    "canary_unhealthy",
    "canary_worse",
    "canary_late",
    "guard_reverted",
    "promoted_worse",
    "return_finished",
    "guard_over",
    "holdback_seen",
    "pause_changed",
    "weights_lost",
    "steps_changed",
    "canary_promoted",
    "promoted_in_full",
    "step_skipped",
    "canary_ready",
    "weight_given",
    "pause_over",
    "route_left",
    "pods_released",
    "restart_done",
    "restart_stalled",
    "restart_requested",
    "preflight_dropped",
    "preflight_ended",
    "stable_replaced_directly",
    "canary_started",
    "idle_begun",
]


def test_gates_run_in_this_order() -> None:
    assert [gate.__name__ for gate in GATES] == ORDER
