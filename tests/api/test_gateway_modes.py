"""What a mode of the gateway can't do is refused, with the field and the remedy."""

from typing import Any

import pytest
from tests.builders import a_raw_spec

from speculative_api.labels import GROUP, KIND, VERSION
from speculative_api.v1alpha1 import Gateway, RolloutStep
from speculative_api.v1alpha1.gateway import WITH_GATEWAY_API, WITHOUT_GATEWAY
from speculative_api.validation import problems

GATEWAY: dict[str, Any] = {
    "replicas": 2,
    "timeouts": {"idleSeconds": 60},
    "auth": {"apiKeysSecret": "chat-keys"},
    "rateLimit": {"requestsPerMinutePerKey": 600},
    "sessionAffinityHeader": "x-session-id",
    "maxRequestBodyBytes": 4096,
    "overload": {"maxQueuedRequestsPerPod": 8},
    "revisionHeaders": False,
    "allowedCidrs": ["10.0.0.0/8"],
    "trustedProxyHops": 1,
    "tls": {"secretName": "chat-tls"},
}
"""A value for every field that needs a gateway."""
STEPS: dict[str, Any] = {"weight": 5, "shadow": {"percent": 10, "durationSeconds": 60}}
"""A value for every step that needs one."""


def said(**spec: Any) -> list[tuple[str, str]]:
    metadata = {"name": "chat", "namespace": "llm"}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata}
    return [
        (problem.field, problem.message)
        for problem in problems({**body, "spec": a_raw_spec(**spec)})
        if problem.severity == "error"
    ]


def without(**gateway: Any) -> dict[str, Any]:
    return {"gateway": {"mode": "None", **gateway}}


def aliases(model: Any) -> set[str]:
    return {str(field.alias) for field in model.model_fields.values()}


def test_every_field_of_the_gateway_is_thought_of() -> None:
    assert aliases(Gateway) == {*GATEWAY, *WITHOUT_GATEWAY, *WITH_GATEWAY_API, "shared"}
    assert aliases(RolloutStep) == {*STEPS, "pause", "verify"}


@pytest.mark.parametrize("field", GATEWAY)
def test_without_a_gateway_its_fields_are_refused(field: str) -> None:
    fields = {where for where, _ in said(**without(**{field: GATEWAY[field]}))}
    assert fields & {"spec.gateway.mode", "spec.gateway.timeouts"}


def shared(**gateway: Any) -> dict[str, Any]:
    return {"gateway": {"mode": "Shared", "shared": {"name": "edge"}, **gateway}}


def test_at_a_shared_gateway_everything_of_a_gateway_of_ours_is_taken() -> None:
    lanes = {
        "native": {"replicas": 1, "fallback": True},
        "rules": [{"lane": "native", "model": "x"}],
    }
    engine = {"tls": {"secretName": "chat-engines", "serverName": "chat.llm.svc"}}
    steps = {"steps": [SHADOW, {"weight": 5}, {"pause": {}}], "dynamicStable": True}
    own = {**GATEWAY, "hosts": ["chat.example.com"], "service": {"type": "NodePort"}}
    assert said(**shared(**own), lanes=lanes, engine=engine, rollout=steps) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"gateway": {"mode": "Shared"}}, "spec.gateway.shared"),
        ({"gateway": {"shared": {"name": "edge"}}}, "spec.gateway.shared"),
        (shared(parentRef={"name": "edge"}), "spec.gateway.parentRef"),
        (shared(shared={"name": "Edge"}), "spec.gateway.shared.name"),
        (
            {**shared(), "target": {"model": "hf://a/b", "servedModelName": "llama"}},
            "spec.target.servedModelName",
        ),
    ],
    ids=["no name", "another mode", "a parent", "no label", "another model's name"],
)
def test_what_a_shared_gateway_cannot_do_is_refused(spec: dict[str, Any], field: str) -> None:
    assert [where for where, _ in said(**spec)] == [field]


def test_the_models_name_may_be_said_where_it_is_the_resources() -> None:
    same = {"target": {"model": "hf://a/b", "servedModelName": "chat"}}
    assert said(**shared(), **same) == []
    other = {"target": {"model": "hf://a/b", "servedModelName": "llama"}}
    assert said(**other) == []


def at_a_gateway(**gateway: Any) -> dict[str, Any]:
    return {"gateway": {"mode": "GatewayAPI", "parentRef": {"name": "edge"}, **gateway}}


@pytest.mark.parametrize("field", sorted({*GATEWAY, "service"} - {"timeouts"}))
def test_at_somebody_elses_gateway_what_it_has_not_is_refused(field: str) -> None:
    value = {**GATEWAY, "service": {"type": "NodePort"}}[field]
    assert said(**at_a_gateway(**{field: value})) != []


