"""Shadow steps: who gets copies, from when on they count, and what they leave behind."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import ALL_FAILED, FEW, LOOKS_BAD, NOTHING, PROVEN, QUIET, WORSE
from tests.rollout.world import World

from speculative_api.labels import ABORT, PAUSE, PROMOTE
from speculative_api.v1alpha1 import CanaryStatus
from speculative_operator.decision import Assessment, Copies
from speculative_operator.external.values import serving_pods
from speculative_operator.rollout.trial import trial_of, trials_of

SECONDS = 120
SHADOW: dict[str, Any] = {"percent": 10, "durationSeconds": SECONDS, "maxConcurrentRequests": 8}
WEIGHT: list[dict[str, Any]] = [{"weight": 20}, {"pause": {"durationSeconds": 60}}]
STEPS = [{"shadow": SHADOW}, *WEIGHT]


def rollout(steps: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    return {"steps": steps or STEPS, "guard": {"durationSeconds": 30}, **fields}


def starting(
    steps: list[dict[str, Any]] | None = None, *, replicas: int = 2, **fields: Any
) -> tuple[World, str, str]:
    """A world whose canary of k=6 has just begun its steps, with stable's hash and its own."""
    how = rollout(steps, **fields)
    world = World(a_spec(k=4, replicas=replicas, rollout=how))
    world.until("StableReady")
    world.settle()
    assert world.status.stable is not None
    stable = world.status.stable.hash
    canary = world.change(a_spec(k=6, replicas=replicas, rollout=how))
    world.until("CanaryReady")
    return world, stable, canary


def shadowing(steps: list[dict[str, Any]] | None = None, **fields: Any) -> tuple[World, str, str]:
    """The same with every gateway seen to copy."""
    world, stable, canary = starting(steps, **fields)
    world.until("CanaryShadowObserved")
    world.look()
    return world, stable, canary


def canary_of(world: World) -> CanaryStatus:
    assert world.status.canary is not None
    return world.status.canary


def identity(world: World) -> str:
    trial = trial_of(world.status)
    return trial.identity if trial else ""


def progressing(world: World) -> tuple[str, str, str]:
    found = next(c for c in world.status.conditions if c.type == "Progressing")
    return found.status, found.reason, found.message


def test_a_whole_rollout_copies_first_and_then_gives_users() -> None:
    world, stable, canary = shadowing()
    assert world.used == ((stable, 100), (canary, 0))
    assert (canary_of(world).observed_shadow, canary_of(world).weight) == (10, 0)
    world.with_assessment(PROVEN)
    world.until("StepProven")
    world.until("CanaryWeightObserved")
    assert (canary_of(world).shadow, canary_of(world).observed_shadow) == (0, 0)
    world.until("Promoted")
    world.until("GuardOver")
    world.until("RevisionRemoved")
    world.settle()
    assert world.used == ((canary, 100),)
    assert world.route is not None
    assert world.route.shadow is None
    order = [event.reason for event in world.events if event.reason.startswith("Canary")]
    assert order == [
        "CanaryStarting",
        "CanaryReady",
        "CanaryShadow",
        "CanaryShadowObserved",
        "CanaryWeight",
        "CanaryWeightObserved",
    ]


def test_the_message_says_shadow_its_percent_and_its_time() -> None:
    world, _, canary = shadowing()
    status, reason, message = progressing(world)
    assert (status, reason) == ("True", "CanaryShadowed")
    assert message.startswith(
        f"Revision 2 ({canary}) at shadow 10 percent, step 1 of 3 (0 of {SECONDS} s)"
    )


def test_while_a_gateway_does_not_follow_nothing_counts_and_the_message_says_so() -> None:
    world, _, canary = starting()
    world.deaf = True
    world.until("CanaryShadow")
    for _ in range(5):
        world.look(60)
    assert canary_of(world).shadow_observed_at is None
    assert identity(world) == ""
    assert world.decisions[-1].next_look_seconds == 1.0
    assert "shadow 10 percent (gateways copy 0: waits" in progressing(world)[2]
    world.deaf = False
    world.until("CanaryShadowObserved")
    world.look()
    assert identity(world).startswith(f"{canary}/shadow/")


