"""`gateway.mode: None`: revisions without weights, seen by no gateway."""

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import LOOKS_BAD, NOTHING, SUSPICIOUS, WORSE
from tests.rollout.world import World

from speculative_operator.decision import Assessment

PAUSE_SECONDS = 60
ROLLOUT = {
    "steps": [{"pause": {"durationSeconds": PAUSE_SECONDS}}],
    "guard": {"durationSeconds": 90},
}
WEIGHTED = {**ROLLOUT, "steps": [{"weight": 50}, {"pause": {"durationSeconds": PAUSE_SECONDS}}]}


def trying(rollout: dict[str, object] = ROLLOUT) -> tuple[World, str, str]:
    """A world without a gateway and with a canary of k=6 in its first pause."""
    world = World(a_spec(k=4, gateway={"mode": "None"}, rollout=rollout))
    world.until("StableReady")
    world.settle()
    assert world.status.stable is not None
    stable = world.status.stable.hash
    canary = world.change(a_spec(k=6, gateway={"mode": "None"}, rollout=rollout))
    world.until("CanaryReady")
    return world, stable, canary


def condition(world: World, kind: str) -> tuple[str, str]:
    return next((c.status, c.reason) for c in world.status.conditions if c.type == kind)


def test_a_rollout_of_pauses_ends_promoted_and_never_gives_a_weight() -> None:
    world, stable, canary = trying()
    began = world.now
    world.until("Promoted")
    assert (world.now - began).total_seconds() >= PAUSE_SECONDS
    world.until("GuardOver")
    world.until("RevisionRemoved")
    world.settle()
    assert world.pods == {canary: [True]}
    for decision in world.decisions:
        assert all(share.weight in (0, 100) for share in decision.shares)
        assert all(share.weight == 0 for share in decision.shares[1:])
    assert stable not in world.pods


def test_nobody_waits_for_a_gateway_and_the_condition_says_that_there_is_none() -> None:
    world, _, _ = trying()
    assert condition(world, "GatewayReady") == ("Unknown", "NoGateway")


def test_a_weight_that_nothing_can_give_is_skipped() -> None:
    world, _, canary = trying(WEIGHTED)
    world.until("StepSkipped")
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.weight) == (1, 0)
    world.until("Promoted")
    assert world.status.stable is not None
    assert world.status.stable.hash == canary


def test_figures_of_requests_to_the_canarys_own_service_count() -> None:
    world, stable, canary = trying()
    world.with_assessment(WORSE)
    world.until("RolledBack")
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    assert [entry.hash for entry in world.status.failed_revisions] == [canary]


@pytest.mark.parametrize("assessment", [LOOKS_BAD, SUSPICIOUS], ids=["beyond limit", "evidence"])
def test_time_does_not_promote_what_looks_worse(assessment: Assessment) -> None:
    world, _, _ = trying()
    world.with_assessment(assessment)
    world.until("AnalysisInconclusive")
    world.with_assessment(NOTHING)
    for _ in range(5):
        world.look(600)
    assert world.status.canary is not None


def test_the_old_revision_is_guard_without_users_and_takes_over_again() -> None:
    world, stable, _ = trying()
    world.until("Promoted")
    assert world.status.guard is not None
    assert world.status.guard.weight == 0
    world.with_assessment(WORSE)
    world.until("RolledBack")
    assert world.status.stable is not None
    assert world.status.stable.hash == stable


def test_pods_are_removed_only_after_the_service_had_time_to_be_followed() -> None:
    world, _, canary = trying()
    world.with_assessment(WORSE)
    world.until("RolledBack")
    began = world.now
    world.until("WeightZeroObserved")
    assert (world.now - began).total_seconds() >= 29
    assert canary in world.pods
    world.until("RevisionRemoved")


@pytest.mark.parametrize("stage", ["canary", "guard"])
def test_taking_the_gateway_away_takes_the_weight_away(stage: str) -> None:
    world = World(a_spec(k=4, rollout=WEIGHTED))
    world.until("StableReady")
    world.settle()
    world.change(a_spec(k=6, rollout=WEIGHTED))
    world.until("CanaryWeightObserved")
    if stage == "guard":
        world.spec = a_spec(k=6, rollout={**WEIGHTED, "onInconclusive": "Advance"})
        world.until("Promoted")
    world.spec = a_spec(k=6, rollout=ROLLOUT, gateway={"mode": "None"})
    world.look()
    beside = world.status.canary or world.status.guard
    assert beside is not None
    assert beside.weight == 0
    world.settle()
