"""Pure: golden files of the rendering, and properties of the way between two configurations."""

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speculative_api import gateway
from speculative_gateway.bootstrap import bootstrap, listener
from speculative_gateway.configuration import (
    AS_FALLBACK,
    SHADOW,
    TOKENS,
    WAY,
    Configuration,
    asks,
    content_digest,
    copying_clusters,
    files,
    from_files,
    named_clusters,
    plan,
    revision_of,
    shares,
)
from speculative_gateway.errors import RouteRefused
from speculative_gateway.keys import Keys
from speculative_gateway.policies import COUNTED_BODY_BYTES
from speculative_gateway.render import Endpoint, empty, rendered
from speculative_gateway.settings import Settings
from speculative_gateway.tokens import key_set

FOLDER = PurePosixPath("/run/gateway/xds")
GOLDEN = Path(__file__).parent / "golden"
ENDPOINTS = {
    "chat-a": (Endpoint("10.0.0.2"), Endpoint("10.0.0.1")),
    "chat-c": (Endpoint("fd00::3"),),
}
KEYS = Keys({"bob": "bobs-secret-key", "alice": "alices-secret-key"})
JWT = gateway.Jwt(issuer="https://issuer.example", audiences=("chat",), jwks_config_map="keys")
KEY_SET = key_set('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": "1"}]}')
ENGINES = gateway.BackendTls(authority="chat-engines", server_name="chat.llm.svc")
ROUTES = {
    "with-tokens": gateway.Route(
        schema_version=3,
        owner_uid="u",
        sequence=8,
        model="m",
        default="a" * 10,
        backends=(gateway.Backend(hash="a" * 10, service="chat-a", weight=100),),
        auth=gateway.Auth(jwt=JWT),
        rate_limit=gateway.RateLimit(requests_per_minute_per_key=600),
    ),
    "empty": gateway.Route(owner_uid="u", sequence=1, model="m"),
    "canary-and-native": gateway.Route(
        owner_uid="u",
        sequence=7,
        model="m",
        default="a" * 10,
        backends=(
            gateway.Backend(hash="a" * 10, service="chat-a", weight=95, requests_per_endpoint=96),
            gateway.Backend(hash="b" * 10, service="chat-b", weight=5, requests_per_endpoint=96),
        ),
        native=gateway.Backend(hash="c" * 10, service="chat-c", weight=0),
        timeouts=gateway.Timeouts(request_seconds=0, idle_seconds=120),
    ),
    "waiting": gateway.Route(
        owner_uid="u",
        sequence=9,
        model="m",
        default="a" * 10,
        backends=(
            gateway.Backend(hash="a" * 10, service="chat-a", weight=100),
            gateway.Backend(hash="b" * 10, service="chat-b", weight=0),
        ),
        native=gateway.Backend(hash="c" * 10, service="chat-c", weight=0),
        fallback=gateway.Fallback(requests_per_endpoint=2),
        waiting=gateway.Waiting(hold_seconds=30),
    ),
    "encrypted": gateway.Route(
        schema_version=4,
        owner_uid="u",
        sequence=9,
        model="m",
        default="a" * 10,
        backends=(
            gateway.Backend(hash="a" * 10, service="chat-a", weight=95, tls=ENGINES),
            gateway.Backend(hash="b" * 10, service="chat-b", weight=5),
        ),
        native=gateway.Backend(hash="c" * 10, service="chat-c", weight=0, tls=ENGINES),
        fallback=gateway.Fallback(requests_per_endpoint=32),
    ),
    "fallback": gateway.Route(
        owner_uid="u",
        sequence=9,
        model="m",
        default="a" * 10,
        backends=(
            gateway.Backend(hash="a" * 10, service="chat-a", weight=95),
            gateway.Backend(hash="b" * 10, service="chat-b", weight=5),
        ),
        native=gateway.Backend(hash="c" * 10, service="chat-c", weight=0),
        fallback=gateway.Fallback(requests_per_endpoint=32),
        affinity=gateway.Affinity(header="x-session-id", salt="b" * 10),
        max_request_body_bytes=4_194_304,
    ),
    "shadow": gateway.Route(
        owner_uid="u",
        sequence=11,
        model="m",
        default="a" * 10,
        backends=(
            gateway.Backend(hash="a" * 10, service="chat-a", weight=100),
            gateway.Backend(hash="b" * 10, service="chat-c", weight=0),
        ),
        shadow=gateway.Shadow(hash="b" * 10, percent=10, most_requests=16),
    ),
    "lane-rules": gateway.Route(
        hosts=("chat.example.com", "*.chat.example.com"),
        owner_uid="u",
        sequence=10,
        model="m",
        default="a" * 10,
        backends=(gateway.Backend(hash="a" * 10, service="chat-a", weight=100),),
        native=gateway.Backend(hash="c" * 10, service="chat-c", weight=0),
        lane_rules=(
            gateway.LaneRule(lane="native", path="/v1/embeddings"),
            gateway.LaneRule(
                lane="accelerated",
                header=gateway.HeaderMatch(name="X-Tier", value="gold"),
                model="chat",
            ),
            gateway.LaneRule(lane="native", percent=10),
        ),
    ),
    "with-keys": gateway.Route(
        schema_version=2,
        owner_uid="u",
        sequence=8,
        model="m",
        default="a" * 10,
        backends=(gateway.Backend(hash="a" * 10, service="chat-a", weight=100),),
        auth=gateway.Auth(api_keys_secret="chat-keys"),
        rate_limit=gateway.RateLimit(
            requests_per_minute_per_key=600,
            tokens_per_minute_per_key=200_000,
            concurrent_requests_per_key=8,
        ),
        allowed_cidrs=("10.0.0.0/8",),
    ),
}


