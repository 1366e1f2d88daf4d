"""A revision's pods on reserved and on spot nodes: two Deployments around one template.

Within one Deployment no share can be said: affinity is about each pod alone, and
spread constraints only know halves. Both halves carry the revision's label, so
Services, gateways and counts see one revision.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec, Spot
from speculative_operator.decision import Scale
from speculative_operator.desired.workers import Template

PREFERENCE: Final = 100
"""The highest weight that Kubernetes takes: of nodes that fit, a spot node first."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of one revision that one Deployment keeps."""

    capacity: Literal["", "reserved", "spot"]
    """Empty where the revision is not divided."""
    replicas: int
    template: Template


def parts(scale: Scale, template: Template, words: Mapping[str, Any]) -> tuple[Part, ...]:
    """The Deployments of a revision; a divided one keeps both, also with no pods in one."""
    raw = words.get("pod", {}).get("spot")
    if raw is None:
        return (Part("", scale.replicas, template),)
    spot = Spot.model_validate(raw)
    on_spot = pods_on_spot(scale.replicas, spot, native=scale.track == "native")
    return (
        Part("reserved", scale.replicas - on_spot, _reserved(template, spot)),
        Part("spot", on_spot, _on_spot(template, spot)),
    )


def pods_on_spot(replicas: int, spot: Spot, *, native: bool) -> int:
    """How many of so many: the share rounded down, and never into the floor."""
    if native:
        return replicas * spot.native_percent // 100
    return min(replicas * spot.percent // 100, max(0, replicas - spot.min_reserved))


def _reserved(template: Template, spot: Spot) -> Template:
    """Never on a spot node, whatever is tolerated."""
    away = {"key": spot.node_label.key, "operator": "NotIn", "values": [spot.node_label.value]}
    spec = template["spec"]
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    # Terms are alternatives: each has to say it.
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), away]}
        for term in terms
    ]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**template, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": node}}}


def _on_spot(template: Template, spot: Spot) -> Template:
    """On a spot node where there is one with room, else anywhere: capacity before price."""
    label = spot.node_label
    there = {"key": label.key, "operator": "In", "values": [label.value]}
    preference = {"weight": PREFERENCE, "preference": {"matchExpressions": [there]}}
    spec = template["spec"]
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    node["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, preference]
    # Clouds taint spot nodes with the label that names them.
    tolerations = [
        *(spec.get("tolerations") or ()),
        {"key": label.key, "operator": "Equal", "value": label.value},
        *(dict(each) for each in spot.tolerations),
    ]
    return {
        **template,
        "spec": {
            **spec,
            "affinity": {**affinity, "nodeAffinity": node},
            "tolerations": tolerations,
        },
    }


def findings(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    """What contradicts a division."""
    spot = spec.pod.spot
    if spot is None:
        return
    key, value = spot.node_label.key, spot.node_label.value
    if spec.pod.node_selector.get(key) == value:
        yield (
            f"spec.pod.nodeSelector asks for {key}: {value}, which spec.pod.spot keeps the "
            "reserved pods away from: remove it"
        )
    if spec.lanes.native.replicas == 0 and spot.percent == 0:
        yield (
            "spec.pod.spot.nativePercent without spec.lanes.native.replicas puts no pod on a spot "
            "node: set percent, or native replicas"
        )
