"""A resource that is scaled to 0 in the middle of a rollout, and what is edited while one rests."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import PROVEN, QUIET
from tests.rollout.cluster_world import ClusterWorld
from tests.rollout.test_capacity import DYNAMIC, IN_PLACE, promote, rollout, scaled, trying

from speculative_api.labels import ABORT, PAUSE, PROMOTE

ALL_MODES = pytest.mark.parametrize(
    "mode", [{}, DYNAMIC, IN_PLACE], ids=["surge", "dynamic", "in place"]
)
HOUR = 3600.0


def progressing(world: ClusterWorld) -> tuple[str, str]:
    found = next(c for c in world.status.conditions if c.type == "Progressing")
    return found.status, found.reason


def scale(world: ClusterWorld, mode: Mapping[str, Any], replicas: int, **fields: Any) -> None:
    world.change(a_spec(k=6, replicas=replicas, rollout=rollout(mode, **fields)))


@ALL_MODES
def test_at_zero_no_pod_is_kept_and_nothing_moves(mode: Mapping[str, Any]) -> None:
    world, stable, canary = trying(mode)
    scale(world, mode, 0)
    world.annotations[PROMOTE] = f"{canary}/full"
    world.with_assessment(PROVEN)
    for _ in range(5):
        world.look(HOUR)
    assert scaled(world) == {stable: 0, canary: 0}
    assert progressing(world) == ("Unknown", "ScaledToZero")
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.failed_revisions) == (1, [])
    assert [event.reason for event in world.events].count("ScaledToZero") == 1
    del world.annotations[PROMOTE]
    scale(world, mode, 4)
    world.with_assessment(QUIET).until("CanaryPaused", looks=40)
    world.settle(8)
    assert world.used == ((stable, 80), (canary, 20))
    assert sum(scaled(world).values()) == (4 if mode is IN_PLACE else 5)


@pytest.mark.parametrize("paused", [False, True])
def test_a_canary_that_still_loads_has_its_whole_deadline_again(paused: bool) -> None:
    world = ClusterWorld(a_spec(k=4, replicas=4, rollout=rollout({})), loading=1)
    world.until("StableReady")
    world.loading = 20
    scale(world, {}, 4)
    world.until("CanaryStarting")
    if paused:
        world.annotations[PAUSE] = world.snapshot().words.hash
    scale(world, {}, 0)
    world.settle(5, HOUR)
    assert progressing(world)[1] == "ScaledToZero"
    scale(world, {}, 4)
    world.annotations.clear()
    world.until("CanaryReady", looks=60, seconds=10)
    assert world.status.failed_revisions == []


@pytest.mark.parametrize("way", ["abort", "back"])
def test_at_zero_the_ways_out_are_open(way: str) -> None:
    world, stable, canary = trying({})
    scale(world, {}, 0)
    world.settle(3)
    if way == "abort":
        world.annotations[ABORT] = canary
    else:
        world.change(a_spec(k=4, replicas=0, rollout=rollout({})))
    world.settle()
    assert world.status.canary is None
    assert scaled(world) == ({stable: 0, canary: 0} if way == "abort" else {stable: 0})


@ALL_MODES
def test_fewer_steps_while_held_bring_it_no_further(mode: Mapping[str, Any]) -> None:
    """Its index is past the new ones: that would be promotion, with all pods and traffic."""
    world, stable, canary = trying(mode)
    promote(world, canary)
    world.until("CanaryPaused", looks=60)
    world.annotations = {PAUSE: canary}
    world.settle(5)
    before, had = world.used, scaled(world)[canary]
    scale(world, mode, 4, steps=[{"weight": 5}, {"pause": {}}])
    world.settle(20)
    assert (world.used, scaled(world)[canary]) == (before, had)
    assert progressing(world) == ("Unknown", "PausedOnRequest")
    assert [event.reason for event in world.events].count("PausedOnRequest") == 1
    del world.annotations[PAUSE]
    world.until("CanaryPaused", looks=60)
    world.settle()
    # In place a pod is the least that can have a share.
    assert dict(world.used)[canary] == 5
    assert world.status.stable is not None
    assert world.status.stable.hash == stable


def test_in_place_from_now_on_takes_no_pod_from_who_was_promoted_beside_a_whole_guard() -> None:
    world, stable, canary = trying({})
    world.annotations[PROMOTE] = f"{canary}/full"
    world.until("Promoted", looks=60)
    world.settle(3)
    scale(world, IN_PLACE, 4, guard={"durationSeconds": 60, "keep": "One"})
    for _ in range(40):
        world.look(5)
        assert scaled(world)[canary] == 4
    assert world.used == ((canary, 100),)
    assert stable not in scaled(world)