def _golden(name: str, content: object) -> None:
    """Compares with the golden file; writes it where there is none yet."""
    path = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump(content, sort_keys=False, width=100)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} was not there; it is now: review and commit it")
    assert text == path.read_text()


@pytest.mark.parametrize("name", ROUTES)
def test_rendered_files_are_golden(name: str) -> None:
    texts = files(rendered(ROUTES[name], ENDPOINTS, folder=FOLDER, keys=KEYS, key_set=KEY_SET))
    _golden(name, {file: json.loads(text) for file, text in texts.items()})


def test_static_files_are_golden() -> None:
    _golden("static", {"bootstrap": bootstrap(Settings()), "listener": listener(Settings())})


def test_files_are_read_back_as_written() -> None:
    configuration = rendered(ROUTES["canary-and-native"], ENDPOINTS, folder=FOLDER)
    # Two ready endpoints of stable, none of the canary.
    assert configuration.bounds == {"a" * 10: 192, "b" * 10: 96}
    assert from_files(files(configuration)) == configuration


def test_a_changed_timeout_changes_the_digest_of_the_routes() -> None:
    one = ROUTES["canary-and-native"]
    other = one.model_copy(update={"timeouts": gateway.Timeouts(idle_seconds=121)})
    digests = {
        content_digest(rendered(each, ENDPOINTS, folder=FOLDER).routes["virtual_hosts"][0])
        for each in (one, other)
    }
    assert len(digests) == 2


def test_keys_reach_envoy_only_where_the_route_asks_for_them() -> None:
    texts = {
        name: json.dumps(files(rendered(route, ENDPOINTS, folder=FOLDER, keys=KEYS)))
        for name, route in ROUTES.items()
    }
    assert [name for name, text in texts.items() if "secret-key" in text] == ["with-keys"]


@pytest.mark.parametrize(
    "endpoint, reason",
    [
        (Endpoint("worker.example"), "not an IP address"),
        (Endpoint("10.0.0.1", port=0), "port 0 is out of range"),
        (Endpoint("10.0.0.1", health_port=70000), "port 70000 is out of range"),
    ],
    ids=["host name", "port 0", "port too high"],
)
def test_unusable_endpoints_are_refused(endpoint: Endpoint, reason: str) -> None:
    with pytest.raises(RouteRefused, match=reason):
        rendered(ROUTES["canary-and-native"], {"chat-a": (endpoint,)}, folder=FOLDER)


def test_native_with_a_part_of_the_accelerated_lane_has_one_cluster() -> None:
    before = ROUTES["canary-and-native"]
    native = before.native
    assert native is not None
    backends = tuple(
        each.model_copy(update={"weight": weight})
        for each, weight in zip((before.backends[0], native), (75, 25), strict=True)
    )
    route = before.model_copy(update={"backends": backends})
    found = rendered(route, ENDPOINTS, folder=FOLDER)
    assert sorted(found.clusters) == sorted(each.hash for each in backends)
    assert found.weights == {backends[0].hash: 75, native.hash: 25}
    assert (
        found.assignments[native.hash]
        == rendered(before, ENDPOINTS, folder=FOLDER).assignments[native.hash]
    )


