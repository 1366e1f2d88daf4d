"""What a manifest is told without a cluster: the same as by the API server and the operator."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import a_raw_spec

from speculative_api import labels, validation
from speculative_api.validation import ROOT, problems, with_defaults

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def a_manifest(name: str = "chat", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{labels.GROUP}/{labels.VERSION}",
        "kind": labels.KIND,
        "metadata": {"name": name},
        "spec": a_raw_spec(**spec),
    }


def analysis(**metric: Any) -> dict[str, Any]:
    return {"analysis": {"metrics": [metric]}}


def scaled(*metrics: dict[str, Any], **more: Any) -> dict[str, Any]:
    return a_manifest(autoscaling={"maxReplicas": 8, "metrics": list(metrics), **more})


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.stem for file in EXAMPLES])
def test_examples_have_no_errors(file: Path) -> None:
    documents = list(yaml.safe_load_all(file.read_text("utf-8")))
    for document in documents:
        if document["kind"] == labels.KIND:
            assert [p for p in problems(document) if p.severity == "error"] == []


QUERY = {"query": "up"}
SERVER = {"prometheus": {"address": "http://prometheus:9090"}}

BAD = {
    "unknown field": (
        a_manifest(replica=2),
        ("spec.replica", "is not a field, and would be dropped; did you mean replicas?"),
    ),
    "unknown field far below": (
        a_manifest(rollout={"steps": [{"weigth": 5, "pause": {}}]}),
        ("spec.rollout.steps[0].weigth", "is not a field"),
    ),
    "python's name of a field": (
        a_manifest(model_cache={"persistentVolumeClaim": "x"}),
        ("spec.model_cache", "did you mean modelCache?"),
    ),
    "number as text": (a_manifest(replicas="2"), ("spec.replicas", "valid integer")),
    "too large": (a_manifest(replicas=5000), ("spec.replicas", "less than or equal to 1000")),
    "needed field": (
        a_manifest(speculation={"numSpeculativeTokens": 4}),
        ("spec.speculation.method", "Field required"),
    ),
    "rule of a block": (
        a_manifest(speculation={"method": "DraftModel", "numSpeculativeTokens": 3}),
        ("spec.speculation.draft", "add speculation.draft.model"),
    ),
    "target of another metric": (
        scaled({"name": "RequestsWaiting", "targetPercent": 80}),
        ("spec.autoscaling.metrics[0].targetPerPod", "need targetPerPod"),
    ),
    "target that nothing reaches": (
        scaled({"name": "KvCacheUsage", "targetPercent": 95}),
        ("spec.autoscaling.metrics[0].targetPercent", "must be at most 90"),
    ),
    "external metric without words": (
        scaled({"name": "External"}),
        ("spec.autoscaling.metrics[0].external", "External needs external"),
    ),
    "bounds that cross": (
        scaled({"name": "Cpu", "targetPercent": 95}, minReplicas=9),
        ("spec.autoscaling.minReplicas", "must not be more than maxReplicas"),
    ),
    "schedule of nothing": (
        scaled(
            {"name": "Cpu", "targetPercent": 95},
            schedules=[{"name": "n", "start": "0 1 * * *", "durationSeconds": 60}],
        ),
        ("spec.autoscaling.schedules[0]", "without them it changes nothing"),
    ),
    "schedule that crosses": (
        scaled(
            {"name": "Cpu", "targetPercent": 95},
            schedules=[
                {
                    "name": "n",
                    "start": "0 1 * * *",
                    "durationSeconds": 60,
                    "minReplicas": 3,
                    "maxReplicas": 2,
                }
            ],
        ),
        ("spec.autoscaling.schedules[0].minReplicas", "must not be more than maxReplicas"),
    ),
    "rule over a default": (
        a_manifest(
            speculation={
                "method": "NGram",
                "numSpeculativeTokens": 3,
                "ngram": {"promptLookupMin": 5},
            }
        ),
        ("spec.speculation.ngram.promptLookupMin", "must not exceed promptLookupMax"),
    ),
    "rule in a list": (
        a_manifest(rollout=analysis(name="TimeToFirstToken")),
        ("spec.rollout.analysis.metrics[0].thresholdMilliseconds", "need thresholdMilliseconds"),
    ),
    "bound of another metric": (
        a_manifest(rollout=analysis(name="ErrorRate", minPercent=50)),
        ("spec.rollout.analysis.metrics[0].minPercent", "belongs to AcceptanceRate"),
    ),
    "number of another metric": (
        a_manifest(rollout=analysis(name="Restarts", min="3")),
        ("spec.rollout.analysis.metrics[0].min", "belongs to AcceptanceLength"),
    ),
    "a source without an address": (
        a_manifest(rollout={"analysis": {"source": "Prometheus"}}),
        ("spec.rollout.analysis.source", "add analysis.prometheus.address"),
    ),
    "recycles without recycling": (
        a_manifest(rollout={"drift": {"maxRecycles": 2}}),
        ("spec.rollout.drift.maxRecycles", "belongs to action RecyclePods"),
    ),
    "nowhere to move traffic to": (
        a_manifest(
            gateway={"mode": "None"},
            rollout={"steps": [{"pause": {}}], "drift": {"action": "DisableSpeculation"}},
        ),
        ("spec.rollout.drift.action", "no traffic can be moved"),
    ),
    "lengths that follow the load": (
        a_manifest(
            speculation={
                "method": "NGram",
                "numSpeculativeTokens": 4,
                "adaptive": {"mode": "Online"},
            },
            rollout={"drift": {}},
        ),
        ("spec.rollout.drift", "would look like drift"),
    ),
    "length below one": (
        a_manifest(rollout=analysis(name="AcceptanceLength", min="0.5")),
        ("spec.rollout.analysis.metrics[0].min", "it is at least 1"),
    ),
    "number as a number": (
        a_manifest(rollout=analysis(name="TokensPerSecond", min="fast")),
        ("spec.rollout.analysis.metrics.0.min", "pattern"),
    ),
    "restarts of another metric": (
        a_manifest(rollout=analysis(name="ErrorRate", maxRestarts=1)),
        ("spec.rollout.analysis.metrics[0].maxRestarts", "belongs to Restarts"),
    ),
    "query without a bound": (
        a_manifest(
            rollout={"analysis": SERVER | {"metrics": [{"name": "gpu", "prometheus": QUERY}]}}
        ),
        ("spec.rollout.analysis.metrics[0].prometheus", "needs min, max or both"),
    ),
    "query without a server": (
        a_manifest(rollout=analysis(name="gpu", prometheus=QUERY | {"min": "1"})),
        ("spec.rollout.analysis.metrics", "add analysis.prometheus.address"),
    ),
    "query with a taken name": (
        a_manifest(
            rollout={
                "analysis": SERVER
                | {"metrics": [{"name": "ErrorRate", "prometheus": QUERY | {"max": "1"}}]}
            }
        ),
        ("spec.rollout.analysis.metrics[0].name", "a name of its own"),
    ),
    "unknown metric": (
        a_manifest(rollout=analysis(name="AcceptanceLenght")),
        ("spec.rollout.analysis.metrics[0].name", "name is one of AcceptanceLength,"),
    ),
    "address with a password": (
        a_manifest(rollout={"analysis": {"prometheus": {"address": "http://a:b@host"}}}),
        ("spec.rollout.analysis.prometheus.address", "pattern"),
    ),
    "rule of the name": (a_manifest("9chat"), ("metadata", "begins with a letter")),
    "no name": (a_manifest() | {"metadata": {}}, ("metadata", "at most 40 characters")),
    "engine's flag": (
        a_manifest(engine={"extraArgs": ["--tensor-parallel-size=2"]}),
        ("spec.engine.extraArgs[0]", "says this already"),
    ),
    "engine's key": (
        a_manifest(
            speculation={"method": "NGram", "numSpeculativeTokens": 4, "extra": {"nonsense": 1}}
        ),
        ("spec.speculation.extra.nonsense", "not a key of engine"),
    ),
    "a step that would check nothing": (
        a_manifest(rollout={"steps": [{"verify": {"prompts": {"configMap": "golden"}}}]}),
        ("spec.rollout.steps[0].verify", "verify is not available in this version"),
    ),
    "in place with a whole old revision": (
        a_manifest(replicas=2, rollout={"capacity": "InPlace"}),
        ("spec.rollout.guard.keep", "set guard.keep to One or None"),
    ),
    "in place with one replica": (
        a_manifest(rollout={"capacity": "InPlace", "guard": {"keep": "One"}}),
        ("spec.rollout.capacity", "set rollout.allowDowntime, more replicas, or capacity Surge"),
    ),
    "in place and dynamic": (
        a_manifest(
            replicas=2,
            rollout={"capacity": "InPlace", "guard": {"keep": "None"}, "dynamicStable": True},
        ),
        ("spec.rollout.dynamicStable", "gives up its pods anyway"),
    ),
    "downtime without in place": (
        a_manifest(rollout={"allowDowntime": True}),
        ("spec.rollout.allowDowntime", "with capacity Surge there is no downtime"),
    ),
    "dynamic without a gateway": (
        a_manifest(
            rollout={"dynamicStable": True, "steps": [{"pause": {}}]}, gateway={"mode": "None"}
        ),
        ("spec.rollout.capacity", "they need gateway.mode Envoy"),
    ),
    "other version": (
        a_manifest() | {"apiVersion": "speculative.dev/v1"},
        ("apiVersion", "must be speculative.dev/v1alpha1"),
    ),
    "no spec": (a_manifest() | {"spec": None}, ("spec", "is needed")),
}


@pytest.mark.parametrize(("manifest", "expected"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_named_with_its_field(
    manifest: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = [p for p in problems(manifest) if p.severity == "error"]
    assert any(p.field == expected[0] and expected[1] in p.message for p in found), found


def test_everything_wrong_is_said_at_once() -> None:
    manifest = a_manifest(replica=2, rollout={"steps": [{"weight": 5, "pause": {}}]})
    assert [p.field for p in problems(manifest)] == ["spec.replica", "spec.rollout.steps[0]"]


def test_what_is_unwise_is_a_warning() -> None:
    manifest = a_manifest(speculation={"method": "NGram", "numSpeculativeTokens": 300})
    (found,) = problems(manifest)
    assert (found.severity, found.field) == ("warning", "spec.speculation.numSpeculativeTokens")


def test_replicas_beside_autoscaling_is_a_warning() -> None:
    scaling = {"maxReplicas": 8, "metrics": [{"name": "Cpu", "targetPercent": 70}]}
    manifest = {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "chat"},
        "spec": a_raw_spec(replicas=4, autoscaling=scaling),
    }
    (found,) = problems(manifest)
    assert (found.severity, found.field) == ("warning", "spec.replicas")
    for alone in ("replicas", "autoscaling"):
        spec = {key: value for key, value in manifest["spec"].items() if key != alone}
        assert problems({**manifest, "spec": spec}) == []


def test_a_rule_that_cannot_be_checked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = {"rule": "self.replicas / 2 == 1", "message": "must be two or three, for the test"}
    root = ROOT | {"x-kubernetes-validations": [rule]}
    monkeypatch.setattr(validation, "ROOT", root)
    (found,) = problems(a_manifest())
    assert found.severity == "warning"
    assert "not checked here, but by the API server" in found.message


def test_defaults_are_filled_in_where_their_block_is_there() -> None:
    filled = with_defaults(ROOT["properties"]["spec"], a_raw_spec(engine={}))
    assert filled["engine"]["maxNumSeqs"] == 64
    assert filled["replicas"] == 1
    assert "pod" not in filled


def test_a_null_is_an_absent_field() -> None:
    assert problems(a_manifest(engine=None, pod={"env": None})) == []


def test_free_form_blocks_are_left_alone() -> None:
    assert problems(a_manifest(pod={"affinity": {"nodeAffinity": {"x": 1}}})) == []
