"""A held rollout: no way forward, every way out, and judging goes on."""

import pytest
from tests.builders import a_snapshot, a_spec, a_status, some_words
from tests.rollout.assessments import PROVEN, QUIET, WORSE
from tests.rollout.world import World

from speculative_api.labels import ABORT, PAUSE, PROMOTE
from speculative_operator.rollout.decide import FORWARD, GATES
from speculative_operator.rollout.pausing import is_paused

STEPS = [{"weight": 50}, {"pause": {"durationSeconds": 90}}]
ROLLOUT = {"steps": STEPS, "guard": {"durationSeconds": 30}}
STABLE, CANARY = some_words(4), some_words(6)

SHUT_WHILE_PAUSED = {
    "retry_requested": False,
    "stable_restored": False,
    "first_revision": False,
    "first_revision_failed": False,
    "stable_available": False,
    "idle_woken": False,
    "idle_over": False,
    "group_ended": False,
    "abort_requested": False,
    "canary_superseded": False,
    "canary_cannot_start": False,
    "canary_unhealthy": False,
    "canary_worse": False,
    "canary_late": False,
    "guard_reverted": False,
    "promoted_worse": False,
    "return_finished": False,
    "guard_over": False,
    "holdback_seen": False,
    "zero_changed": False,
    "pause_changed": False,
    "weights_lost": False,
    "steps_changed": False,
    "canary_promoted": True,
    "promoted_in_full": True,
    "step_skipped": True,
    "canary_ready": True,
    "shadow_given": True,
    "weight_given": True,
    "shadow_over": True,
    "pause_over": True,
    "route_left": False,
    "pods_released": False,
    "restart_done": False,
    "restart_stalled": False,
    "drift_forgotten": False,
    "drift_begun": False,
    "recover_requested": False,
    "baseline_measured": False,
    "drift_shown": False,
    "drift_over": False,
    "pods_recycled": False,
    "speculation_disabled": False,
    "speculation_enabled": False,
    "restart_requested": False,
    "preflight_dropped": False,
    "preflight_ended": False,
    "stable_replaced_directly": False,
    "canary_started": False,
    "idle_begun": False,
}


def test_ways_forward_are_shut_and_ways_out_are_open() -> None:
    assert {gate.__name__: gate in FORWARD for gate in GATES} == SHUT_WHILE_PAUSED


@pytest.mark.parametrize(
    "status, named, paused",
    [
        pytest.param(a_status(stable=STABLE, canary=CANARY), CANARY.hash, True, id="this canary"),
        pytest.param(a_status(stable=STABLE, canary=CANARY), STABLE.hash, False, id="stable"),
        pytest.param(a_status(stable=STABLE, canary=CANARY), "", False, id="empty"),
        pytest.param(a_status(stable=STABLE, canary=CANARY), None, False, id="absent"),
        pytest.param(a_status(stable=STABLE), STABLE.hash, False, id="nothing on trial"),
        pytest.param(
            a_status(
                stable=CANARY,
                guard={"revision": 1, "hash": STABLE.hash, "startedAt": "x", "weight": 5},
            ),
            CANARY.hash,
            True,
            id="under guard",
        ),
    ],
)
def test_the_annotation_holds_only_what_it_names(status, named, paused) -> None:
    annotations = {} if named is None else {PAUSE: named}
    assert is_paused(a_snapshot(status=status, annotations=annotations)) is paused


def trying() -> tuple[World, str]:
    world = World(a_spec(k=4, rollout=ROLLOUT))
    world.until("StableReady")
    world.settle()
    canary = world.change(a_spec(k=6, rollout=ROLLOUT))
    world.until("CanaryWeightObserved")
    return world, canary


def progressing(world: World) -> tuple[str, str]:
    found = next(c for c in world.status.conditions if c.type == "Progressing")
    return found.status, found.reason


def test_neither_time_nor_proof_nor_promote_moves_a_held_canary() -> None:
    world, canary = trying()
    world.annotations |= {PAUSE: canary, PROMOTE: f"{canary}/1"}
    world.until("PausedOnRequest", looks=1)
    for assessment in (QUIET, PROVEN):
        world.with_assessment(assessment)
        for _ in range(30):
            world.look(600)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.used[1]) == (1, (canary, 50))
    assert progressing(world) == ("Unknown", "PausedOnRequest")
    assert [event.reason for event in world.events].count("PausedOnRequest") == 1


def test_a_held_canary_gets_no_first_weight() -> None:
    world = World(a_spec(k=4, rollout=ROLLOUT))
    world.until("StableReady")
    canary = world.change(a_spec(k=6, rollout=ROLLOUT))
    world.annotations[PAUSE] = canary
    for _ in range(30):
        world.look(5)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.weight) == (-1, 0)
    assert progressing(world) == ("Unknown", "PausedOnRequest")
    del world.annotations[PAUSE]
    world.until("CanaryWeightObserved")


def test_resumed_it_goes_on_where_it_was() -> None:
    world, canary = trying()
    world.annotations[PAUSE] = canary
    world.look()
    world.annotations[PAUSE] = ""
    world.until("Resumed", looks=1)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.held) == (1, None)
    world.with_assessment(PROVEN).until("Promoted")


@pytest.mark.parametrize("way", ["worse", "abort", "spec"])
def test_a_held_canary_still_ends(way: str) -> None:
    world, canary = trying()
    world.annotations[PAUSE] = canary
    world.look()
    if way == "worse":
        world.with_assessment(WORSE)
    elif way == "abort":
        world.annotations[ABORT] = canary
    else:
        world.change(a_spec(k=4, rollout=ROLLOUT))
    world.look()
    assert world.status.canary is None
    world.until("RevisionRemoved")


def test_a_held_guard_keeps_the_old_revision_until_it_is_resumed() -> None:
    world, canary = trying()
    world.with_assessment(PROVEN).until("Promoted")
    world.annotations[PAUSE] = canary
    world.with_assessment(QUIET)
    for _ in range(20):
        world.look(60)
    assert world.status.guard is not None
    assert progressing(world) == ("True", "PausedOnRequest")
    assert "until `kubectl speculative resume`" in world.status.message
    del world.annotations[PAUSE]
    world.until("GuardOver", looks=2)


def test_a_held_guard_still_goes_back_when_it_turns_bad() -> None:
    world, canary = trying()
    world.with_assessment(PROVEN).until("Promoted")
    world.annotations[PAUSE] = canary
    world.with_assessment(WORSE).until("RolledBack", looks=3)
