"""The real API server on the gateway's fields: what is taken, and what to do about the rest."""

from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server
from tests.cluster.test_resource_on_server import refused

pytestmark = pytest.mark.cluster

KEYS = {"apiKeysSecret": "chat-keys"}
AT_A_GATEWAY = {"mode": "GatewayAPI", "parentRef": {"name": "edge"}}
PICKER = {"name": "picker-{revision}", "port": 9002}


@pytest.mark.parametrize(
    "gateway",
    [
        {"auth": KEYS},
        {"auth": KEYS, "rateLimit": {"requestsPerMinutePerKey": 600}},
        {"auth": KEYS, "rateLimit": {"tokensPerMinutePerKey": 100_000}},
        {"sessionAffinityHeader": "x-session-id"},
        {"mode": "None", "service": {"type": "NodePort"}},
        {"mode": "GatewayAPI", "parentRef": {"name": "edge", "namespace": "infra"}},
        {"hosts": ["chat.example.com", "*.example.com"]},
        {**AT_A_GATEWAY, "backend": "InferencePool", "endpointPickerRef": PICKER},
    ],
    ids=[
        "keys",
        "keys and requests",
        "keys and tokens",
        "sessions",
        "no gateway",
        "HTTPRoute",
        "hosts",
        "InferencePool",
    ],
)
def test_taken(api_server: Server, gateway: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception, match="took it"):
        refused(api_server, a_raw_spec(gateway=gateway))


@pytest.mark.parametrize(
    ("gateway", "words"),
    [
        (
            {"rateLimit": {"requestsPerMinutePerKey": 600}},
            "rateLimit counts by API key: add gateway.auth.apiKeysSecret or gateway.auth.jwt",
        ),
        ({"auth": KEYS, "rateLimit": {}}, "rateLimit limits nothing: add requestsPerMinutePerKey"),
        ({"auth": {"apiKeysSecret": "Chat Keys"}}, "should match"),
        ({"auth": {}}, "set either apiKeysSecret or jwt"),
        ({"sessionAffinityHeader": "x session"}, "should match"),
        ({"maxRequestBodyBytes": 100}, "greater than or equal to 1024"),
        ({"mode": "None", "auth": KEYS}, "only a gateway of mode Envoy or Shared does this"),
        ({"mode": "GatewayAPI"}, "mode GatewayAPI needs parentRef"),
        ({**AT_A_GATEWAY, "backend": "InferencePool"}, "needs endpointPickerRef"),
        ({"backend": "InferencePool", "endpointPickerRef": PICKER}, "or use mode GatewayAPI"),
        (
            {
                **AT_A_GATEWAY,
                "backend": "InferencePool",
                "endpointPickerRef": {"name": "one-for-all"},
            },
            "should match",
        ),
        ({"hosts": ["Chat.example.com"]}, "should match"),
        ({"hosts": ["chat.example.com:80"]}, "should match"),
        ({"hosts": ["a.example", "a.example"]}, "Duplicate value"),
        (
            {"mode": "GatewayAPI", "parentRef": {"name": "edge"}, "service": {"type": "NodePort"}},
            "users reach your Gateway",
        ),
    ],
    ids=[
        "limit without keys",
        "empty limit",
        "no name of a Secret",
        "empty auth",
        "no header",
        "tiny bodies",
        "keys and nobody to ask for them",
        "no Gateway to be at",
        "a pool without a picker",
        "a pool behind Envoy",
        "one picker for all pools",
        "capitals in a host",
        "port in a host",
        "a host twice",
        "a Service before another's Gateway",
    ],
)
def test_refused(api_server: Server, gateway: dict[str, Any], words: str) -> None:
    assert words in refused(api_server, a_raw_spec(gateway=gateway))


RULES = [
    {"lane": "native", "path": "/v1/embeddings"},
    {"lane": "accelerated", "header": {"name": "x-tier", "value": "gold"}, "model": "chat"},
    {"lane": "native", "percent": 10},
]


def test_lane_rules_are_taken(api_server: Server) -> None:
    with pytest.raises(pytest.fail.Exception, match="took it"):
        refused(api_server, a_raw_spec(lanes={"native": {"replicas": 1}, "rules": RULES}))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"lane": "native", "percent": 5}, "set lanes.native.replicas to 1 or more"),
        ({"lane": "accelerated"}, "a rule says which requests: add path, header, model or percent"),
        ({"lane": "accelerated", "path": "/metrics"}, "should match"),
        ({"lane": "accelerated", "percent": 0}, "greater than or equal to 1"),
        ({"lane": "fast", "percent": 5}, "Unsupported value"),
    ],
    ids=["no native pods", "no condition", "path outside v1", "nothing", "no lane"],
)
def test_lane_rules_are_refused(api_server: Server, rule: dict[str, Any], words: str) -> None:
    assert words in refused(api_server, a_raw_spec(lanes={"rules": [rule]}))


def test_a_fallback_needs_native_pods(api_server: Server) -> None:
    lanes = {"native": {"fallback": True}}
    assert "set lanes.native.replicas to 1 or more" in refused(api_server, a_raw_spec(lanes=lanes))


@pytest.mark.parametrize(
    "spec",
    [
        {"rollout": {"steps": [{"weight": 5}]}},
        {"rollout": {"guard": {"holdbackWeight": 9}}},
        {"lanes": {"native": {"replicas": 1}}},
    ],
    ids=["weight", "holdback", "native lane"],
)
def test_without_a_gateway_nothing_has_a_share(api_server: Server, spec: dict[str, Any]) -> None:
    words = refused(api_server, a_raw_spec(gateway={"mode": "None"}, **spec))
    assert "without a gateway" in words
