"""Raw resources that show only what a test is about."""

from typing import Any

STABLE = "6f9d00aa11"
CANARY = "a01c22bb33"
FAILED = "77be44cc55"
START = "2026-11-30T10:00:00Z"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": START,
    }


GOOD = [
    condition("Accepted", "True", "Valid"),
    condition("Available", "True", "StableReady"),
    condition("Progressing", "True", "Complete"),
    condition("SpeculationActive", "True", "Drafting"),
    condition("GatewayReady", "True", "GatewayServing"),
]


def stable(**fields: Any) -> dict[str, Any]:
    found = {"revision": 3, "hash": STABLE, "replicas": 4, "readyReplicas": 4}
    return found | {"availableAt": START, "acceptanceLength": "2.84"} | fields


def canary(**fields: Any) -> dict[str, Any]:
    found = {"revision": 4, "hash": CANARY, "startedAt": START, "step": 1, "stepStartedAt": START}
    return found | {"weight": 50, "observedWeight": 50, "replicas": 2, "readyReplicas": 2} | fields


def failed(revision: str = FAILED, **fields: Any) -> dict[str, Any]:
    found = {"hash": revision, "reason": "AcceptanceWorse", "message": "1.02 is less than 2.56"}
    return found | {"at": START} | fields


PARKED = {
    "hash": CANARY,
    "reason": "CapacityBlocked",
    "message": "no pod ready after 600 s; Unschedulable: 0/3 nodes are available",
    "attempts": 1,
    "until": "2026-11-30T11:00:00Z",
}


def a_resource(*, steps: list[Any] | None = None, **status: Any) -> dict[str, Any]:
    if steps is None:
        steps = [{"weight": 50}, {"pause": {"durationSeconds": 90}}]
    return {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "chat", "namespace": "llm", "generation": 7},
        "spec": {
            "target": {"model": "file:///m"},
            "speculation": {"method": "NGram", "numSpeculativeTokens": 4},
            "rollout": {"steps": steps, "guard": {"durationSeconds": 30}},
        },
        "status": {
            "observedGeneration": 7,
            "conditions": GOOD,
            "stable": stable(),
            "message": "Serving.",
        }
        | status,
    }
