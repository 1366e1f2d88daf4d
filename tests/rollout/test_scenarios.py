"""Whole rollouts in a small pure world: what happens, in which order, with which memory."""

from dataclasses import replace

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import (
    ALL_FAILED,
    FEW,
    LOOKS_BAD,
    NOTHING,
    PROVEN,
    QUIET,
    SUSPICIOUS,
    UNKNOWN,
    WORSE,
)
from tests.rollout.world import World

from speculative_api.labels import ABORT, PROMOTE, RETRY
from speculative_api.worker import Termination

PAUSE_SECONDS = 90
STEPS = [{"weight": 50}, {"pause": {"durationSeconds": PAUSE_SECONDS}}]


def rollout(**fields: object) -> dict[str, object]:
    return {"steps": STEPS, "guard": {"durationSeconds": 30}, **fields}


def serving(**fields: object) -> World:
    """A world with an available first revision of k=4."""
    world = World(a_spec(k=4, rollout=rollout(**fields)))
    world.until("StableReady")
    world.settle()
    return world


def trying(**fields: object) -> tuple[World, str, str]:
    """A world with a canary of k=6 at 50 percent; returns it with stable's and canary's hash."""
    world = serving(**fields)
    assert world.status.stable is not None
    stable = world.status.stable.hash
    canary = world.change(a_spec(k=6, rollout=rollout(**fields)))
    world.until("CanaryWeightObserved")
    return world, stable, canary


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in world.status.conditions}


def test_first_revision_becomes_stable_without_a_trial() -> None:
    world = serving()
    assert world.status.stable is not None
    assert world.status.canary is None
    assert world.used == ((world.status.stable.hash, 100),)
    assert conditions(world)["Available"] == ("True", "StableReady")
    assert conditions(world)["Progressing"] == ("True", "Complete")


def test_settled_world_makes_no_transition() -> None:
    world = serving()
    before = world.status
    decision = world.look()
    assert not decision.transition
    assert decision.status == before


def test_worse_canary_is_rolled_back_in_order_and_remembered() -> None:
    world, stable, canary = trying()
    world.with_assessment(WORSE)
    event = world.until("RolledBack")
    assert "AcceptanceWorse" in event.message
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    world.assessment = QUIET
    assert world.until("WeightZeroObserved")
    assert canary in world.pods
    world.until("RevisionRemoved")
    world.settle()
    assert world.pods == {stable: [True], canary: []}
    assert [entry.hash for entry in world.status.failed_revisions] == [canary]
    assert conditions(world)["Progressing"] == ("False", "RolledBack")
    assert world.used == ((stable, 100),)


def test_failed_revision_is_not_tried_again_until_retry() -> None:
    world, _, canary = trying()
    world.with_assessment(WORSE)
    world.until("RevisionRemoved")
    world.settle()
    assert world.status.canary is None
    world.assessment = QUIET
    world.annotations[RETRY] = f"{canary}@1"
    world.until("CanaryStarting")
    assert world.status.canary is not None
    assert world.status.canary.hash == canary
    assert world.status.observed_retry == f"{canary}@1"


def test_retry_of_one_value_is_acted_on_once() -> None:
    world, _, canary = trying()
    world.annotations[RETRY] = f"{canary}@1"
    world.until("RetryRequested")
    world.with_assessment(WORSE)
    world.until("RevisionRemoved")
    world.settle()
    assert world.status.canary is None
    assert [entry.hash for entry in world.status.failed_revisions] == [canary]


def test_proof_advances_before_time() -> None:
    world, _, canary = trying()
    started = world.now
    world.with_assessment(PROVEN)
    event = world.until("Promoted")
    assert "every metric shows 'not worse'" in event.message
    assert (world.now - started).total_seconds() < 60
    assert world.status.stable is not None
    assert world.status.stable.hash == canary


def test_time_advances_when_nothing_points_to_worse_and_does_not_call_it_proof() -> None:
    world, _, _ = trying()
    world.with_assessment(QUIET)
    event = world.until("Promoted")
    assert "nothing points to worse" in event.message
    assert "not worse'" not in event.message


