"""`gateway.backend: InferencePool`: no revision gets users before its pool has a picker."""

from dataclasses import replace
from typing import Any

import pytest
from tests import builders
from tests.builders import a_spec, a_status, some_words
from tests.rollout.world import World

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec, SpeculativeDeploymentStatus
from speculative_operator.cluster.protected import is_protected
from speculative_operator.decision import Decision
from speculative_operator.rollout.foreign import lacking, reachability
from speculative_operator.rollout.gateways import is_followed, is_reachable
from speculative_operator.snapshot import HttpRoute, Pool, RouteParent, Snapshot

GATEWAY = {
    "mode": "GatewayAPI",
    "parentRef": {"name": "edge"},
    "backend": "InferencePool",
    "endpointPickerRef": {"name": "picker-{revision}"},
}
ROLLOUT = {"steps": [{"weight": 50}], "progressDeadlineSeconds": 60}
STABLE, CANARY = some_words(4), some_words(6)
TAKEN = RouteParent("example.com/c", True, 1)
REFUSED = RouteParent("example.com/c", False, 1, "InvalidExtensionRef: no such Service")


def a_snapshot(
    spec: SpeculativeDeploymentSpec | None = None,
    *,
    status: SpeculativeDeploymentStatus | None = None,
    **found: Any,
) -> Snapshot:
    return replace(builders.a_snapshot(spec, status=status), **found)


def test_a_canary_without_a_picker_gets_no_user_and_is_not_given_up() -> None:
    world = World(a_spec(k=4, gateway=GATEWAY, rollout=ROLLOUT))
    world.until("StableReady")
    world.settle()
    asked = a_spec(k=6, gateway=GATEWAY, rollout=ROLLOUT)
    world.pickerless.add(canary := world.change(asked))
    for _ in range(50):
        world.look(10)
    (condition,) = [c for c in world.status.conditions if c.type == "Progressing"]
    assert condition.reason == "PoolNotAccepted"
    assert f"InferencePool chat-{canary} is not accepted" in condition.message
    assert "InvalidExtensionRef: no such Service" in condition.message
    assert f"picker is Service picker-{canary}" in condition.message
    assert world.status.canary is not None
    assert world.status.canary.weight == 0
    assert dict(world.used)[canary] == 0, "its pool is in the route, or nobody would look at it"
    assert [event.reason for event in world.events].count("PoolNotAccepted") == 1
    world.pickerless.clear()
    world.until("CanaryWeightObserved")
    world.until("Promoted")
    assert world.status.stable is not None
    assert world.status.stable.hash == canary


def test_a_weight_does_not_count_while_the_pool_has_lost_its_picker() -> None:
    route = HttpRoute(1, {STABLE.hash: 50, CANARY.hash: 50}, (TAKEN,))
    snapshot = a_snapshot(a_spec(gateway=GATEWAY), http_route=route)
    since = "2020-01-01T00:00:00Z"
    accepted = replace(snapshot, pools={CANARY.hash: Pool(1, (TAKEN,))})
    lost = replace(snapshot, pools={CANARY.hash: Pool(1, (REFUSED,))})
    assert is_followed(accepted, CANARY.hash, 50, since=since)
    assert not is_followed(lost, CANARY.hash, 50, since=since)
    away = replace(lost, http_route=HttpRoute(1, {STABLE.hash: 100, CANARY.hash: 0}, (TAKEN,)))
    assert is_followed(away, CANARY.hash, 0, since=since), "weight 0 needs no picker"


@pytest.mark.parametrize(
    ("pool", "reachable"),
    [
        (None, False),
        (Pool(1), False),
        (Pool(1, (TAKEN,)), True),
        (Pool(2, (TAKEN,)), False),
        (Pool(1, (TAKEN, REFUSED)), False),
    ],
    ids=["none", "nobody answered", "accepted", "an older version", "one of two"],
)
def test_a_pool_is_reachable_when_every_gateway_has_accepted_it(
    pool: Pool | None, reachable: bool
) -> None:
    pools = {} if pool is None else {STABLE.hash: pool}
    snapshot = a_snapshot(a_spec(gateway=GATEWAY), pools=pools)
    assert is_reachable(snapshot, STABLE.hash) is reachable


def test_with_services_nobody_asks_for_pools() -> None:
    gateway = {"mode": "GatewayAPI", "parentRef": {"name": "edge"}}
    assert is_reachable(a_snapshot(a_spec(gateway=gateway)), STABLE.hash)
    assert is_reachable(a_snapshot(), STABLE.hash)


def test_the_condition_says_that_stable_has_no_picker() -> None:
    snapshot = a_snapshot(
        a_spec(gateway=GATEWAY),
        status=a_status(stable=STABLE),
        http_route=HttpRoute(1, {STABLE.hash: 100}, (TAKEN,)),
        pools={STABLE.hash: Pool(1, (REFUSED,))},
    )
    status, reason, message = reachability(snapshot)
    assert (status, reason) == ("False", "PoolNotAccepted")
    assert "no such Service" in message
    good = replace(snapshot, pools={STABLE.hash: Pool(1, (TAKEN,))})
    assert reachability(good)[1] == "RouteAccepted"


def test_without_the_kind_the_route_stays_as_it_is() -> None:
    missing = frozenset({"InferencePool"})
    snapshot = a_snapshot(a_spec(gateway=GATEWAY), missing_kinds=missing)
    assert "install the Gateway API Inference Extension's CRDs" in lacking(snapshot)
    route = {"kind": "HTTPRoute", "metadata": {"name": "chat-gateway"}}
    decision = Decision(status=snapshot.status, transition=False)
    assert is_protected(route, snapshot, decision)
    assert not is_protected(route, replace(snapshot, missing_kinds=frozenset()), decision)
    services = a_snapshot(missing_kinds=missing)
    assert not is_protected(route, services, decision)
    assert lacking(services) == ""


def test_pools_that_nothing_leads_to_any_more_go() -> None:
    pool = {
        "kind": "InferencePool",
        "metadata": {"name": "chat", "labels": {"speculative.dev/revision": STABLE.hash}},
    }
    snapshot = a_snapshot(a_spec(gateway=GATEWAY), status=a_status(stable=STABLE))
    decision = Decision(status=snapshot.status, transition=False)
    assert is_protected(pool, snapshot, decision), "stable keeps its pool as it does its Service"
    services = a_snapshot(status=a_status(stable=STABLE))
    assert not is_protected(pool, services, decision)
