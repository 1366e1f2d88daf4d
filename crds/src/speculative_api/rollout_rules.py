"""PURE: contradictions between a rollout and the rest of the spec that CEL must not refuse.

`replicas` is written by autoscalers too, through the scale subresource: a rule
of the schema would refuse their write, so these are findings of the operator
and of `lint`.
"""

from speculative_api.v1alpha1 import Capacity, SpeculativeDeploymentSpec


def findings(spec: SpeculativeDeploymentSpec) -> list[str]:
    """Everything that contradicts itself; each begins with its field."""
    rollout = spec.rollout
    in_place = rollout.capacity is Capacity.IN_PLACE
    if in_place and spec.replicas == 1 and not rollout.allow_downtime:
        return [
            "rollout.capacity InPlace with replicas 1 would take the only pod away before the new "
            "one is ready: set rollout.allowDowntime, more replicas, or capacity Surge"
        ]
    return []
