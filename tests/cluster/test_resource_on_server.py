"""The real API server takes good resources and says what to do about bad ones."""

import json
import urllib.error
from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server

pytestmark = pytest.mark.cluster

PATH = "/apis/speculative.dev/v1alpha1/namespaces/default/speculativedeployments"


def tried(server: Server, spec: dict[str, Any], *, name: str) -> dict[str, Any]:
    """The resource as the server would store it. Raises HTTPError where it would not."""
    body = {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    query = "?dryRun=All&fieldValidation=Strict"
    found: dict[str, Any] = json.loads(server.raw("POST", PATH + query, json.dumps(body).encode()))
    return found


def refused(server: Server, spec: dict[str, Any], *, name: str = "bad") -> str:
    """The server's words about a spec; fails when it is taken. Nothing is stored."""
    try:
        tried(server, spec, name=name)
    except urllib.error.HTTPError as error:
        return str(json.loads(error.read())["message"])
    pytest.fail("the server took it")


def test_smallest_spec_is_taken(api_server: Server) -> None:
    with pytest.raises(pytest.fail.Exception, match="took it"):
        refused(api_server, a_raw_spec())


@pytest.mark.parametrize(
    "spec,words",
    [
        (a_raw_spec(replica=2), 'unknown field "spec.replica"'),
        *(
            (
                a_raw_spec(autoscaling={"maxReplicas": 8, "metrics": [metric]}),
                words,
            )
            for metric, words in (
                ({"name": "RequestsWaiting", "targetPercent": 80}, "need targetPerPod"),
                ({"name": "KvCacheUsage", "targetPercent": 95}, "must be at most 90"),
                ({"name": "External"}, "External needs external"),
            )
        ),
        (
            a_raw_spec(
                autoscaling={
                    "minReplicas": 9,
                    "maxReplicas": 8,
                    "metrics": [{"name": "Cpu", "targetPercent": 70}],
                }
            ),
            "must not be more than maxReplicas",
        ),
        (
            a_raw_spec(
                autoscaling={
                    "minReplicas": 2,
                    "maxReplicas": 8,
                    "metrics": [{"name": "Cpu", "targetPercent": 70}],
                    "idle": {"afterSeconds": 600, "replicas": 2},
                }
            ),
            "idle.replicas must be less than minReplicas",
        ),
        (a_raw_spec(rollout={"steps": [{"weight": "5"}]}), "must be of type integer"),
        (
            a_raw_spec(speculation={"method": "NGram", "numSpeculativeTokens": 0}),
            "greater than or equal to 1",
        ),
        (
            a_raw_spec(
                speculation={
                    "method": "DraftModel",
                    "numSpeculativeTokens": 3,
                    "draft": {"model": "file:///m/draft"},
                    "ngram": {"promptLookupMin": 2},
                }
            ),
            "ngram belongs to methods NGram and NGramGPU: remove speculation.ngram",
        ),
        (
            a_raw_spec(rollout={"steps": [{"verify": {"prompts": {"configMap": "golden"}}}]}),
            "verify is not available in this version, and would check nothing: use `pause: {}`",
        ),
        (
            a_raw_spec(rollout={"download": "Job"}),
            "add modelCache.persistentVolumeClaim, or leave rollout.download out",
        ),
        (
            a_raw_spec(replicas=2, rollout={"capacity": "InPlace"}),
            "there is no room for a whole old revision: set guard.keep to One or None",
        ),
        (
            a_raw_spec(rollout={"dynamicStable": True}, gateway={"mode": "None"}),
            "they need gateway.mode Envoy",
        ),
        (
            a_raw_spec(speculation={"method": "DraftModel", "numSpeculativeTokens": 3}),
            "this method needs a draft: add speculation.draft.model",
        ),
        (
            a_raw_spec(
                speculation={
                    "method": "Suffix",
                    "numSpeculativeTokens": 3,
                    "draft": {"model": "file:///m/draft"},
                }
            ),
            "this method takes no draft: remove speculation.draft",
        ),
        (
            a_raw_spec(speculation={"method": "Custom", "numSpeculativeTokens": 3}),
            "method Custom and customClass go together",
        ),
        (
            a_raw_spec(speculation={"method": "NGram"}),
            "numSpeculativeTokens is needed unless method is None",
        ),
        (
            a_raw_spec(rollout={"steps": [{"weight": 5, "pause": {}}]}),
            "a step has exactly one of weight, pause and shadow",
        ),
        (
            a_raw_spec(rollout={"analysis": {"metrics": [{"name": "TimeToFirstToken"}]}}),
            "EndToEndLatency need thresholdMilliseconds",
        ),
        (
            a_raw_spec(
                rollout={"analysis": {"metrics": [{"name": "ErrorRate", "maxExceedPercent": 5}]}}
            ),
            "maxExceedPercent and maxPercentOfStable belong to TimeToFirstToken",
        ),
        (
            a_raw_spec(
                rollout={"analysis": {"metrics": [{"name": "AcceptanceLength", "min": "0.5"}]}}
            ),
            "counts the token that every step yields",
        ),
        (
            a_raw_spec(
                rollout={"analysis": {"metrics": [{"name": "ErrorRate", "maxPercent": "0.0"}]}}
            ),
            "should match",
        ),
        (
            a_raw_spec(
                rollout={"analysis": {"metrics": [{"name": "ErrorRate", "maxPercent": 0.1}]}}
            ),
            "must be of type",
        ),
        (
            a_raw_spec(rollout={"analysis": {"metrics": [{"name": "Restarts", "minPercent": 5}]}}),
            "minPercent belongs to AcceptanceRate",
        ),
        (
            a_raw_spec(
                rollout={"analysis": {"metrics": [{"name": "gpu", "prometheus": {"query": "up"}}]}}
            ),
            "a query needs min, max or both",
        ),
        (
            a_raw_spec(
                rollout={
                    "analysis": {
                        "metrics": [{"name": "gpu", "prometheus": {"query": "up", "min": "1"}}]
                    }
                }
            ),
            "add analysis.prometheus.address",
        ),
        (
            a_raw_spec(rollout={"analysis": {"metrics": [{"name": "ErrorRat"}]}}),
            "name is one of AcceptanceLength",
        ),
        (a_raw_spec(rollout={"steps": [{"weight": 101}]}), "less than or equal to 100"),
        (a_raw_spec(target={"model": "Llama"}), "should match"),
        (a_raw_spec(target={"model": "s3://Bucket/x"}), "should match"),
    ],
    ids=[
        "misspelt field",
        "target of another metric",
        "target that nothing reaches",
        "external metric without words",
        "bounds that cross",
        "idle that releases nothing",
        "weight as text",
        "k of 0",
        "ngram under DraftModel",
        "verify",
        "download without a cache",
        "in place without room",
        "dynamic stable without a gateway",
        "DraftModel without draft",
        "Suffix with draft",
        "Custom without class",
        "NGram without k",
        "two things in a step",
        "latency without a threshold",
        "latency limit for errors",
        "length below one",
        "errors of nothing",
        "percentage as a float",
        "rate bound for restarts",
        "query without a bound",
        "query without a server",
        "misspelt metric",
        "weight above 100",
        "model without scheme",
        "model in a bucket",
    ],
)
def test_bad_spec_is_refused_with_the_remedy(
    api_server: Server, spec: dict[str, Any], words: str
) -> None:
    assert words in refused(api_server, spec)


def test_percentages_may_have_decimals_and_stay_as_written(api_server: Server) -> None:
    metrics = [{"name": "ErrorRate", "maxPercent": "0.1"}, {"name": "AcceptanceLength"}]
    analysis = {"maxFalseRollbackPercent": "0.5", "metrics": metrics}
    found = tried(api_server, a_raw_spec(rollout={"analysis": analysis}), name="decimals")
    assert found["spec"]["rollout"]["analysis"]["metrics"][0]["maxPercent"] == "0.1"
    assert found["spec"]["rollout"]["analysis"]["maxFalseRollbackPercent"] == "0.5"


def test_name_too_long_for_its_children_is_refused(api_server: Server) -> None:
    assert "40" in refused(api_server, a_raw_spec(), name="x" * 41)
