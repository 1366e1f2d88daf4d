"""A flapping deployment is parked: so many rollbacks per hour and no more."""

import pytest
from tests.builders import a_record, a_snapshot, a_spec, a_status, some_words, stamp
from tests.rollout.assessments import QUIET, WORSE
from tests.rollout.world import World

from speculative_api.labels import ABORT, RETRY
from speculative_operator.rollout.cap import parked

STEPS = [{"weight": 50}, {"pause": {"durationSeconds": 90}}]
STABLE, WANTED = some_words(4), some_words(6)
CAP = {"steps": STEPS, "maxRollbacksPerHour": 2}


def spec(k: int, **rollout: object):
    return a_spec(k=k, rollout=CAP | rollout)


def failures(*ages: float, reason: str = "AcceptanceWorse") -> list[dict[str, str]]:
    return [
        {"hash": f"{number:010d}", "reason": reason, "at": stamp(age)}
        for number, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    "cap, found, until",
    [
        pytest.param(2, failures(), None, id="none failed"),
        pytest.param(2, failures(60), None, id="below the cap"),
        pytest.param(2, failures(900, 60), 900, id="at the cap"),
        pytest.param(2, failures(3000, 900, 60), 900, id="above the cap"),
        pytest.param(2, failures(3600, 60), None, id="one is an hour old"),
        pytest.param(2, failures(900, 60, reason="Aborted"), None, id="aborted by a person"),
        pytest.param(0, failures(*range(0, 320, 10)), None, id="no cap"),
    ],
)
def test_who_waits_and_until_when(cap, found, until):
    world = a_snapshot(
        spec(6, maxRollbacksPerHour=cap),
        status=a_status(stable=STABLE, failedRevisions=found),
        revisions=[a_record(STABLE)],
    )
    waits = parked(world)
    assert (waits is None) == (until is None)
    if waits is not None and until is not None:
        assert waits.hash == WANTED.hash
        assert (waits.until - world.now).total_seconds() == 3600 - until


def roll_back(world: World, k: int) -> None:
    world.change(spec(k))
    world.until("CanaryWeightObserved")
    world.with_assessment(WORSE)
    world.until("RolledBack")
    world.until("RevisionRemoved")
    world.with_assessment(QUIET)


def capped() -> World:
    """H26 c: two revisions failed within minutes."""
    world = World(spec(4))
    world.until("StableReady")
    for k in (5, 6):
        roll_back(world, k)
    return world


def progressing(world: World) -> tuple[str, str]:
    found = next(c for c in world.status.conditions if c.type == "Progressing")
    return found.reason, found.message


def test_the_third_and_later_are_parked_with_a_reason_and_no_new_events():
    world = capped()
    events = list(world.events)
    for k in (7, 8, 9):
        world.change(spec(k))
        for _ in range(20):
            world.look(5)
        reason, message = progressing(world)
        assert reason == "RollbacksCapped"
        assert message.startswith("2 revisions failed within the hour (maxRollbacksPerHour 2)")
        assert world.status.canary is None
    assert world.events == events
    assert len(world.status.failed_revisions) == 2


def test_a_parked_revision_is_tried_when_the_hour_is_over():
    world = capped()
    parked_hash = world.change(spec(7))
    for _ in range(5):
        world.look(60)
    assert world.status.canary is None
    world.look(3600)
    world.until("CanaryStarting", looks=2)
    assert world.status.canary is not None
    assert world.status.canary.hash == parked_hash


def test_a_retry_of_a_failed_one_lets_the_parked_one_go():
    world = capped()
    world.change(spec(7))
    world.settle()
    failed = world.status.failed_revisions[0].hash
    world.annotations[RETRY] = f"{failed}@1"
    world.until("CanaryStarting", looks=3)


def test_what_a_person_aborts_parks_nothing():
    world = World(spec(4))
    world.until("StableReady")
    for k in (5, 6, 7):
        canary = world.change(spec(k))
        world.until("CanaryWeightObserved")
        world.annotations[ABORT] = canary
        world.until("RevisionRemoved")
    assert len(world.status.failed_revisions) == 3
    world.change(spec(8))
    world.until("CanaryStarting", looks=3)


def test_going_back_to_stable_while_parked_is_complete():
    world = capped()
    world.change(spec(7))
    world.settle()
    world.change(spec(4))
    world.settle()
    assert progressing(world)[0] == "Complete"
