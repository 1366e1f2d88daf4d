"""What is kept of the old revision after a promotion, and how it takes over again."""

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import QUIET, WORSE
from tests.rollout.test_scenarios import conditions
from tests.rollout.world import World

from speculative_operator.rollout.trial import Trial, trial_of

STEPS = [{"weight": 50}, {"pause": {"durationSeconds": 30}}]


def rollout(keep: str, *, holdback: int = 5) -> dict[str, object]:
    guard = {"durationSeconds": 600, "keep": keep, "holdbackWeight": holdback}
    return {"steps": STEPS, "guard": guard}


def promoted(keep: str, *, replicas: int = 4, holdback: int = 5) -> tuple[World, str, str]:
    """A world whose canary was just promoted; with the old and the new revision's hash."""
    fields = {"replicas": replicas, "rollout": rollout(keep, holdback=holdback)}
    world = World(a_spec(k=4, **fields))
    world.until("StableReady")
    world.settle()
    assert world.status.stable is not None
    old = world.status.stable.hash
    new = world.change(a_spec(k=6, **fields))
    world.with_assessment(QUIET)
    world.until("Promoted")
    return world, old, new


def test_full_keeps_every_pod_and_returns_in_one_look() -> None:
    world, old, new = promoted("Full")
    world.settle()
    assert len(world.pods[old]) == 4
    assert world.used == ((new, 95), (old, 5))
    world.with_assessment(WORSE)
    world.until("RolledBack", looks=1)
    assert world.status.stable is not None
    assert world.status.stable.hash == old
    assert world.decisions[-1].shares[0].weight == 100


def test_one_keeps_one_pod_once_every_gateway_has_turned() -> None:
    world, old, new = promoted("One")
    assert len(world.pods[old]) == 4
    world.until("HoldbackObserved", looks=5)
    assert world.used == ((new, 95), (old, 5))
    world.settle()
    assert len(world.pods[old]) == 1
    assert len(world.pods[new]) == 4
    assert conditions(world)["Progressing"] == ("True", "Guarding")
    assert trial_of(world.status) == Trial(new, old, trial_of(world.status).identity)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("replicas", "weight"),
    [(1, 20), (4, 20), (5, 20), (6, 16), (50, 2), (100, 1), (101, 0)],
)
def test_one_pod_holds_back_no_more_than_it_carries(replicas: int, weight: int) -> None:
    world, old, _ = promoted("One", replicas=replicas, holdback=20)
    world.settle()
    assert world.used[1] == (old, weight)


def test_one_pod_gets_less_when_there_are_more_pods_meanwhile() -> None:
    world, old, _ = promoted("One", replicas=4, holdback=20)
    world.settle()
    k6 = a_spec(k=6, replicas=10, rollout=rollout("One", holdback=20))
    world.change(k6)
    world.settle()
    assert world.used[1] == (old, 10)
    assert len(world.pods[old]) == 1


def test_one_returns_as_its_pods_become_ready() -> None:
    world, old, new = promoted("One")
    world.until("HoldbackObserved")
    world.settle()
    world.with_assessment(WORSE)
    world.until("RolledBack", looks=1)
    assert world.status.stable is not None
    assert world.status.stable.hash == new, "it has the pods until the old one has them"
    assert [entry.hash for entry in world.status.failed_revisions] == [new]
    assert conditions(world)["Progressing"] == ("True", "Returning")
    assert "takes over again" in world.status.message
    world.unready.add(old)
    for _ in range(5):
        world.look()
    world.unready.clear()
    carried = []
    while world.status.guard is not None:
        decision = world.look()
        shares = {share.hash: share.weight for share in decision.shares}
        carried.append(shares[old])
        assert shares[old] <= 100 * sum(world.pods[old]) // 4
    assert "ReturnFinished" in {event.reason for event in world.events}
    world.settle()
    assert world.status.stable.hash == old
    assert list(world.pods) == [old, new]
    assert world.pods[new] == [], "failed, kept empty while the spec names it"
    assert world.used == ((old, 100),)
    assert len([event for event in world.events if event.reason == "RolledBack"]) == 1


def test_none_takes_the_old_revision_out_and_judges_by_absolute_bounds() -> None:
    world, old, new = promoted("None")
    world.settle()
    assert old not in world.pods
    assert world.used == ((new, 100),)
    assert world.status.guard is not None
    assert conditions(world)["Progressing"] == ("True", "AnalysisAbsoluteOnly")
    assert "only absolute bounds are judged" in world.status.message
    trial = trial_of(world.status)
    assert trial is not None
    assert (trial.candidate, trial.control) == (new, "")
    world.until("GuardOver", looks=50, seconds=30)
    world.settle()
    assert conditions(world)["Progressing"] == ("True", "Complete")


def test_none_starts_the_old_revision_anew_to_return() -> None:
    world, old, new = promoted("None")
    world.settle()
    world.with_assessment(WORSE)
    world.until("RolledBack", looks=1)
    world.with_assessment(QUIET)
    assert world.status.stable is not None
    assert world.decisions[-1].shares[0].hash == new
    world.until("ReturnFinished", looks=10)
    world.settle()
    assert world.status.stable.hash == old
    assert world.pods[old] == [True] * 4


def test_a_return_finds_the_pods_that_are_still_on_their_way_out() -> None:
    world, old, _ = promoted("None")
    world.active[old] = 3
    world.settle()
    assert len(world.pods[old]) == 4
    world.with_assessment(WORSE)
    world.until("RolledBack", looks=1)
    assert not world.status.retiring or old not in {e.hash for e in world.status.retiring}
    assert len(world.pods[old]) == 4


def test_back_to_the_old_words_returns_without_a_failure() -> None:
    world, old, _ = promoted("One")
    world.settle()
    world.change(a_spec(k=4, replicas=4, rollout=rollout("One")))
    world.until("ReturnFinished", looks=10)
    assert world.status.stable is not None
    assert world.status.stable.hash == old
    assert world.status.failed_revisions == []


def test_a_status_of_before_means_full() -> None:
    world, old, _ = promoted("Full")
    assert world.status.guard is not None
    stored = world.status.guard.model_dump(by_alias=True)
    del stored["keep"]
    assert type(world.status.guard).model_validate(stored).keep == "Full"
    assert len(world.pods[old]) == 4
