"""The autoscaler of a resource: what it scales, which metric takes which form, what is refused."""

from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOW, a_snapshot, a_spec

from speculative_operator.desired import checks
from speculative_operator.desired.autoscaling import METRIC_NAMES, autoscaler
from speculative_operator.settings import Settings

WAITING = {"name": "RequestsWaiting", "targetPerPod": 4}


def scaling(*metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"minReplicas": 2, "maxReplicas": 8, "metrics": list(metrics or (WAITING,)), **more}


def the_autoscaler(*metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = autoscaler(a_snapshot(a_spec(autoscaling=scaling(*metrics, **more))), {})
    assert found is not None
    return found


def test_it_scales_the_resource_and_no_deployment() -> None:
    assert the_autoscaler()["spec"]["scaleTargetRef"] == {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "name": "chat",
    }


def test_none_without_the_block_and_none_for_a_refused_spec() -> None:
    assert autoscaler(a_snapshot(), {}) is None
    refused = a_snapshot(a_spec(autoscaling=scaling()), findings=("no",))
    assert autoscaler(refused, {}) is None


@pytest.mark.parametrize(
    "metric, target",
    [
        ({"name": "RequestsWaiting", "targetPerPod": 4}, {"averageValue": "4"}),
        ({"name": "RequestsRunning", "targetPerPod": 16}, {"averageValue": "16"}),
        ({"name": "TokensPerSecond", "targetPerPod": 900}, {"averageValue": "900"}),
        ({"name": "KvCacheUsage", "targetPercent": 80}, {"value": "80"}),
        ({"name": "GpuUtilization", "targetPercent": 75}, {"value": "75"}),
    ],
    ids=lambda case: case.get("name", ""),
)
def test_sums_are_average_values_and_shares_are_values(
    metric: dict[str, Any], target: dict[str, str]
) -> None:
    (found,) = the_autoscaler(metric)["spec"]["metrics"]
    kind = "AverageValue" if "averageValue" in target else "Value"
    assert found["external"]["target"] == {"type": kind} | target
    assert found["external"]["metric"]["selector"] == {
        "matchLabels": {"speculative_dev_name": "chat"}
    }
    assert found["external"]["metric"]["name"] in METRIC_NAMES.values()


def test_cpu_is_of_the_pods_and_anything_else_is_passed_on() -> None:
    external = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "3"}}
    cpu, passed = the_autoscaler(
        {"name": "Cpu", "targetPercent": 70}, {"name": "External", "external": external}
    )["spec"]["metrics"]
    assert cpu["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
    assert passed == {"type": "External", "external": external}


def test_it_is_slow_by_default_and_either_direction_can_be_replaced() -> None:
    slow = the_autoscaler()["spec"]["behavior"]
    assert {p["periodSeconds"] for p in slow["scaleUp"]["policies"]} == {300}
    mine = {"scaleUp": {"stabilizationWindowSeconds": 60}}
    changed = the_autoscaler(behavior=mine)["spec"]["behavior"]
    assert changed == slow | mine


def test_bounds_follow_the_schedule() -> None:
    start = NOW + timedelta(hours=1)
    night = {
        "name": "night",
        "start": f"{start.minute} {start.hour} * * *",
        "durationSeconds": 3600,
        "maxReplicas": 4,
    }
    spec = a_spec(autoscaling=scaling(schedules=[night]))
    before = autoscaler(a_snapshot(spec), {})
    during = autoscaler(a_snapshot(spec, now=start + timedelta(minutes=1)), {})
    assert before is not None
    assert during is not None
    assert (before["spec"]["minReplicas"], before["spec"]["maxReplicas"]) == (2, 8)
    assert (during["spec"]["minReplicas"], during["spec"]["maxReplicas"]) == (2, 4)


@pytest.mark.parametrize(
    "metrics, words",
    [
        pytest.param(
            [{"name": "RequestsRunning", "targetPerPod": 2}],
            "targetPerPod 2 is never exceeded: a pod runs 1 requests at most",
            id="more than there can be (llm-d-autoscaling#777)",
        ),
        pytest.param(
            [{"name": "RequestsRunning", "targetPerPod": 1}],
            "an autoscaler acts 10 percent beyond its target",
            id="as many as there can be",
        ),
        pytest.param([WAITING, WAITING], "names RequestsWaiting again", id="twice"),
        pytest.param(
            [{"name": "External", "external": {"metric": {"name": "x"}}}],
            "external needs metric and target",
            id="half of an external one",
        ),
    ],
)
def test_targets_that_cannot_work_are_refused(metrics: list[dict[str, Any]], words: str) -> None:
    spec = a_spec(autoscaling=scaling(*metrics), engine={"maxNumSeqs": 1})
    (found,) = checks.findings(spec, name="chat", settings=Settings())
    assert words in found


def test_more_may_not_be_aimed_at_than_the_gateway_lets_wait() -> None:
    spec = a_spec(
        autoscaling=scaling(WAITING), gateway={"overload": {"maxQueuedRequestsPerPod": 4}}
    )
    (found,) = checks.findings(spec, name="chat", settings=Settings())
    assert "beyond 4 waiting requests a pod the gateway refuses" in found


def test_a_target_that_can_be_exceeded_is_taken() -> None:
    spec = a_spec(
        autoscaling=scaling({"name": "RequestsRunning", "targetPerPod": 50}),
        engine={"maxNumSeqs": 64},
    )
    assert checks.findings(spec, name="chat", settings=Settings()) == ()
