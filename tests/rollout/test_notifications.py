"""What receivers are to be told of, as part of the status of its transition."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import PROVEN, QUIET, WORSE
from tests.rollout.world import World

from speculative_api.labels import ABORT, PAUSE
from speculative_operator.notifications import LONGEST_QUEUE, with_pending
from speculative_operator.rollout.decide import decide

STEPS = [{"weight": 50}, {"pause": {"durationSeconds": 90}}, {"pause": {}}]


class Told(World):
    """A world whose passes note what receivers are to be told of."""

    def look(self, seconds: float = 1.0) -> Any:
        snapshot = self.snapshot()
        noted = with_pending(snapshot, decide(snapshot, self.assessment), told=())
        decision = super().look(seconds)
        assert noted.status.model_copy(update={"pending_notifications": []}) == (
            decision.status.model_copy(update={"pending_notifications": []})
        )
        self.status = noted.status
        return noted


def spec(k: int, events: list[str] | None = None, *, receivers: int = 1) -> Any:
    one: dict[str, Any] = {"urlSecret": {"name": "hook"}}
    one |= {"events": events} if events is not None else {}
    rollout = {"steps": STEPS, "guard": {"durationSeconds": 30}, "notifications": [one] * receivers}
    return a_spec(k=k, rollout=rollout)


def trying(events: list[str] | None = None, *, receivers: int = 1) -> tuple[Told, str]:
    world = Told(spec(4, events, receivers=receivers))
    world.until("StableReady")
    canary = world.change(spec(6, events, receivers=receivers))
    world.with_assessment(QUIET).until("CanaryWeightObserved")
    return world, canary


def told(world: Told) -> list[tuple[str, str]]:
    return [(item.event, item.hash) for item in world.status.pending_notifications]


def test_a_whole_rollout_is_told_in_order_and_each_once() -> None:
    world, canary = trying(receivers=2)
    world.with_assessment(PROVEN).until("CanaryPaused")
    world.annotations["speculative.dev/promote"] = f"{canary}/2"
    world.until("GuardOver")
    assert told(world) == [("Started", canary), ("Paused", canary), ("Promoted", canary)]
    assert len({item.id for item in world.status.pending_notifications}) == 3


@pytest.mark.parametrize("way", ["worse", "abort", "guard"])
def test_every_way_out_is_told_as_rolled_back(way: str) -> None:
    world, canary = trying()
    if way == "guard":
        world.with_assessment(PROVEN).until("CanaryPaused")
        world.annotations["speculative.dev/promote"] = f"{canary}/2"
        world.until("Promoted")
    if way == "abort":
        world.annotations[ABORT] = canary
    else:
        world.with_assessment(WORSE)
    world.until("RevisionRemoved")
    assert told(world)[-1] == ("RolledBack", canary)
    assert [event for event, _ in told(world)].count("RolledBack") == 1


def test_a_hold_by_a_person_is_a_pause_and_its_end_is_none() -> None:
    world, canary = trying()
    world.annotations[PAUSE] = canary
    world.until("PausedOnRequest")
    del world.annotations[PAUSE]
    world.until("Resumed")
    assert told(world) == [("Started", canary), ("Paused", canary)]


def test_only_what_a_receiver_wants_is_noted() -> None:
    world, canary = trying(["RolledBack"])
    assert told(world) == []
    world.with_assessment(WORSE).until("RolledBack")
    assert told(world) == [("RolledBack", canary)]


def test_without_receivers_nothing_is_noted_and_what_waits_is_dropped() -> None:
    world, _ = trying()
    assert told(world)
    rollout = world.spec.rollout.model_copy(update={"notifications": []})
    world.spec = world.spec.model_copy(update={"rollout": rollout})
    world.look()
    assert told(world) == []


def test_what_was_told_leaves_and_the_rest_stays() -> None:
    world, _ = trying()
    world.with_assessment(WORSE).until("RolledBack")
    snapshot = world.snapshot()
    first, second = snapshot.status.pending_notifications
    after = with_pending(snapshot, decide(snapshot), told={first.id})
    assert after.status.pending_notifications == [second]


def test_the_newest_are_kept_when_nobody_listens() -> None:
    world, _ = trying()
    snapshot = world.snapshot()
    (item,) = snapshot.status.pending_notifications
    many = [item.model_copy(update={"id": str(number)}) for number in range(LONGEST_QUEUE)]
    status = snapshot.status.model_copy(update={"pending_notifications": many})
    full = replace(snapshot, status=status)
    after = with_pending(full, decide(full, WORSE), told=())
    ids = [found.id for found in after.status.pending_notifications]
    assert ids[:-1] == [str(number) for number in range(1, LONGEST_QUEUE)]
    assert ids[-1].endswith("-RolledBack")
