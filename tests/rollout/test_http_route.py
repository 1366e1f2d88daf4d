"""`gateway.mode: GatewayAPI`: a weight that can't be read back is waited for, and never assumed."""

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import PROVEN, WORSE
from tests.rollout.world import World

from speculative_operator.rollout.gateways import UNSEEN_SECONDS, is_accepted
from speculative_operator.snapshot import HttpRoute, RouteParent

GATEWAY = {"mode": "GatewayAPI", "parentRef": {"name": "edge"}}
ROLLOUT = {
    "steps": [{"weight": 0}, {"weight": 5}, {"weight": 0}, {"pause": {"durationSeconds": 60}}],
    "guard": {"durationSeconds": 30},
}


def trying() -> tuple[World, str, str]:
    world = World(a_spec(k=4, gateway=GATEWAY, rollout=ROLLOUT))
    world.until("StableReady")
    world.settle()
    assert world.status.stable is not None
    stable = world.status.stable.hash
    canary = world.change(a_spec(k=6, gateway=GATEWAY, rollout=ROLLOUT))
    world.until("CanaryReady")
    return world, stable, canary


def test_weights_0_5_0_and_an_abort_are_always_written_out_and_sum_to_100() -> None:
    world, stable, canary = trying()
    world.until("CanaryWeight")
    world.until("CanaryWeightObserved")
    world.with_assessment(WORSE)
    world.until("RolledBack")
    world.until("RevisionRemoved")
    seen = [{s.hash: s.weight for s in d.shares} for d in world.decisions if d.shares]
    assert all(sum(weights.values()) == 100 for weights in seen)
    assert {stable: 95, canary: 5} in seen
    assert {stable: 100, canary: 0} in seen


def test_a_weight_counts_after_the_wait_and_not_before() -> None:
    world, _, _ = trying()
    world.until("CanaryWeight")
    decided = world.now
    world.until("CanaryWeightObserved")
    assert (world.now - decided).total_seconds() >= UNSEEN_SECONDS


def test_a_weight_never_counts_at_a_gateway_that_does_not_accept() -> None:
    world, _, _ = trying()
    world.with_assessment(PROVEN)
    world.until("CanaryWeight")
    world.accepts = False
    for _ in range(50):
        world.look(60)
    assert world.status.canary is not None
    assert world.status.canary.weight_observed_at is None
    ready = next(c for c in world.status.conditions if c.type == "GatewayReady")
    assert (ready.status, ready.reason) == ("False", "RouteNotAccepted")


@pytest.mark.parametrize(
    ("parents", "accepted"),
    [
        ((), False),
        ((RouteParent("a", True, 7),), True),
        ((RouteParent("a", True, 6),), False),
        ((RouteParent("a", False, 7),), False),
        ((RouteParent("a", True, 7), RouteParent("b", True, 6)), False),
    ],
    ids=["nobody", "this version", "an older version", "refused", "one of two"],
)
def test_every_parent_has_to_accept_this_version(
    parents: tuple[RouteParent, ...], accepted: bool
) -> None:
    assert is_accepted(HttpRoute(generation=7, weights={}, parents=parents)) is accepted
    assert not is_accepted(None)