UNHURRIED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
"""Time says nothing on a shared machine."""
REVISIONS = ["a" * 10, "b" * 10, "c" * 10, "d" * 10]


def _a_shadow(
    backends: tuple[gateway.Backend, ...], default: str | None
) -> st.SearchStrategy[gateway.Shadow | None]:
    """Copies for a backend without users, or none yet for one with some."""
    found = [
        gateway.Shadow(hash=each.hash, percent=percent, most_requests=percent + 1)
        for each in backends
        for percent in ((0,) if each.weight else (0, 10, 50))
        if each.hash != default
    ]
    return st.sampled_from(found) if found else st.none()


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Any route with up to three backends, native or not, with endpoints or not."""
    names = draw(st.permutations(REVISIONS))
    count = draw(st.integers(0, 3))
    cuts = sorted(draw(st.lists(st.integers(0, 100), min_size=2, max_size=2)))
    if count == 1:
        weights = [100]
    elif count == 2:
        weights = [cuts[0], 100 - cuts[0]]
    else:
        weights = [cuts[0], cuts[1] - cuts[0], 100 - cuts[1]]
    backends = tuple(
        gateway.Backend(
            hash=name,
            service=name,
            weight=weight,
            requests_per_endpoint=draw(st.none() | st.integers(1, 9)),
        )
        for name, weight in zip(names[:count], weights, strict=False)
    )
    default = draw(st.sampled_from(names[:count])) if count else None
    route = gateway.Route(
        owner_uid="u",
        sequence=1,
        model="m",
        default=default,
        backends=backends,
        native=gateway.Backend(hash=names[3], service=names[3], weight=0)
        if draw(st.booleans())
        else None,
        shadow=draw(st.none() | _a_shadow(backends, default)),
        fallback=gateway.Fallback(requests_per_endpoint=8) if draw(st.booleans()) else None,
        auth=gateway.Auth(jwt=JWT) if draw(st.booleans()) else None,
    )
    hosts = draw(st.sets(st.sampled_from(REVISIONS)))
    endpoints = {name: (Endpoint("10.0.0.1"),) for name in hosts}
    return rendered(route, endpoints, folder=FOLDER, key_set=KEY_SET)


def asks_for_tokens(configuration: Configuration) -> bool:
    """Whether the route does."""
    (host,) = configuration.routes["virtual_hosts"]
    return "requirement_name" in host["typed_per_filter_config"][TOKENS]


def test_where_tokens_are_counted_no_body_is_longer_than_can_be_counted() -> None:
    route = ROUTES["with-keys"].model_copy(update={"max_request_body_bytes": 32 * 1024 * 1024})
    (host,) = rendered(route, ENDPOINTS, folder=FOLDER, keys=KEYS).routes["virtual_hosts"]
    limit = host["typed_per_filter_config"]["envoy.filters.http.buffer"]
    assert limit["buffer"]["max_request_bytes"] == COUNTED_BODY_BYTES


def members(aggregate: dict[str, Any]) -> set[str]:
    """The clusters that an aggregate sends to."""
    return set(aggregate["cluster_type"]["typed_config"]["clusters"])


def test_only_stable_falls_back_and_native_s_part_is_bounded_by_its_ready_pods() -> None:
    found = rendered(ROUTES["fallback"], ENDPOINTS, folder=FOLDER).clusters
    stable, canary, spare = "a" * 10, "b" * 10, "c" * 10 + AS_FALLBACK
    assert members(found[stable + WAY]) == {stable, spare}
    assert members(found[canary + WAY]) == {canary}
    assert found[spare]["circuit_breakers"]["thresholds"][0]["max_requests"] == 32
    assert found["c" * 10]["circuit_breakers"]["thresholds"][0]["max_requests"] > 32


@UNHURRIED
@given(configurations(), configurations())
def test_every_step_of_every_plan_is_safe(current: Configuration, wanted: Configuration) -> None:
    steps = plan(current, wanted)
    assert (steps[-1] if steps else current) == wanted
    previous = current
    for step in steps:
        kinds = ("assignments", "clusters", "routes", "weights", "bounds", "tokens", "copies")
        assert sum(getattr(step, kind) != getattr(previous, kind) for kind in kinds) == 1
        aggregates = {name for name in step.clusters if name.endswith(WAY)}
        assert named_clusters(step.routes).keys() <= step.clusters.keys()
        assert step.clusters.keys() - aggregates <= step.assignments.keys()
        assert all(members(step.clusters[name]) <= step.clusters.keys() for name in aggregates)
        if step.clusters != previous.clusters:
            # Never a moment in which a new revision has no bound.
            added = step.clusters.keys() - previous.clusters.keys()
            assert {name for name in wanted.bounds if name in added} <= step.bounds.keys()
        # A route that asks for what the filter does not know refuses everybody.
        assert not asks_for_tokens(step) or asks(step.tokens)
        used = shares(step.routes, step.weights)
        assert not used or sum(used.values()) > 0
        assert copying_clusters(step.routes) <= step.clusters.keys()
        busy = {revision_of(name) for name, weight in used.items() if weight}
        copied = {revision_of(name) for name, percent in step.copies.items() if percent}
        assert not busy & copied
        previous = step


@UNHURRIED
@given(configurations())
def test_an_unchanged_configuration_has_no_step(configuration: Configuration) -> None:
    assert plan(configuration, configuration) == []


def test_a_weight_alone_is_one_step_and_only_the_runtime() -> None:
    route = ROUTES["canary-and-native"]
    shifted = route.model_copy(
        update={
            "backends": (
                route.backends[0].model_copy(update={"weight": 50}),
                route.backends[1].model_copy(update={"weight": 50}),
            )
        }
    )
    before, after = (rendered(each, ENDPOINTS, folder=FOLDER) for each in (route, shifted))
    assert plan(before, after) == [after]
    changed = [name for name, text in files(after).items() if files(before)[name] != text]
    assert changed == ["rtds.json"]


@pytest.mark.parametrize("change", [{"percent": 50}, {"percent": 0}, {"most_requests": 3}])
def test_another_percentage_of_copies_is_one_step_and_only_the_runtime(
    change: dict[str, int],
) -> None:
    route = ROUTES["shadow"]
    assert route.shadow is not None
    other = route.model_copy(update={"shadow": route.shadow.model_copy(update=change)})
    before, after = (rendered(each, ENDPOINTS, folder=FOLDER) for each in (route, other))
    assert plan(before, after) == [after]
    changed = [name for name, text in files(after).items() if files(before)[name] != text]
    assert changed == ["rtds.json"]


def test_copies_reach_an_engine_as_its_requests_do() -> None:
    tls = gateway.BackendTls(authority="engines", server_name="chat")
    stable, canary = ROUTES["shadow"].backends
    spoken = canary.model_copy(update={"tls": tls})
    route = ROUTES["shadow"].model_copy(update={"backends": (stable, spoken)})
    found = rendered(route, ENDPOINTS, folder=FOLDER)
    own, copied = (found.clusters["b" * 10 + suffix] for suffix in ("", SHADOW))
    for field in ("transport_socket", "health_checks"):
        assert copied[field] == own[field]
    assert found.hosts("b" * 10 + SHADOW) == found.hosts("b" * 10)


def test_copies_end_before_users_come_and_before_the_route_forgets_them() -> None:
    route = ROUTES["shadow"]
    gone = route.model_copy(update={"shadow": None})
    before, after = (rendered(each, ENDPOINTS, folder=FOLDER) for each in (route, gone))
    first, *rest = plan(before, after)
    assert first.routes == before.routes
    assert dict(first.copies) == {"b" * 10 + SHADOW: 0}
    assert rest[-1] == after


def test_the_empty_configuration_names_no_cluster() -> None:
    assert named_clusters(empty().routes) == {}


def test_every_cluster_of_an_encrypted_revision_is_encrypted_and_no_other() -> None:
    found = rendered(ROUTES["encrypted"], ENDPOINTS, folder=FOLDER).clusters
    encrypted = {name for name, cluster in found.items() if "transport_socket" in cluster}
    assert encrypted == {"a" * 10, "c" * 10, "c" * 10 + "-fallback"}
    for name in encrypted:
        (probe,) = found[name]["health_checks"]
        (plain,) = found[name]["transport_socket_matches"]
        assert probe["transport_socket_match_criteria"] == plain["match"]
