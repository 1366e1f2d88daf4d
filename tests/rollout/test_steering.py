"""The short ways forward: all steps, or one, waived by a person, and nobody else's."""

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import NOTHING, QUIET, WORSE
from tests.rollout.world import World

from speculative_api.labels import PAUSE, PROMOTE, RETRY

STEPS = [{"weight": 20}, {"pause": {}}, {"weight": 60}, {"pause": {"durationSeconds": 90}}]
ROLLOUT = {"steps": STEPS, "guard": {"durationSeconds": 30}}


def trying(until: str = "CanaryWeightObserved") -> tuple[World, str]:
    world = World(a_spec(k=4, replicas=3, rollout=ROLLOUT))
    world.until("StableReady")
    world.settle()
    canary = world.change(a_spec(k=6, replicas=3, rollout=ROLLOUT))
    world.until(until)
    return world, canary


def step(world: World) -> int:
    assert world.status.canary is not None
    return world.status.canary.step


def test_in_full_goes_to_promotion_with_stables_capacity_and_guard() -> None:
    world, canary = trying()
    world.annotations[PROMOTE] = f"{canary}/full@a"
    said = world.until("PromotedInFull", looks=1).message
    assert "steps 2 to 4 of 4 are skipped" in said
    assert world.pods[canary] == [True, False, False], "promoted before its pods are there?"
    world.with_assessment(NOTHING).until("Promoted")
    assert world.pods[canary] == [True, True, True]
    assert world.status.guard is not None


def test_in_full_before_it_is_ready_waits_for_the_pods() -> None:
    world, canary = trying(until="CanaryStarting")
    world.unready.add(canary)
    world.annotations[PROMOTE] = f"{canary}/full"
    for _ in range(5):
        world.look()
    assert step(world) == -1
    world.unready.clear()
    world.until("PromotedInFull")
    assert [e.reason for e in world.events][-2:] == ["CanaryReady", "PromotedInFull"]


def test_in_full_does_not_promote_what_is_worse() -> None:
    world, canary = trying()
    world.annotations[PROMOTE] = f"{canary}/full"
    world.with_assessment(WORSE).until("RolledBack", looks=1)
    assert world.status.stable is not None
    assert world.status.stable.hash != canary


@pytest.mark.parametrize("waiting_in", [0, 1, 3])
def test_a_skip_goes_past_one_step_of_any_kind_and_no_further(waiting_in: int) -> None:
    world, canary = trying(until="CanaryReady")
    world.silent = waiting_in == 0
    world.with_assessment(QUIET)
    world.annotations[PROMOTE] = f"{canary}/1"
    for _ in range(10):
        if step(world) == waiting_in:
            break
        world.look()
    before = world.status.canary
    assert before is not None
    world.annotations[PROMOTE] = f"{canary}/{waiting_in}/skip"
    assert f"step {waiting_in + 1} of 4" in world.until("StepSkipped", looks=1).message
    after = world.status.canary
    assert after is not None
    assert (after.step, after.weight) == (waiting_in + 1, before.weight)
    assert sum(e.reason == "StepSkipped" for e in world.events) == 1


@pytest.mark.parametrize(
    "value",
    ["{stable}/full", "full", "{canary}", "{canary}/0/skip", "{canary}/2/skip", "{canary}/full/x"],
)
def test_what_names_another_revision_or_step_moves_nothing(value: str) -> None:
    world, canary = trying()
    assert world.status.stable is not None
    assert step(world) == 1
    world.annotations[PROMOTE] = value.format(stable=world.status.stable.hash, canary=canary)
    for _ in range(10):
        world.look(30)
    assert step(world) == 1


@pytest.mark.parametrize("way", ["full", "1/skip"])
def test_a_held_canary_is_neither_skipped_nor_promoted(way: str) -> None:
    world, canary = trying()
    world.annotations |= {PAUSE: canary, PROMOTE: f"{canary}/{way}"}
    for _ in range(10):
        world.look(30)
    assert step(world) == 1
    del world.annotations[PAUSE]
    world.until("PromotedInFull" if way == "full" else "StepSkipped", looks=2)


def test_the_request_of_a_former_trial_does_not_promote_the_next() -> None:
    world, canary = trying()
    world.annotations[PROMOTE] = f"{canary}/full"
    world.with_assessment(WORSE).until("RevisionRemoved")
    world.annotations[RETRY] = f"{canary}@again"
    world.with_assessment(QUIET).until("CanaryWeightObserved")
    for _ in range(10):
        world.look(30)
    assert step(world) == 1
