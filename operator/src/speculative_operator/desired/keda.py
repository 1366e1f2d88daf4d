"""The ScaledObject of `autoscaling.provider: KEDA`: the same targets, asked of Prometheus.

KEDA serves external.metrics.k8s.io itself, of which a cluster has one provider,
so nothing here comes from the operator's own. Written for KEDA 2.
"""

from collections.abc import Iterator
from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import (
    Provider,
    ScalingMetric,
    ScalingMetricName,
    SpeculativeDeploymentSpec,
)
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.autoscaling import behavior
from speculative_operator.scaling import idling, schedules
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot

RATE: Final = "2m"
"""Range of rates: four scrapes, at the usual 30 s."""

Body = dict[str, Any]


def scaled_object(
    snapshot: Snapshot, decision: Decision, settings: Settings, metadata: dict[str, Any]
) -> Body | None:
    """The object; None where another provider scales, the spec is refused, or pods are released."""
    wanted = snapshot.spec.autoscaling
    if wanted is None or wanted.provider is not Provider.KEDA or snapshot.findings:
        return None
    if idling.is_released(decision.status) or "ScaledObject" in snapshot.missing_kinds:
        return None
    bounds = schedules.bounds(wanted, snapshot.now)
    serving = _serving(decision)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
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
            "minReplicaCount": bounds.minimum,
            "maxReplicaCount": bounds.maximum,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior(wanted)}},
            "triggers": [
                _trigger(metric, snapshot, serving, settings.prometheus_url)
                for metric in wanted.metrics
            ],
        },
    }


def _serving(decision: Decision) -> tuple[str, ...]:
    """Revisions of the accelerated lane that may have requests."""
    status = decision.status
    parts = (status.stable, status.canary, status.guard)
    return tuple(sorted(part.hash for part in parts if part is not None))


def _trigger(
    metric: ScalingMetric, snapshot: Snapshot, serving: tuple[str, ...], address: str
) -> Body:
    if metric.name is ScalingMetricName.EXTERNAL:
        return dict(metric.external or {})
    if metric.name is ScalingMetricName.CPU:
        value = str(metric.target_percent)
        return {"type": "cpu", "metricType": "Utilization", "metadata": {"value": value}}
    per_pod = metric.target_per_pod is not None
    return {
        "type": "prometheus",
        "metricType": "AverageValue" if per_pod else "Value",
        "metadata": {
            "serverAddress": address,
            "query": query(metric.name, snapshot, serving),
            "threshold": str(metric.target_per_pod if per_pod else metric.target_percent),
            # No data is no load of 0: then the number of pods stays.
            "ignoreNullValues": "false",
        },
    }


def query(name: ScalingMetricName, snapshot: Snapshot, serving: tuple[str, ...]) -> str:
    """What Prometheus is asked; workers are told apart by their pods' labels."""
    hashes = "|".join(serving)
    pods = (
        f'namespace="{snapshot.namespace}",speculative_dev_name="{snapshot.name}",'
        f'speculative_dev_revision=~"{hashes}"'
    )
    if name is ScalingMetricName.GPU_UTILIZATION:
        pattern = f"{snapshot.name}-({hashes})-.*"
        return f'avg(DCGM_FI_DEV_GPU_UTIL{{namespace="{snapshot.namespace}",pod=~"{pattern}"}})'
    if name is ScalingMetricName.KV_CACHE_USAGE:
        return f"100 * avg(speculative_worker_kv_cache_usage_ratio{{{pods}}})"
    if name is ScalingMetricName.TOKENS_PER_SECOND:
        # Tokens over the acceptance length are tokens less those that drafts gave; where the
        # engine does not count these the length is 1.
        made = f"sum(rate(speculative_worker_generated_tokens_total{{{pods}}}[{RATE}]))"
        drafted = f"sum(rate(speculative_worker_accepted_tokens_total{{{pods}}}[{RATE}]))"
        return f"clamp_min({made} - ({drafted} or vector(0)), 0)"
    kind = "waiting" if name is ScalingMetricName.REQUESTS_WAITING else "running"
    return f"sum(speculative_worker_requests_{kind}{{{pods}}})"


def findings(spec: SpeculativeDeploymentSpec, settings: Settings) -> Iterator[str]:
    """What KEDA can't be asked for."""
    wanted = spec.autoscaling
    if wanted is None or wanted.provider is not Provider.KEDA:
        return
    others = (ScalingMetricName.EXTERNAL, ScalingMetricName.CPU)
    asked = [metric.name for metric in wanted.metrics if metric.name not in others]
    if asked and not settings.prometheus_url:
        yield (
            f"spec.autoscaling.provider KEDA asks Prometheus for {asked[0]}, and the operator has "
            "no prometheusUrl (chart: settings.prometheusUrl): set it, or use metrics Cpu or "
            "External"
        )
    for index, metric in enumerate(wanted.metrics):
        if metric.external is not None and not {"type", "metadata"} <= set(metric.external):
            yield (
                f"spec.autoscaling.metrics[{index}].external needs type and metadata with provider "
                "KEDA, as in a ScaledObject's trigger"
            )