PICKER = {"name": "picker-{revision}"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"gateway": {"mode": "GatewayAPI"}}, "spec.gateway.parentRef"),
        ({"gateway": {"parentRef": {"name": "edge"}}}, "spec.gateway.parentRef"),
        (at_a_gateway(timeouts={"idleSeconds": 60}), "spec.gateway.timeouts.idleSeconds"),
        (at_a_gateway(backend="InferencePool"), "spec.gateway.endpointPickerRef"),
        (at_a_gateway(endpointPickerRef=PICKER), "spec.gateway.endpointPickerRef"),
        (
            {"gateway": {"backend": "InferencePool", "endpointPickerRef": PICKER}},
            "spec.gateway.backend",
        ),
        (
            without(backend="InferencePool", endpointPickerRef=PICKER),
            "spec.gateway.backend",
        ),
        (
            {**at_a_gateway(), "lanes": {"rules": [{"lane": "accelerated", "percent": 9}]}},
            "spec.lanes",
        ),
        (
            {**at_a_gateway(), "lanes": {"native": {"replicas": 1, "fallback": True}}},
            "spec.lanes",
        ),
    ],
    ids=[
        "no parent",
        "a parent for Envoy",
        "idle timeout",
        "a pool without a picker",
        "a picker without a pool",
        "a pool behind Envoy",
        "a pool behind nothing",
        "rules",
        "fallback",
    ],
)
def test_what_an_http_route_cannot_say_is_refused(spec: dict[str, Any], field: str) -> None:
    assert [where for where, _ in said(**spec)] == [field]


@pytest.mark.parametrize(
    "spec",
    [
        at_a_gateway(),
        at_a_gateway(timeouts={"requestSeconds": 1800}),
        {**at_a_gateway(), "lanes": {"native": {"replicas": 1}}},
        {**at_a_gateway(), "rollout": {"steps": [{"weight": 5}, {"pause": {}}]}},
        at_a_gateway(backend="InferencePool", endpointPickerRef=PICKER),
    ],
    ids=["alone", "timeout", "native lane", "weights", "pools"],
)
def test_at_somebody_elses_gateway_the_rest_is_taken(spec: dict[str, Any]) -> None:
    assert said(**spec) == []


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("picker-{revision}", True),
        ("chat-{revision}-epp", True),
        ("picker", False),
        ("{revision}", False),
        ("picker{revision}", False),
        ("Picker-{revision}", False),
        ("picker-{revision}-", False),
        ("picker-{hash}", False),
    ],
)
def test_each_revision_has_a_picker_of_its_own(name: str, taken: bool) -> None:
    """The name is a Service's once the hash is in it."""
    picker = {"name": name, "port": 9003}
    found = said(**at_a_gateway(backend="InferencePool", endpointPickerRef=picker))
    assert [where for where, _ in found] == [] if taken else ["spec.gateway.endpointPickerRef.name"]


def test_without_a_gateway_there_are_no_hosts() -> None:
    found = said(**without(hosts=["chat.example.com"]))
    assert [field for field, _ in found] == ["spec.gateway.hosts"]


def test_source_ranges_need_a_load_balancer() -> None:
    ranges = {"loadBalancerSourceRanges": ["10.0.0.0/8"]}
    found = said(gateway={"service": {"type": "NodePort", **ranges}})
    assert [field for field, _ in found] == ["spec.gateway.service.loadBalancerSourceRanges"]
    assert said(gateway={"service": {"type": "LoadBalancer", **ranges}}) == []


TOKENS = {"issuer": "https://i.example", "audiences": ["chat"]}
URI, MAP = {"jwksUri": "https://i.example/keys"}, {"jwksConfigMap": "keys"}


@pytest.mark.parametrize(
    ("auth", "field"),
    [
        ({"apiKeysSecret": "keys"}, None),
        ({"jwt": {**TOKENS, **URI}}, None),
        ({"jwt": {**TOKENS, **MAP}}, None),
        ({}, "spec.gateway.auth"),
        ({"apiKeysSecret": "keys", "jwt": {**TOKENS, **MAP}}, "spec.gateway.auth"),
        ({"jwt": TOKENS}, "spec.gateway.auth.jwt"),
        ({"jwt": {**TOKENS, **URI, **MAP}}, "spec.gateway.auth.jwt"),
        ({"jwt": {**TOKENS, "audiences": [], **MAP}}, "spec.gateway.auth.jwt.audiences"),
        ({"jwt": {**TOKENS, "jwksUri": "http://i.example"}}, "spec.gateway.auth.jwt.jwksUri"),
        ({"jwt": {**TOKENS, "jwksUri": "https://u:p@i.example"}}, "spec.gateway.auth.jwt.jwksUri"),
    ],
)
def test_clients_have_keys_or_tokens_and_their_keys_one_source(
    auth: dict[str, Any], field: str | None
) -> None:
    found = [where for where, _ in said(gateway={"auth": auth})]
    assert found == ([] if field is None else [field])


