"""A request that was acted on, or came too late, does nothing to a later trial of the same hash."""

from tests.rollout.assessments import WORSE
from tests.rollout.test_scenarios import trying

from speculative_api.labels import ABORT, PROMOTE, RETRY


def test_an_aborted_revision_can_be_retried_and_aborted_again() -> None:
    world, _, canary = trying()
    world.annotations[ABORT] = canary
    world.until("Aborted")
    world.until("RevisionRemoved")
    world.annotations[RETRY] = f"{canary}@1"
    world.until("CanaryStarting")
    world.until("CanaryWeightObserved")
    assert world.status.canary is not None
    world.annotations[ABORT] = f"{canary}@2"
    world.until("Aborted", looks=2)


def test_an_old_promote_skips_no_pause_of_the_next_trial() -> None:
    world, _, canary = trying()
    world.annotations[PROMOTE] = f"{canary}/1"
    world.with_assessment(WORSE)
    world.until("RolledBack")
    world.until("RevisionRemoved")
    world.annotations[RETRY] = f"{canary}@1"
    world.until("CanaryStarting")
    world.with_assessment(type(world.assessment)())
    world.until("CanaryWeightObserved")
    assert not any(event.reason == "StepPromoted" for event in world.look().events)
    world.annotations[PROMOTE] = f"{canary}/1@2"
    world.until("StepPromoted", looks=2)
