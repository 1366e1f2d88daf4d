"""The route: sequence, default, and weights that sum to 100 or are refused."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.builders import (
    NAMESPACE,
    a_gateway,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
)

from speculative_api.gateway import ROUTE_KEY, Affinity, Auth, Route, Shadow
from speculative_operator.decision import Copies, Decision, Share
from speculative_operator.desired.revision import parse
from speculative_operator.desired.route import next_route, route_config_map
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import GatewayPod, Snapshot

STABLE, CANARY = some_words(4), some_words(6)
STATUS = a_status(stable=STABLE, canary=CANARY)


def decided(*shares: tuple[str, int], status=STATUS) -> Decision:  # type: ignore[no-untyped-def]
    return Decision(
        status=status, transition=False, shares=tuple(Share(hash_, w) for hash_, w in shares)
    )


def the_world(route: Route | None = None, **spec: object) -> Snapshot:
    return a_snapshot(a_spec(**spec), status=STATUS, route=route)


def test_an_unchanged_route_keeps_its_sequence() -> None:
    decision = decided((STABLE.hash, 100))
    first = next_route(the_world(), decision)
    assert first.sequence == 1
    assert next_route(the_world(first), decision) == first


@pytest.mark.parametrize(
    ("decision", "spec"),
    [
        (decided((STABLE.hash, 95), (CANARY.hash, 5)), {}),
        (decided((STABLE.hash, 100)), {"gateway": {"timeouts": {"idleSeconds": 10}}}),
        (
            decided((STABLE.hash, 100)),
            {"lanes": {"rules": [{"lane": "accelerated", "percent": 100}]}},
        ),
        (decided(), {}),
    ],
    ids=["weight", "timeout", "lane rule", "empty"],
)
def test_a_changed_route_has_the_next_sequence(decision: Decision, spec: dict[str, object]) -> None:
    first = next_route(the_world(), decided((STABLE.hash, 100)))
    assert next_route(the_world(first, **spec), decision).sequence == 2


def test_a_lost_config_map_does_not_turn_the_sequence_back() -> None:
    status = a_status(stable=STABLE, routeSequence=41)
    found = next_route(a_snapshot(status=status), decided((STABLE.hash, 100), status=status))
    assert found.sequence == 42


def test_a_route_made_anew_is_newer_than_what_a_gateway_uses() -> None:
    # The ConfigMap was deleted and status emptied: the gateway refuses anything older.
    status = a_status(stable=STABLE)
    world = a_snapshot(status=status, gateways=[a_gateway({STABLE.hash: 100}, sequence=17)])
    assert next_route(world, decided((STABLE.hash, 100), status=status)).sequence == 18


def test_a_deleted_config_map_leaves_the_sequence_in_status() -> None:
    status = a_status(stable=STABLE, routeSequence=41)
    decision = decide(a_snapshot(status=status, revisions=[a_record(STABLE)]))
    assert decision.status.route_sequence == 41


@pytest.mark.parametrize(
    ("gateways", "known"),
    [
        ([], 0),
        ([replace(a_gateway(answered=False), address="")], 0),
        ([a_gateway(answered=False)], 17),
        ([a_gateway({STABLE.hash: 100}, sequence=16)], 17),
    ],
    ids=["no pod", "a pod not started yet", "a silent pod", "a pod that lags"],
)
def test_status_knows_the_sequence_as_soon_as_a_gateway_may_use_it(
    gateways: list[GatewayPod], known: int
) -> None:
    status = a_status(stable=STABLE)
    route = next_route(the_world(), decided((STABLE.hash, 100))).model_copy(update={"sequence": 17})
    world = a_snapshot(status=status, route=route, gateways=gateways, revisions=[a_record(STABLE)])
    assert decide(world).status.route_sequence == known


def test_the_default_is_stable_also_when_the_canary_has_everything() -> None:
    route = next_route(the_world(), decided((STABLE.hash, 0), (CANARY.hash, 100)))
    assert route.default == STABLE.hash


def test_a_route_with_auth_is_refused_by_agents_that_would_ignore_it() -> None:
    decision = decided((STABLE.hash, 100))
    plain = next_route(the_world(), decision)
    found = next_route(the_world(plain, gateway={"auth": {"apiKeysSecret": "keys"}}), decision)
    assert (plain.schema_version, plain.auth) == (1, None)
    assert (found.schema_version, found.auth) == (2, Auth(api_keys_secret="keys"))
    assert found.sequence == plain.sequence + 1


@pytest.mark.parametrize(("pods", "each"), [(1, 100), (2, 50), (3, 34)])
def test_each_gateway_pod_has_its_part_of_a_limit(pods: int, each: int) -> None:
    limits = {"requestsPerMinutePerKey": 100, "tokensPerMinutePerKey": 10_000}
    auth = {"apiKeysSecret": "k"}
    world = the_world(gateway={"replicas": pods, "auth": auth, "rateLimit": limits})
    found = next_route(world, decided((STABLE.hash, 100))).rate_limit
    assert found is not None
    assert found.requests_per_minute_per_key == each
    assert found.tokens_per_minute_per_key == -(-10_000 // pods)


@pytest.mark.parametrize(("pods", "each"), [(1, 64), (3, 22)])
def test_each_gateway_pod_has_its_part_of_native_s_batch(pods: int, each: int) -> None:
    native = {"replicas": 1, "fallback": True}
    world = the_world(gateway={"replicas": pods}, lanes={"native": native})
    found = next_route(world, decided((STABLE.hash, 100))).fallback
    assert found is not None
    assert found.requests_per_endpoint == each


def test_the_body_limit_is_passed_on() -> None:
    decision = decided((STABLE.hash, 100))
    limited = next_route(the_world(gateway={"maxRequestBodyBytes": 4096}), decision)
    assert limited.max_request_body_bytes == 4096
    assert next_route(the_world(), decision).max_request_body_bytes is None


def test_without_the_word_nothing_falls_back() -> None:
    world = the_world(lanes={"native": {"replicas": 1}})
    assert next_route(world, decided((STABLE.hash, 100))).fallback is None


def test_the_salt_of_sessions_is_the_revision_on_trial_before_and_after_promotion() -> None:
    header = {"gateway": {"sessionAffinityHeader": "X-Session-Id"}}
    trial = next_route(the_world(**header), decided((STABLE.hash, 95), (CANARY.hash, 5)))
    status = a_status(stable=CANARY)
    promoted = next_route(
        the_world(**header), decided((CANARY.hash, 95), (STABLE.hash, 5), status=status)
    )
    assert trial.affinity == Affinity(header="x-session-id", salt=CANARY.hash)
    assert promoted.affinity == trial.affinity
    assert next_route(the_world(), decided((STABLE.hash, 100))).affinity is None


def test_without_shares_there_is_no_default() -> None:
    route = next_route(the_world(), decided())
    assert (route.default, route.backends) == (None, ())


def test_shares_that_do_not_sum_to_100_are_refused() -> None:
    with pytest.raises(ValidationError, match="sum to 90"):
        next_route(the_world(), decided((STABLE.hash, 60), (CANARY.hash, 30)))


@settings(deadline=None, max_examples=50)
@given(weight=st.integers(0, 100))
def test_any_split_survives_the_way_through_the_config_map(weight: int) -> None:
    route = next_route(the_world(), decided((STABLE.hash, 100 - weight), (CANARY.hash, weight)))
    body = route_config_map(route, name="chat", metadata={"namespace": NAMESPACE})
    assert Route.model_validate_json(body["data"][ROUTE_KEY]) == route
    assert [backend.weight for backend in route.backends] == [100 - weight, weight]


def test_lane_rules_keep_their_order_and_all_their_parts() -> None:
    rules = [
        {"lane": "native", "path": "/v1/embeddings", "model": "chat"},
        {"lane": "accelerated", "header": {"name": "x-tier", "value": "gold"}},
        {"lane": "native", "percent": 10},
    ]
    snapshot = the_world(lanes={"native": {"replicas": 1}, "rules": rules})
    route = next_route(snapshot, decided((STABLE.hash, 100)))
    written = route.model_dump(by_alias=True, exclude_none=True)["laneRules"]
    assert list(written) == rules


def test_what_may_wait_is_each_revision_s_own_and_divided_among_the_gateways() -> None:
    records = [a_record(STABLE), a_record(CANARY)]
    spec = a_spec(gateway={"replicas": 3, "overload": {"maxQueuedRequestsPerPod": 10}})
    world = a_snapshot(spec, status=STATUS, revisions=records)
    route = next_route(world, decided((STABLE.hash, 95), (CANARY.hash, 5)))
    running = parse(records[0].words).engine.max_num_seqs
    assert [each.requests_per_endpoint for each in route.backends] == [-(-(running + 10) // 3)] * 2
    without = next_route(the_world(), decided((STABLE.hash, 100)))
    assert without.backends[0].requests_per_endpoint is None


def test_answers_say_where_they_come_from_unless_told_not_to() -> None:
    decision = decided((STABLE.hash, 100))
    assert next_route(the_world(), decision).revision_headers
    hidden = the_world(gateway={"revisionHeaders": False})
    assert not next_route(hidden, decision).revision_headers


def test_an_address_list_needs_an_agent_that_knows_it() -> None:
    world = the_world(gateway={"allowedCidrs": ["10.0.0.0/8", "fd00::/8"]})
    route = next_route(world, decided((STABLE.hash, 100)))
    assert route.allowed_cidrs == ("10.0.0.0/8", "fd00::/8")
    assert route.schema_version == 3


def test_tokens_need_an_agent_that_asks_for_them() -> None:
    jwt = {
        "issuer": "https://issuer.example",
        "audiences": ["chat"],
        "jwksUri": "https://issuer.example/keys",
        "clientClaim": "team",
    }
    route = next_route(the_world(gateway={"auth": {"jwt": jwt}}), decided((STABLE.hash, 100)))
    assert route.schema_version == 3
    assert route.auth is not None
    assert route.auth.jwt is not None
    written = route.auth.jwt.model_dump(by_alias=True, exclude_none=True)
    assert {**written, "audiences": list(written["audiences"])} == jwt


def copying(percent: int, most: int | None = 9) -> Decision:
    decision = decided((STABLE.hash, 100), (CANARY.hash, 0))
    return replace(decision, copies=Copies(CANARY.hash, percent, most))


def test_copies_are_bounded_by_each_gateway_pod_s_part_rounded_up() -> None:
    route = next_route(the_world(gateway={"replicas": 2}), copying(10))
    assert route.shadow == Shadow(hash=CANARY.hash, percent=10, most_requests=5)


def test_copies_without_a_bound_of_their_own_keep_the_one_they_had() -> None:
    first = next_route(the_world(gateway={"replicas": 2}), copying(10))
    second = next_route(the_world(first, gateway={"replicas": 2}), copying(0, None))
    assert second.shadow == Shadow(hash=CANARY.hash, percent=0, most_requests=5)
    assert second.sequence == first.sequence + 1


def test_copies_for_a_revision_with_users_are_a_defect() -> None:
    decision = replace(
        decided((STABLE.hash, 95), (CANARY.hash, 5)), copies=Copies(CANARY.hash, 10, 9)
    )
    with pytest.raises(ValidationError, match="copies are for a revision without users"):
        next_route(the_world(), decision)
