"""provider KEDA: the ScaledObject, what it asks Prometheus, and where it is refused."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import (
    NAME,
    NAMESPACE,
    UID,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)

from speculative_api.conditions import ConditionType, Reason
from speculative_operator.cluster.autoscaler import autoscaler_of
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import AUTOSCALER, SCALED_OBJECT
from speculative_operator.desired import checks, names
from speculative_operator.desired.objects import desired_objects
from speculative_operator.rollout.decide import decide
from speculative_operator.settings import Settings
from speculative_operator.snapshot import AutoscalerView, Snapshot

FIRST, SECOND = some_words(4), some_words(5)
SETTINGS = Settings(
    worker_image="worker:1", gateway_image="gateway:1", prometheus_url="http://prometheus:9090"
)
HASHES = "|".join(sorted((FIRST.hash, SECOND.hash)))
PODS = f'namespace="{NAMESPACE}",speculative_dev_name="{NAME}",speculative_dev_revision=~"{HASHES}"'
TRIGGER = {"type": "kafka", "metadata": {"topic": "requests", "lagThreshold": "10"}}


def scaling(*metrics: dict[str, Any], **fields: Any) -> dict[str, Any]:
    asked = list(metrics) or [{"name": "RequestsWaiting", "targetPerPod": 4}]
    return {"provider": "KEDA", "minReplicas": 2, "maxReplicas": 8, "metrics": asked, **fields}


def a_world(*metrics: dict[str, Any], **fields: Any) -> Snapshot:
    return a_snapshot(
        a_spec(k=5, replicas=2, autoscaling=scaling(*metrics, **fields)),
        status=a_status(stable=FIRST, canary=SECOND, canaryFields={"step": 0, "weight": 5}),
        revisions=[a_record(FIRST), a_record(SECOND, number=2)],
        pods=[a_pod(FIRST), a_pod(FIRST, number=1), a_pod(SECOND)],
    )


def objects(world: Snapshot) -> dict[str, Any]:
    bodies = desired_objects(world, decide(world), SETTINGS)
    return {body["kind"]: body for body in bodies}


def triggers(*metrics: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = objects(a_world(*metrics))["ScaledObject"]["spec"]["triggers"]
    return found


def test_it_scales_the_resource_between_the_bounds_and_there_is_no_other_autoscaler() -> None:
    found = objects(a_world())
    assert "HorizontalPodAutoscaler" not in found
    spec = found["ScaledObject"]["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "name": NAME,
    }
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 8)
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    # As with a HorizontalPodAutoscaler of ours: new pods load for minutes.
    assert behavior["scaleUp"]["policies"][0] == {
        "type": "Percent",
        "value": 100,
        "periodSeconds": 300,
    }


@pytest.mark.parametrize(
    ("metric", "kind", "threshold", "query"),
    [
        (
            {"name": "RequestsWaiting", "targetPerPod": 4},
            "AverageValue",
            "4",
            f"sum(speculative_worker_requests_waiting{{{PODS}}})",
        ),
        (
            {"name": "RequestsRunning", "targetPerPod": 9},
            "AverageValue",
            "9",
            f"sum(speculative_worker_requests_running{{{PODS}}})",
        ),
        (
            {"name": "TokensPerSecond", "targetPerPod": 900},
            "AverageValue",
            "900",
            f"clamp_min(sum(rate(speculative_worker_generated_tokens_total{{{PODS}}}[2m])) - "
            f"(sum(rate(speculative_worker_accepted_tokens_total{{{PODS}}}[2m])) or vector(0)), 0)",
        ),
        (
            {"name": "KvCacheUsage", "targetPercent": 80},
            "Value",
            "80",
            f"100 * avg(speculative_worker_kv_cache_usage_ratio{{{PODS}}})",
        ),
        (
            {"name": "GpuUtilization", "targetPercent": 75},
            "Value",
            "75",
            f'avg(DCGM_FI_DEV_GPU_UTIL{{namespace="{NAMESPACE}",pod=~"{NAME}-({HASHES})-.*"}})',
        ),
    ],
    ids=["waiting", "running", "tokens", "kv cache", "gpu"],
)
def test_prometheus_is_asked(metric: dict[str, Any], kind: str, threshold: str, query: str) -> None:
    (trigger,) = triggers(metric)
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", kind)
    assert trigger["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": query,
        "threshold": threshold,
        "ignoreNullValues": "false",
    }


def test_cpu_and_what_is_written_as_a_trigger() -> None:
    cpu, external = triggers(
        {"name": "Cpu", "targetPercent": 70}, {"name": "External", "external": TRIGGER}
    )
    assert cpu == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}
    assert external == TRIGGER


def test_schedules_hold_and_idle_takes_it_away() -> None:
    night = {"name": "night", "start": "0 3 * * *", "durationSeconds": 3600, "maxReplicas": 3}
    world = a_world(schedules=[night])
    assert objects(world)["ScaledObject"]["spec"]["maxReplicaCount"] == 3
    asleep = a_status(stable=SECOND, idle={"since": stamp(9)})
    world = replace(a_world(idle={"afterSeconds": 60}), status=asleep)
    assert "ScaledObject" not in objects(world)


def test_without_keda_the_spec_is_not_accepted_and_nothing_is_rendered() -> None:
    world = replace(a_world(), missing_kinds=frozenset({"ScaledObject"}))
    assert "ScaledObject" not in objects(world)
    conditions = {c.type: c for c in decide(world).status.conditions}
    accepted = conditions[ConditionType.ACCEPTED]
    assert (accepted.status, accepted.reason) == ("False", Reason.KIND_MISSING)
    assert "install KEDA" in accepted.message
    plain = replace(world, spec=a_spec(k=5))
    conditions = {c.type: c for c in decide(plain).status.conditions}
    assert conditions[ConditionType.ACCEPTED].status == "True"


@pytest.mark.parametrize(
    ("metric", "settings", "said"),
    [
        ({"name": "RequestsWaiting", "targetPerPod": 4}, Settings(), "no prometheusUrl"),
        ({"name": "RequestsWaiting", "targetPerPod": 4}, SETTINGS, ""),
        ({"name": "Cpu", "targetPercent": 70}, Settings(), ""),
        ({"name": "External", "external": TRIGGER}, Settings(), ""),
        (
            {"name": "External", "external": {"metric": {"name": "x"}, "target": {}}},
            SETTINGS,
            "needs type and metadata",
        ),
        ({"name": "RequestsRunning", "targetPerPod": 999}, SETTINGS, "is never exceeded"),
    ],
)
def test_what_can_t_be_asked_is_refused(
    metric: dict[str, Any], settings: Settings, said: str
) -> None:
    spec = a_spec(autoscaling=scaling(metric))
    found = checks.findings(spec, name=NAME, settings=settings)
    assert bool(found) is bool(said)
    assert all(said in text for text in found)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], AutoscalerView(None)),
        ([("Ready", "Unknown", "Waiting")], AutoscalerView(None, "Waiting: words")),
        (
            [("Ready", "True", "ScaledObjectReady")],
            AutoscalerView(True, "ScaledObjectReady: words"),
        ),
        ([("Ready", "False", "Failed")], AutoscalerView(False, "Failed: words")),
        (
            [("Ready", "True", "Ok"), ("HPAActive", "False", "HPAMetricsUnavailable")],
            AutoscalerView(False, "HPAMetricsUnavailable: words"),
        ),
        (
            [("Ready", "True", "Ok"), ("Paused", "True", "ScaledObjectPaused")],
            AutoscalerView(False, "ScaledObjectPaused: words"),
        ),
    ],
)
def test_keda_s_own_words_are_mirrored(
    conditions: list[tuple[str, str, str]], expected: AutoscalerView
) -> None:
    thing = {
        "apiVersion": SCALED_OBJECT.api_version,
        "kind": SCALED_OBJECT.kind,
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": "u",
            "resourceVersion": "1",
            "labels": names.common_labels(NAME),
            "ownerReferences": [names.owner_reference(NAME, UID)],
        },
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": "words"}
                for kind, status, reason in conditions
            ]
        },
    }
    stores = {r.kind: Store(r) for r in (AUTOSCALER, SCALED_OBJECT)}
    stores[SCALED_OBJECT.kind].replace([thing], "1")
    assert autoscaler_of(stores, (NAMESPACE, NAME), UID) == expected
    assert autoscaler_of(stores, (NAMESPACE, NAME), "somebody else") is None