@pytest.mark.parametrize(
    "assessment",
    [NOTHING, FEW, SUSPICIOUS, LOOKS_BAD, UNKNOWN],
    ids=[
        "no data",
        "few requests",
        "points to worse",
        "figures beyond the limit",
        "a source is away",
    ],
)
def test_inconclusive_canary_waits_for_a_person_once(assessment: object) -> None:
    world, _, canary = trying()
    world.assessment = assessment  # type: ignore[assignment]
    world.until("AnalysisInconclusive")
    for _ in range(20):
        world.look(60)
    told = [event for event in world.events if event.reason == "AnalysisInconclusive"]
    assert len(told) == 1
    assert world.status.canary is not None
    assert world.status.canary.weight == 50
    assert conditions(world)["Progressing"] == ("Unknown", "AnalysisInconclusive")
    world.annotations[PROMOTE] = f"{canary}/1"
    world.until("Promoted")


def test_canary_held_for_lack_of_evidence_is_still_rolled_back_or_proven() -> None:
    world, stable, canary = trying()
    world.with_assessment(LOOKS_BAD)
    world.until("AnalysisInconclusive")
    world.with_assessment(WORSE)
    world.until("RolledBack", looks=2)
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    world, _, canary = trying()
    world.with_assessment(LOOKS_BAD)
    world.until("AnalysisInconclusive")
    world.with_assessment(PROVEN)
    world.until("Promoted")
    assert world.status.stable is not None
    assert world.status.stable.hash == canary


def test_a_canary_that_looks_better_later_gets_its_whole_time_again() -> None:
    world, _, canary = trying()
    world.with_assessment(LOOKS_BAD)
    world.until("AnalysisInconclusive")
    world.with_assessment(QUIET)
    world.until("AnalysisResumed", looks=2)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.held) == (1, None)
    began = world.now
    world.until("Promoted")
    assert (world.now - began).total_seconds() >= PAUSE_SECONDS
    assert world.status.stable is not None
    assert world.status.stable.hash == canary


def test_a_canary_without_data_stays_held_also_when_it_had_some() -> None:
    world, _, _ = trying()
    world.until("AnalysisInconclusive")
    for assessment in (FEW, NOTHING, SUSPICIOUS, LOOKS_BAD, UNKNOWN):
        world.with_assessment(assessment)
        for _ in range(5):
            world.look(600)
        assert world.status.canary is not None
        assert (world.status.canary.step, world.status.canary.weight) == (1, 50)
        assert world.status.canary.held == "AnalysisInconclusive"


def test_inconclusive_aborts_or_advances_when_told_so() -> None:
    world, stable, _ = trying(onInconclusive="Abort")
    world.until("Aborted")
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    world, _, canary = trying(onInconclusive="Advance")
    world.until("Promoted")
    assert world.status.stable is not None
    assert world.status.stable.hash == canary


def test_no_data_never_advances_an_open_pause() -> None:
    steps = [{"weight": 20}, {"pause": {}}, {"weight": 50}, {"pause": {}}]
    world, _, canary = trying(steps=steps)
    for _ in range(50):
        world.look(600)
    assert world.status.canary is not None
    assert (world.status.canary.weight, world.status.canary.step) == (20, 1)
    world.annotations[PROMOTE] = f"{canary}/1"
    for _ in range(50):
        world.look(600)
    assert world.status.canary is not None
    assert (world.status.canary.weight, world.status.canary.step) == (50, 3)


def test_promotion_keeps_the_pods_and_guards_with_the_old_revision() -> None:
    world, stable, canary = trying()
    world.with_assessment(PROVEN)
    world.until("Promoted")
    world.look()
    world.look()
    assert world.used == ((canary, 95), (stable, 5))
    assert world.pods == {canary: [True], stable: [True]}
    world.assessment = QUIET
    world.until("GuardOver")
    world.until("RevisionRemoved")
    world.settle()
    assert world.pods == {canary: [True]}
    assert conditions(world)["Progressing"] == ("True", "Complete")


def test_promoted_revision_that_turns_bad_goes_back_to_the_kept_one() -> None:
    world, stable, canary = trying()
    world.with_assessment(PROVEN)
    world.until("Promoted")
    world.with_assessment(WORSE)
    world.until("RolledBack")
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    assert [entry.hash for entry in world.status.failed_revisions] == [canary]


def test_spec_back_to_the_kept_revision_returns_at_once_without_blame() -> None:
    world, stable, _ = trying()
    world.with_assessment(PROVEN)
    world.until("Promoted")
    world.change(a_spec(k=4, rollout=rollout()))
    world.until("RolledBack", looks=2)
    assert world.status.stable is not None
    assert world.status.stable.hash == stable
    assert world.status.failed_revisions == []


