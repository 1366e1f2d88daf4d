"""A canary that loses its pods on the way has its deadline from then on, however old its step."""

from tests.builders import a_spec
from tests.rollout.test_scenarios import rollout, serving
from tests.rollout.world import World

STEPS = [{"weight": 50}, {"pause": {}}]
FIELDS = {"steps": STEPS, "progressDeadlineSeconds": 600}


def waiting_for_a_person(seconds: float = 7200) -> tuple[World, str]:
    """A canary at 50 percent whose pause began so long ago."""
    world = serving(**FIELDS)
    canary = world.change(a_spec(k=6, rollout=rollout(**FIELDS)))
    world.until("CanaryPaused")
    world.look(seconds)
    return world, canary


def test_a_pod_deleted_in_a_long_pause_may_come_back() -> None:
    world, canary = waiting_for_a_person()
    world.unready.add(canary)
    for _ in range(5):
        assert not world.look().events
    world.unready.clear()
    world.settle()
    assert world.status.canary is not None
    assert world.status.canary.unready_since is None
    assert world.used[1] == (canary, 50)


def test_one_that_stays_away_is_taken_out_at_the_deadline() -> None:
    world, canary = waiting_for_a_person()
    world.unready.add(canary)
    lost_at = world.now
    world.until("RolledBack", seconds=30)
    assert 600 <= (world.now - lost_at).total_seconds() <= 720
    assert world.status.failed_revisions[0].reason == "ProgressDeadlineExceeded"
    assert "7200" not in world.status.failed_revisions[0].message