@pytest.mark.parametrize("step", STEPS)
def test_without_a_gateway_only_pauses_are_steps(step: str) -> None:
    found = said(**without(), rollout={"steps": [{"pause": {}}, {step: STEPS[step]}]})
    assert [field for field, _ in found] == ["spec.rollout.steps"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"rollout": {"guard": {"holdbackWeight": 9}}}, "spec.rollout.guard.holdbackWeight"),
        ({"lanes": {"native": {"replicas": 1}}}, "spec.lanes.native.replicas"),
        ({"lanes": {"rules": [{"lane": "accelerated", "percent": 9}]}}, "spec.lanes.rules"),
    ],
    ids=["holdback", "native lane", "rules"],
)
def test_without_a_gateway_nothing_has_a_share(spec: dict[str, Any], field: str) -> None:
    assert [where for where, _ in said(**without(), **spec)] == [field]


@pytest.mark.parametrize(
    "spec",
    [
        without(),
        without(service={"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
        {**without(), "rollout": {"steps": [{"pause": {"durationSeconds": 60}}, {"pause": {}}]}},
        {**without(), "rollout": {"guard": {"durationSeconds": 60}}, "lanes": {}},
    ],
    ids=["alone", "service", "pauses", "guard"],
)
def test_without_a_gateway_the_rest_is_taken(spec: dict[str, Any]) -> None:
    assert said(**spec) == []


@pytest.mark.parametrize("gateway", [without(), at_a_gateway()], ids=["None", "GatewayAPI"])
def test_engines_speak_tls_to_our_own_gateway_only(gateway: dict[str, Any]) -> None:
    engine = {"tls": {"secretName": "chat-engines", "serverName": "chat.llm.svc"}}
    assert [where for where, _ in said(**gateway, engine=engine)] == ["spec.engine.tls"]
    assert said(engine=engine) == []


SHADOW = {"shadow": {"percent": 10, "durationSeconds": 60, "maxConcurrentRequests": 8}}


@pytest.mark.parametrize(
    "steps",
    [
        [SHADOW],
        [SHADOW, {"weight": 5}, {"pause": {}}],
        [{"weight": 5}, SHADOW, SHADOW],
        [{"shadow": {"percent": 100}}],
    ],
    ids=["alone", "first", "later, twice", "until promote"],
)
def test_a_gateway_of_ours_copies_at_any_step(steps: list[dict[str, Any]]) -> None:
    assert said(rollout={"steps": steps}) == []


def test_an_http_route_bounds_no_copies_and_can_t_be_read_back() -> None:
    found = said(**at_a_gateway(), rollout={"steps": [{"weight": 5}, SHADOW]})
    assert [field for field, _ in found] == ["spec.rollout.steps"]
    assert "an HTTPRoute can't bound the copies" in found[0][1]


@pytest.mark.parametrize(
    ("step", "field"),
    [
        ({"shadow": {}}, "spec.rollout.steps.0.shadow.percent"),
        ({"shadow": {"percent": 0}}, "spec.rollout.steps.0.shadow.percent"),
        ({"shadow": {"percent": 101}}, "spec.rollout.steps.0.shadow.percent"),
        (
            {"shadow": {"percent": 5, "durationSeconds": 0}},
            "spec.rollout.steps.0.shadow.durationSeconds",
        ),
        (
            {"shadow": {"percent": 5, "maxConcurrentRequests": 0}},
            "spec.rollout.steps.0.shadow.maxConcurrentRequests",
        ),
        ({**SHADOW, "weight": 0}, "spec.rollout.steps[0]"),
        ({**SHADOW, "pause": {}}, "spec.rollout.steps[0]"),
        ({}, "spec.rollout.steps[0]"),
    ],
    ids=["no percent", "none", "too much", "no time", "no room", "a weight", "a pause", "nothing"],
)
def test_a_shadow_is_a_step_of_its_own_with_a_percent(step: dict[str, Any], field: str) -> None:
    assert {where for where, _ in said(rollout={"steps": [step]})} == {field}


def test_in_place_stable_could_not_serve_everybody_during_a_shadow() -> None:
    rollout = {"capacity": "InPlace", "guard": {"keep": "One"}, "steps": [{"weight": 5}, SHADOW]}
    assert [where for where, _ in said(replicas=2, rollout=rollout)] == ["spec.rollout.steps"]
    assert said(replicas=2, rollout={**rollout, "steps": [{"weight": 5}]}) == []