def test_spec_back_to_stable_ends_the_trial_without_blame() -> None:
    world, stable, _ = trying()
    world.change(a_spec(k=4, rollout=rollout()))
    world.until("Superseded", looks=2)
    world.until("RevisionRemoved")
    world.settle()
    assert world.pods == {stable: [True]}
    assert world.status.failed_revisions == []


def test_third_spec_replaces_the_canary_after_it_was_removed() -> None:
    world, _, canary = trying()
    third = world.change(a_spec(k=2, rollout=rollout()))
    world.until("RevisionRemoved")
    assert canary not in {scale.hash for scale in world.look().scales}
    world.until("CanaryWeightObserved")
    assert world.status.canary is not None
    assert world.status.canary.hash == third


def test_abort_names_the_canary_it_is_for() -> None:
    world, _, canary = trying()
    world.annotations[ABORT] = "0123456789"
    assert not world.look().events
    world.annotations[ABORT] = canary
    world.until("Aborted", looks=2)
    assert world.status.failed_revisions[0].hash == canary


def test_canary_that_can_never_start_fails_the_revision_with_its_reason() -> None:
    world = serving()
    canary = world.change(a_spec(k=9, rollout=rollout()))
    world.ends[canary] = Termination(
        reason="VocabularyMismatch", retryable=False, detail="49152 against 32000 tokens"
    )
    event = world.until("RolledBack")
    assert "VocabularyMismatch" in event.message
    world.settle()
    assert world.pods[canary] == []
    assert len([e for e in world.events if e.reason == "RolledBack"]) == 1
    assert conditions(world)["Available"] == ("True", "StableReady")


def test_first_revision_that_can_never_start_is_scaled_to_zero_and_a_fix_replaces_it() -> None:
    world = World(a_spec(k=4))
    assert world.look().shares
    first = world.snapshot().words.hash
    world.ends[first] = Termination(reason="ModelNotFound", retryable=False, detail="no weights")
    world.until("ModelNotFound")
    world.settle()
    assert world.pods[first] == []
    assert conditions(world)["Available"] == ("False", "FirstRevisionFailed")
    second = world.change(a_spec(k=5))
    world.until("StableReady")
    world.settle()
    assert world.status.stable is not None
    assert world.status.stable.hash == second
    assert list(world.pods) == [second]


def test_retryable_end_is_not_a_failure_of_the_revision() -> None:
    world = World(a_spec(k=4))
    world.look()
    first = world.snapshot().words.hash
    world.ends[first] = Termination(reason="HubUnreachable", retryable=True, detail="timeout")
    world.settle()
    assert world.status.failed_revisions == []
    assert world.pods[first] == [False]


def test_canary_that_never_gets_ready_is_taken_out_at_its_deadline() -> None:
    world = serving(progressDeadlineSeconds=600)
    canary = world.change(a_spec(k=6, rollout=rollout(progressDeadlineSeconds=600)))
    world.unready.add(canary)
    world.until("RolledBack", seconds=30)
    assert world.status.failed_revisions[0].reason == "ProgressDeadlineExceeded"
    assert world.used[0][1] == 100


def test_a_dry_run_neither_ends_nor_holds_a_rollout() -> None:
    world, _, canary = trying()
    shown = replace(WORSE.metrics[0], dry_run=True)
    world.with_assessment(replace(QUIET, metrics=(*QUIET.metrics, shown)))
    world.until("Promoted")
    assert world.status.stable is not None
    assert world.status.stable.hash == canary
    assert world.status.failed_revisions == []


def test_a_dry_run_alone_proves_nothing() -> None:
    world, _, _ = trying()
    shown = replace(PROVEN.metrics[0], dry_run=True)
    world.with_assessment(replace(PROVEN, metrics=(shown,)))
    world.until("AnalysisInconclusive")
    assert world.status.canary is not None


def test_all_first_requests_failing_is_a_catastrophe() -> None:
    world, _, _ = trying()
    world.with_assessment(ALL_FAILED)
    world.until("RolledBack", looks=2)
    assert world.status.failed_revisions[0].reason == "CanaryUnhealthy"


def test_weight_goes_to_stable_while_the_canary_has_no_ready_pod() -> None:
    world, stable, canary = trying()
    world.unready.add(canary)
    world.look()
    world.look()
    world.look()
    assert world.used == ((stable, 100), (canary, 0))
    assert world.status.canary is not None