@pytest.mark.parametrize("assessment", [NOTHING, FEW, LOOKS_BAD], ids=["no data", "few", "bad"])
def test_time_alone_never_ends_a_shadow(assessment: Assessment) -> None:
    world, _, _ = shadowing()
    world.with_assessment(assessment)
    world.until("AnalysisInconclusive", seconds=30)
    for _ in range(10):
        world.look(600)
    assert (canary_of(world).step, canary_of(world).shadow) == (0, 10)
    assert progressing(world)[:2] == ("Unknown", "AnalysisInconclusive")
    # Once nothing is wrong its whole time begins again, with what was seen so far.
    before = identity(world)
    world.with_assessment(QUIET)
    world.until("AnalysisResumed")
    assert identity(world) == before
    assert world.until("StepTimeOver", seconds=10)


@pytest.mark.parametrize(
    ("policy", "reason"), [("Abort", "Aborted"), ("Advance", "AnalysisInconclusive")]
)
def test_the_policy_for_no_verdict_holds_for_copies_too(policy: str, reason: str) -> None:
    world, _, _ = shadowing(onInconclusive=policy)
    world.with_assessment(NOTHING)
    world.until(reason, seconds=30)
    assert (world.status.canary is None) == (policy == "Abort")


def test_time_ends_a_shadow_that_nothing_speaks_against() -> None:
    world, _, _ = shadowing()
    began = world.now
    world.with_assessment(QUIET)
    world.until("StepTimeOver", seconds=4)
    assert SECONDS - 2 <= (world.now - began).total_seconds() <= SECONDS + 8


def test_without_a_duration_a_person_ends_it() -> None:
    world, _, canary = starting([{"shadow": {"percent": 10}}, *WEIGHT])
    world.with_assessment(PROVEN)
    world.until("CanaryPaused")
    for _ in range(5):
        world.look(600)
    assert canary_of(world).step == 0
    world.annotations[PROMOTE] = f"{canary}/0@now"
    world.until("StepPromoted")
    world.until("CanaryWeightObserved")


@pytest.mark.parametrize(
    ("assessment", "reason"),
    [(WORSE, "AcceptanceWorse"), (ALL_FAILED, "CanaryUnhealthy")],
    ids=["worse", "all fail"],
)
def test_a_worse_canary_goes_from_the_shadow_in_order(assessment: Assessment, reason: str) -> None:
    world, stable, canary = shadowing()
    world.copies = {canary: 2}
    world.with_assessment(assessment)
    event = world.until("RolledBack")
    assert event.message.startswith(reason)
    world.with_assessment(QUIET)
    world.settle()
    # Seen to copy nothing, and it waits: two copies are still answered.
    assert world.used == ((stable, 100), (canary, 0))
    assert world.used_shadow is not None
    assert world.used_shadow.percent == 0
    assert sum(world.pods[canary]) == 1
    world.copies = {}
    world.until("WeightZeroObserved")
    assert canary in world.pods
    world.until("RevisionRemoved")
    assert world.used == ((stable, 100),)
    assert world.used_shadow is None
    assert [entry.hash for entry in world.status.failed_revisions] == [canary]


@pytest.mark.parametrize("when", ["starting", "deaf", "seen"])
def test_an_abort_is_the_same_way_out_at_every_moment(when: str) -> None:
    world, stable, canary = starting() if when != "seen" else shadowing()
    if when == "deaf":
        world.deaf = True
        world.until("CanaryShadow")
    world.annotations[ABORT] = canary
    world.until("Aborted")
    world.deaf = False
    world.until("RevisionRemoved")
    world.settle()
    assert world.used == ((stable, 100),)
    assert world.used_shadow is None


def test_copies_that_hang_block_a_removal_no_longer_than_a_drain() -> None:
    world, _, canary = shadowing()
    world.copies = {canary: 3}
    world.annotations[ABORT] = canary
    world.until("Aborted")
    began = world.now
    world.until("RevisionRemoved", seconds=5)
    waited = (world.now - began).total_seconds()
    drain = world.spec.engine.drain_seconds
    assert drain <= waited <= drain + 30


