"""The HorizontalPodAutoscaler of a resource, and what is wrong with an autoscaling block.

It scales the resource, never a Deployment: the operator spreads the total. Sums
are External AverageValue, which needs no count of pods; shares are External Value.
"""

from collections.abc import Iterator
from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import (
    Autoscaling,
    Provider,
    ScalingMetric,
    ScalingMetricName,
    SpeculativeDeploymentSpec,
)
from speculative_operator.desired import names
from speculative_operator.scaling import idling, schedules
from speculative_operator.snapshot import Snapshot

METRIC_NAMES: Final = {
    ScalingMetricName.REQUESTS_WAITING: "speculative_requests_waiting",
    ScalingMetricName.REQUESTS_RUNNING: "speculative_requests_running",
    ScalingMetricName.TOKENS_PER_SECOND: "speculative_tokens_per_second",
    ScalingMetricName.KV_CACHE_USAGE: "speculative_kv_cache_usage_percent",
    ScalingMetricName.GPU_UTILIZATION: "speculative_gpu_utilization_percent",
}
"""In external.metrics.k8s.io, whoever serves them."""
METRIC_LABEL: Final = "speculative_dev_name"
"""Label that a metric's selector names the resource by: also a name for Prometheus."""
TOLERANCE_PERCENT: Final = 10
"""An autoscaler does nothing this close to its target (kube-controller-manager's default)."""
SCALE_UP: Final[dict[str, Any]] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 300},
        {"type": "Pods", "value": 4, "periodSeconds": 300},
    ],
}
"""Kubernetes doubles each 15 s; a model loads for minutes, and meanwhile the load looks the same
(kubernetes#59975)."""
SCALE_DOWN: Final[dict[str, Any]] = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 10, "periodSeconds": 60},
        {"type": "Pods", "value": 1, "periodSeconds": 60},
    ],
}
"""A pod given up has to load again, so slowly."""

Body = dict[str, Any]


def autoscaler(snapshot: Snapshot, metadata: dict[str, Any]) -> Body | None:
    """The autoscaler; None where another provider scales, the spec is refused, or pods are
    released.
    """
    autoscaling = snapshot.spec.autoscaling
    if autoscaling is None or autoscaling.provider is not Provider.HPA:
        return None
    if snapshot.findings or idling.is_released(snapshot.status):
        return None
    bounds = schedules.bounds(autoscaling, snapshot.now)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            **metadata,
            "name": snapshot.name,
            "labels": names.common_labels(snapshot.name),
        },
        "spec": {
            "scaleTargetRef": {
                "apiVersion": f"{labels.GROUP}/{labels.VERSION}",
                "kind": labels.KIND,
                "name": snapshot.name,
            },
            "minReplicas": bounds.minimum,
            "maxReplicas": bounds.maximum,
            "metrics": [_metric(metric, snapshot.name) for metric in autoscaling.metrics],
            "behavior": behavior(autoscaling),
        },
    }


def behavior(autoscaling: Autoscaling) -> Body:
    """How fast pods come and go, as the spec says or carefully."""
    return {"scaleUp": SCALE_UP, "scaleDown": SCALE_DOWN, **(autoscaling.behavior or {})}


def _metric(metric: ScalingMetric, name: str) -> Body:
    if metric.name == ScalingMetricName.EXTERNAL:
        return {"type": "External", "external": dict(metric.external or {})}
    if metric.name == ScalingMetricName.CPU:
        target = {"type": "Utilization", "averageUtilization": metric.target_percent}
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    if metric.target_per_pod is not None:
        target = {"type": "AverageValue", "averageValue": str(metric.target_per_pod)}
    else:
        target = {"type": "Value", "value": str(metric.target_percent)}
    return {
        "type": "External",
        "external": {
            "metric": {
                "name": METRIC_NAMES[metric.name],
                "selector": {"matchLabels": {METRIC_LABEL: name}},
            },
            "target": target,
        },
    }


def findings(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    """Targets that can't be met and schedules that can't be read."""
    if spec.autoscaling is None:
        return
    yield from _targets(spec, spec.autoscaling)
    yield from schedules.findings(spec.autoscaling)
    yield from idling.findings(spec)


def _targets(spec: SpeculativeDeploymentSpec, autoscaling: Autoscaling) -> Iterator[str]:
    most = spec.engine.max_num_seqs
    overload = spec.gateway.overload
    seen: set[ScalingMetricName] = set()
    for index, metric in enumerate(autoscaling.metrics):
        field = f"spec.autoscaling.metrics[{index}]"
        if metric.name in seen and metric.name != ScalingMetricName.EXTERNAL:
            yield f"{field} names {metric.name} again: keep one of them"
        seen.add(metric.name)
        target = metric.target_per_pod or 0
        if metric.name == ScalingMetricName.REQUESTS_RUNNING and (
            target * (100 + TOLERANCE_PERCENT) >= most * 100
        ):
            yield (
                f"{field}.targetPerPod {target} is never exceeded: a pod runs {most} requests at "
                f"most (engine.maxNumSeqs), and an autoscaler acts {TOLERANCE_PERCENT} percent "
                f"beyond its target; at most {max(1, most * 100 // (100 + TOLERANCE_PERCENT) - 1)}"
            )
        if metric.name == ScalingMetricName.REQUESTS_WAITING and overload is not None:
            queued = overload.max_queued_requests_per_pod
            if target * (100 + TOLERANCE_PERCENT) >= queued * 100:
                yield (
                    f"{field}.targetPerPod {target} is never exceeded: beyond {queued} waiting "
                    "requests a pod the gateway refuses (gateway.overload."
                    "maxQueuedRequestsPerPod); make it smaller"
                )
        if autoscaling.provider is Provider.KEDA:
            continue
        if metric.external is not None and not {"metric", "target"} <= set(metric.external):
            yield f"{field}.external needs metric and target, as in a HorizontalPodAutoscaler"