def test_streams_are_waited_for_before_a_cluster_is_removed() -> None:
    world, _, canary = trying()
    world.active[canary] = 3
    world.with_assessment(WORSE)
    world.until("RolledBack")
    for _ in range(20):
        world.look()
    assert world.status.retiring[0].route_removed_at is None
    assert world.pods[canary] == [True]
    world.active[canary] = 0
    world.until("WeightZeroObserved", looks=2)


def test_streams_longer_than_the_drain_time_do_not_block_for_ever() -> None:
    world, _, canary = trying()
    world.active[canary] = 3
    world.with_assessment(WORSE)
    world.until("RolledBack")
    event = world.until("WeightZeroObserved", looks=20, seconds=10)
    assert "3 requests in flight" in event.message


def test_refused_spec_changes_nothing_that_runs() -> None:
    world = serving()
    assert world.status.stable is not None
    stable = world.status.stable.hash
    world.change(a_spec(k=7, rollout=rollout()))
    world.findings = ("spec.engine.extraArgs: --speculative-config is set twice",)
    for _ in range(5):
        assert not world.look().transition
    assert world.pods == {stable: [True]}
    assert conditions(world)["Accepted"] == ("False", "InvalidSpec")
    assert conditions(world)["Available"] == ("True", "StableReady")


def test_canary_grows_with_its_weight_and_to_all_before_promotion() -> None:
    steps = [{"weight": 10}, {"pause": {}}, {"weight": 50}, {"pause": {}}]
    fields = {"replicas": 4, "rollout": rollout(steps=steps)}
    world = World(a_spec(k=4, **fields))
    world.until("StableReady")
    world.settle()
    canary = world.change(a_spec(k=6, **fields))
    world.until("CanaryWeightObserved")
    assert len(world.pods[canary]) == 1
    world.annotations[PROMOTE] = f"{canary}/1"
    world.until("CanaryWeightObserved")
    assert world.pods[canary] == [True, True]
    assert world.used[1] == (canary, 50)
    world.annotations[PROMOTE] = f"{canary}/3"
    world.until("Promoted")
    assert world.pods[canary] == [True] * 4


def test_empty_status_with_children_takes_stable_from_the_route() -> None:
    world = serving()
    assert world.status.stable is not None
    stable = world.status.stable.hash
    world.status = type(world.status)()
    world.change(a_spec(k=6, rollout=rollout()))
    world.look()
    assert world.status.stable is not None
    assert world.status.stable.hash == stable


def test_silent_gateway_does_not_block_removal_for_ever() -> None:
    world, _, _ = trying()
    world.with_assessment(WORSE)
    world.until("RolledBack")
    world.silent = True
    world.until("RevisionRemoved", looks=5)


def in_the_middle(**fields: object) -> tuple[World, str]:
    """A quiet canary in the third of four steps, at 20 percent; with its hash."""
    steps = [{"weight": 10}, {"pause": {}}, {"weight": 20}, {"pause": {}}]
    world, _, canary = trying(steps=steps, **fields)
    world.with_assessment(QUIET)
    world.annotations[PROMOTE] = f"{canary}/1"
    for _ in range(10):
        world.look()
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.weight) == (3, 20)
    return world, canary


def test_steps_shortened_on_the_way_promote_nobody_unjudged() -> None:
    world, canary = in_the_middle()
    world.spec = a_spec(k=6, rollout=rollout(steps=[{"weight": 30}, {"pause": {}}]))
    world.until("StepsChanged", looks=2)
    for _ in range(20):
        world.look(60)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.weight) == (1, 30)
    assert world.status.canary.hash == canary


def test_a_promote_for_an_earlier_step_is_not_one_for_the_new_steps() -> None:
    world, _ = in_the_middle()
    world.spec = a_spec(k=6, rollout=rollout(steps=[{"weight": 5}, {"pause": {}}, {"weight": 50}]))
    for _ in range(20):
        world.look(60)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.weight) == (1, 5)


def test_a_canary_from_before_steps_were_remembered_goes_on() -> None:
    world, _ = in_the_middle()
    assert world.status.canary is not None
    older = world.status.canary.model_copy(update={"steps_hash": None})
    world.status = world.status.model_copy(update={"canary": older})
    for _ in range(5):
        world.look(60)
    assert world.status.canary is not None
    assert (world.status.canary.step, world.status.canary.weight) == (3, 20)
    assert world.status.canary.steps_hash is not None