def test_users_wait_until_the_last_copy_is_answered() -> None:
    world, _, canary = shadowing()
    world.with_assessment(PROVEN)
    world.copies = {canary: 1}
    world.until("StepProven")
    for _ in range(20):
        world.look()
    assert (canary_of(world).step, canary_of(world).weight) == (1, 0)
    assert identity(world) == ""
    assert world.decisions[-1].next_look_seconds == 1.0
    world.copies = {}
    world.until("CanaryWeight")
    assert identity(world).startswith(f"{canary}/canary/")


def test_what_is_seen_of_copies_is_no_evidence_of_users_requests() -> None:
    steps = [{"shadow": SHADOW}, *WEIGHT, {"shadow": {**SHADOW, "percent": 50}}, *WEIGHT]
    world, _, _ = starting(steps)
    world.with_assessment(PROVEN)
    seen: list[str] = []
    for _ in range(60):
        world.look()
        if world.status.canary is None:
            break
        found = identity(world)
        if found and found not in seen:
            seen.append(found)
    stages = [found.split("/")[1] for found in seen]
    # Each has what was seen to itself: the second and the fourth differ too.
    assert stages == ["shadow", "canary", "shadow", "canary"]


def test_a_shadow_after_users_takes_them_back_first() -> None:
    world, _, canary = starting([*WEIGHT, {"shadow": SHADOW}])
    world.with_assessment(PROVEN)
    world.until("CanaryWeightObserved")
    world.active = {canary: 1}
    event = world.until("CanaryWeight")
    assert "gets 0 percent" in event.message
    for _ in range(10):
        world.look()
        assert canary_of(world).shadow == 0
    world.active = {}
    world.until("CanaryShadow")
    assert dict(world.used)[canary] == 0


def test_stable_that_gave_up_pods_has_them_back_before_users_come_back() -> None:
    world, stable, _ = starting(
        [{"weight": 50}, {"pause": {"durationSeconds": 60}}, {"shadow": SHADOW}],
        replicas=4,
        dynamicStable=True,
    )
    world.with_assessment(PROVEN)
    world.until("CanaryWeightObserved")
    world.with_assessment(QUIET)
    world.look()
    world.look()
    assert sum(world.pods[stable]) == 2
    world.unready = {stable}
    world.with_assessment(PROVEN)
    for _ in range(5):
        world.look()
    assert canary_of(world).weight == 50
    world.unready = set()
    world.until("CanaryShadowObserved")
    assert sum(world.pods[stable]) == 4


@pytest.mark.parametrize(("percent", "pods"), [(1, 1), (25, 1), (26, 2), (100, 4)])
def test_a_canary_is_sized_for_its_copies_and_stable_keeps_its_pods(
    percent: int, pods: int
) -> None:
    world, stable, canary = shadowing([{"shadow": {**SHADOW, "percent": percent}}], replicas=4)
    assert [len(world.pods[revision]) for revision in (stable, canary)] == [4, pods]


def test_a_canary_without_a_ready_pod_gets_no_copies() -> None:
    world, _, canary = shadowing()
    world.unready = {canary}
    world.look()
    assert world.look().copies == Copies(canary, 0, 8)
    assert canary_of(world).shadow == 10
    world.unready = set()
    world.look()
    assert world.look().copies == Copies(canary, 10, 8)


def test_a_canary_that_loses_its_pods_is_taken_out_at_its_deadline() -> None:
    world, _, canary = shadowing(progressDeadlineSeconds=60)
    world.unready = {canary}
    assert "ProgressDeadlineExceeded" in world.until("RolledBack", seconds=20).message


def test_the_route_has_the_copies_from_the_canary_s_first_moment_to_its_last() -> None:
    """A route that is rewritten fills every bucket of the limits anew."""
    world, _, canary = starting([{"pause": {"durationSeconds": 60}}, *STEPS])
    world.with_assessment(QUIET)
    found: list[tuple[int, Copies | None]] = []
    while world.status.guard is None:
        decision = world.look(20)
        found.append((len(decision.shares), decision.copies))
    beside = [copies for count, copies in found if count == 2 and copies is not None]
    assert {(copies.hash, copies.most) for copies in beside} == {(canary, 8)}
    assert {copies.percent for copies in beside} == {0, 10}
    assert [copies for count, copies in found if count == 2][:-1] == beside[: len(found) - 1]


def test_steps_without_a_shadow_leave_a_cluster_that_was_there() -> None:
    world, _, canary = shadowing()
    world.spec = a_spec(k=6, replicas=2, rollout=rollout(WEIGHT))
    world.until("StepsChanged")
    assert world.look().copies == Copies(canary, 0, None)
    world.until("CanaryWeightObserved")
    assert world.used_shadow is not None
    assert (world.used_shadow.percent, world.used_shadow.most_requests) == (0, 8)


def test_rollouts_without_a_shadow_have_no_copies() -> None:
    world, _, _ = starting(WEIGHT)
    world.until("CanaryWeightObserved")
    assert all(decision.copies is None for decision in world.decisions)


def test_a_hold_keeps_the_copies_and_goes_no_further() -> None:
    world, _, canary = shadowing()
    world.annotations[PAUSE] = canary
    world.with_assessment(PROVEN)
    world.until("PausedOnRequest")
    for _ in range(5):
        world.look(600)
    assert (canary_of(world).step, canary_of(world).shadow) == (0, 10)
    world.with_assessment(WORSE)
    world.until("RolledBack")


def test_a_skipped_shadow_ends_like_any_other() -> None:
    world, _, canary = shadowing()
    world.annotations[PROMOTE] = f"{canary}/0/skip@now"
    world.until("StepSkipped")
    world.until("CanaryWeightObserved")
    assert (canary_of(world).shadow, canary_of(world).weight) == (0, 20)


def test_a_promotion_in_full_waits_for_the_last_copy() -> None:
    world, _, canary = shadowing()
    world.copies = {canary: 1}
    world.annotations[PROMOTE] = f"{canary}/full@now"
    world.until("PromotedInFull")
    for _ in range(10):
        world.look()
    assert world.status.guard is None
    world.copies = {}
    world.until("Promoted")


def test_two_shadows_in_a_row_are_one_after_the_other_and_judged_apart() -> None:
    steps = [{"shadow": SHADOW}, {"shadow": {**SHADOW, "percent": 50}}, *WEIGHT]
    world, _, _ = shadowing(steps)
    first = identity(world)
    world.with_assessment(PROVEN)
    world.until("StepProven")
    assert world.used_shadow is not None
    world.until("CanaryShadow")
    world.with_assessment(QUIET)
    world.until("CanaryShadowObserved")
    world.look()
    assert world.used_shadow.percent == 50
    assert identity(world) not in ("", first)


@pytest.mark.parametrize("mode", ["None", "GatewayAPI"])
def test_where_nothing_can_copy_the_step_is_skipped(mode: str) -> None:
    """The schema refuses it; an object from before it did must not wait for ever."""
    gateway = {"mode": mode, **({"parentRef": {"name": "edge"}} if mode == "GatewayAPI" else {})}
    world = World(a_spec(k=4, gateway=gateway, rollout=rollout()))
    world.until("StableReady")
    world.settle()
    world.change(a_spec(k=6, gateway=gateway, rollout=rollout()))
    assert "can't copy 10 percent" in world.until("StepSkipped").message
    assert all(decision.copies is None for decision in world.decisions)


@pytest.mark.parametrize(
    ("steps", "guard", "trials"),
    [
        (WEIGHT, 0, 1),
        (WEIGHT, 30, 2),
        (STEPS, 30, 3),
        ([{"shadow": SHADOW}, {"shadow": SHADOW}, *WEIGHT], 30, 4),
        ([*WEIGHT, {"shadow": SHADOW}, *WEIGHT], 30, 4),
    ],
    ids=["weights", "with a guard", "a shadow first", "two", "between weights"],
)
def test_every_trial_has_its_part_of_the_chance_of_a_false_rollback(
    steps: list[dict[str, Any]], guard: int, trials: int
) -> None:
    spec = a_spec(rollout={"steps": steps, "guard": {"durationSeconds": guard}})
    assert trials_of(spec.rollout) == trials


@pytest.mark.parametrize(
    ("prepare", "revisions"),
    [(starting, 2), (shadowing, 1)],
    ids=["before", "while it has copies"],
)
def test_what_answers_copies_is_no_load_for_the_autoscaler(
    prepare: Callable[[], tuple[World, str, str]], revisions: int
) -> None:
    world, _, _ = prepare()
    assert len({pod.revision for pod in serving_pods(world.snapshot())}) == revisions
