"""A revision is checked by a Job before any of its pods is made: starts, results, ways out."""

from typing import Any

import pytest
from tests.builders import a_spec
from tests.rollout.assessments import PROVEN
from tests.rollout.world import PASSES, World

from speculative_api.conditions import Reason
from speculative_api.labels import RETRY
from speculative_api.v1alpha1 import Condition
from speculative_api.worker import PreflightReport, Termination
from speculative_operator.snapshot import CheckView

DEADLINE = 300
JOB: dict[str, Any] = {
    "preflight": "Job",
    "progressDeadlineSeconds": DEADLINE,
    "guard": {"durationSeconds": 0},
}
NOTED = CheckView(report=PreflightReport(notes=("the draft is 1/3 of the target",)))
REFUSED = CheckView(
    termination=Termination(
        reason="VocabularyMismatch", retryable=False, detail="152064 and 151936 tokens"
    ),
    failure="PodFailurePolicy: exit code 3",
)
OF_HUB = Termination(reason="HubUnreachable", retryable=True, detail="no route to the hub")
TRYING = CheckView(termination=OF_HUB)
AWAY = CheckView(termination=OF_HUB, failure="BackoffLimitExceeded: 3 attempts")
LOST = CheckView(failure="it ended without a word")
UNPLACED = CheckView(waiting_reason="Unschedulable: 0/3 nodes are available")
NO_IMAGE = CheckView(waiting_reason="ImagePullBackOff: not found")


def asked(k: int = 4, **changes: Any) -> Any:
    return a_spec(k=k, rollout=JOB | changes.pop("rollout", {}), **changes)


def a_world(spec: Any = None) -> World:
    return World(spec or asked())


def serving() -> World:
    world = a_world()
    world.until("StableReady")
    world.settle()
    return world


def condition(world: World, kind: str) -> Condition:
    return next(c for c in world.status.conditions if c.type == kind)


def reasons(world: World) -> list[str]:
    return [str(event.reason) for event in world.events]


def test_no_pod_of_the_first_revision_exists_while_it_is_checked() -> None:
    world = a_world()
    revision = world.change(world.spec)
    world.checks[revision] = CheckView()
    world.settle(seconds=5)
    assert (world.pods, world.status.stable) == ({}, None)
    said = condition(world, "Progressing")
    assert (said.status, said.reason) == ("True", Reason.PREFLIGHT_RUNNING)
    assert "checked before any of its pods" in world.status.message
    world.checks[revision] = PASSES
    world.until("StableReady")
    assert reasons(world)[:3] == ["PreflightRunning", "PreflightPassed", "RevisionStarting"]
    assert world.jobs == set()


def test_no_pod_of_a_canary_exists_while_it_is_checked_and_stable_keeps_its_own() -> None:
    world = serving()
    revision = world.change(asked(k=5, replicas=3, rollout={"capacity": "InPlace"}))
    world.checks[revision] = CheckView()
    world.settle(seconds=5)
    stable = world.status.stable
    assert stable is not None
    assert world.pods == {stable.hash: [True] * 3}
    assert dict(world.used) == {stable.hash: 100}
    assert condition(world, "Progressing").reason == Reason.PREFLIGHT_RUNNING
    world.checks[revision] = PASSES
    world.until("CanaryStarting")


def test_what_disappoints_is_an_event_and_stands_beside_accepted() -> None:
    world = serving()
    revision = world.change(asked(k=5))
    world.checks[revision] = NOTED
    event = world.until("PreflightPassed")
    assert event.type == "Warning"
    assert "1/3 of the target" in event.message
    world.assessment = PROVEN
    world.until("Promoted", seconds=30)
    world.settle()
    assert "1/3 of the target." in condition(world, "Accepted").message


@pytest.mark.parametrize("serves", [False, True], ids=["first", "canary"])
def test_what_can_never_work_fails_the_revision_with_its_reason(serves: bool) -> None:
    world = serving() if serves else a_world()
    before = dict(world.pods)
    revision = world.change(asked(k=5))
    world.checks[revision] = REFUSED
    world.settle(seconds=5)
    (entry,) = world.status.failed_revisions
    assert (entry.hash, entry.reason) == (revision, "VocabularyMismatch")
    assert world.pods == before
    said = condition(world, "Progressing")
    expected = Reason.ROLLED_BACK if serves else Reason.FIRST_REVISION_FAILED
    assert (said.status, said.reason) == ("False", expected)
    assert "152064 and 151936" in said.message
    assert condition(world, "Available").status == ("True" if serves else "False")
    assert "RolledBack" in reasons(world) if serves else "VocabularyMismatch" in reasons(world)
    verdict = world.status.verdict
    assert (verdict.outcome if verdict else None) == ("RolledBack" if serves else None)


@pytest.mark.parametrize("serves", [False, True], ids=["first", "canary"])
def test_a_failed_one_is_checked_again_after_a_retry_and_not_before(serves: bool) -> None:
    world = serving() if serves else a_world()
    revision = world.change(asked(k=5))
    world.checks[revision] = REFUSED
    world.settle(seconds=5)
    world.checks[revision] = PASSES
    for spec in (asked(k=5), asked(k=5, rollout={"preflight": "InPod"}), asked(k=5)):
        world.change(spec)
        world.settle(seconds=60)
        assert revision not in world.pods
    world.annotations[RETRY] = f"{revision}@1"
    world.until("PreflightPassed")
    world.until("CanaryStarting" if serves else "StableReady")


PARKED = [
    ("hub", AWAY, 5, Reason.HUB_UNREACHABLE, "no route to the hub"),
    ("lost", LOST, 5, Reason.PREFLIGHT_STALLED, "without a word"),
    ("no place", UNPLACED, DEADLINE, Reason.CAPACITY_BLOCKED, "0/3 nodes"),
    ("no image", NO_IMAGE, DEADLINE, Reason.IMAGE_UNAVAILABLE, "ImagePullBackOff"),
    ("hangs", CheckView(), DEADLINE, Reason.PREFLIGHT_STALLED, "no result after"),
    ("hub, Kubernetes tries on", TRYING, DEADLINE, Reason.PREFLIGHT_STALLED, "no result after"),
]


@pytest.mark.parametrize("serves", [False, True], ids=["first", "canary"])
@pytest.mark.parametrize(
    "found,seconds,reason,words", [row[1:] for row in PARKED], ids=[row[0] for row in PARKED]
)
def test_what_may_come_parks_the_revision(
    serves: bool, found: CheckView, seconds: int, reason: Reason, words: str
) -> None:
    world = serving() if serves else a_world()
    before = dict(world.pods)
    revision = world.change(asked(k=5))
    world.checks[revision] = found
    began = world.now
    world.until(reason, seconds=5)
    assert seconds - 5 <= (world.now - began).total_seconds() <= seconds + 30
    entry = world.status.parked
    assert entry is not None
    assert (entry.hash, entry.reason, entry.attempts) == (revision, reason, 1)
    assert words in entry.message
    assert (world.pods, world.status.failed_revisions, world.jobs) == (before, [], set())
    said = condition(world, "Progressing")
    assert (said.status, said.reason) == ("False", reason)
    world.until(reason, seconds=10)
    assert world.status.parked is not None
    assert world.status.parked.attempts == 2
    world.checks[revision] = PASSES
    world.until("CanaryStarting" if serves else "StableReady", seconds=30, looks=400)


def test_another_attempt_has_another_job() -> None:
    world = a_world()
    world.checks[world.change(world.spec)] = AWAY
    seen: set[str] = set()
    for _ in range(200):
        world.look(10)
        seen |= world.jobs
    assert len(seen) >= 3


@pytest.mark.parametrize(
    "spec",
    [asked(k=6), asked(k=4), asked(k=5, rollout={"preflight": "InPod"})],
    ids=["another revision", "back to stable", "no check"],
)
def test_a_check_that_nobody_asks_for_any_more_ends(spec: Any) -> None:
    world = serving()
    revision = world.change(asked(k=5))
    world.checks[revision] = CheckView()
    world.settle()
    (old,) = world.jobs
    world.change(spec)
    world.settle()
    assert old not in world.jobs
    assert revision not in world.pods or spec.rollout.preflight == "InPod"


def test_a_revision_that_replaces_one_that_never_served_is_checked_too() -> None:
    world = a_world(asked(rollout={"preflight": "InPod"}))
    first = world.change(world.spec)
    world.unready.add(first)
    world.settle()
    revision = world.change(asked(k=5))
    world.checks[revision] = CheckView()
    world.settle()
    assert set(world.pods) == {first}
    world.checks[revision] = PASSES
    world.until("StableReady")
    assert world.status.stable is not None
    assert world.status.stable.hash == revision


def test_a_simulated_engine_loads_nothing_and_is_not_checked() -> None:
    world = a_world(asked(engine={"simulation": {}}))
    world.until("StableReady")
    assert "PreflightRunning" not in reasons(world)


def test_without_the_field_nothing_is_checked_by_a_job() -> None:
    world = a_world(a_spec(k=4))
    world.until("StableReady")
    assert reasons(world)[0] == "RevisionStarting"


FETCH = {"download": "Job"}
ON_HUB = {
    "target": {"model": "hf://org/target@abc"},
    "modelCache": {"persistentVolumeClaim": "cache"},
}


def jobs_of(spec: Any) -> list[str]:
    """Reasons of the events until the first revision starts."""
    world = a_world(spec)
    world.until("RevisionStarting")
    return reasons(world)[:-1]


STAGES = [
    ("both", asked(rollout=FETCH, **ON_HUB), ["PreflightRunning", "PreflightPassed"]),
    (
        "of a bucket",
        asked(rollout=FETCH, **ON_HUB | {"target": {"model": "s3://models/llama"}}),
        ["PreflightRunning", "PreflightPassed"],
    ),
    ("download alone", asked(rollout=FETCH | {"preflight": "InPod"}, **ON_HUB), []),
]


@pytest.mark.parametrize("spec,before", [row[1:] for row in STAGES], ids=[row[0] for row in STAGES])
def test_models_are_fetched_after_the_check(spec: Any, before: list[str]) -> None:
    assert jobs_of(spec) == [*before, "ModelsDownloading", "ModelsDownloaded"]


NOTHING_TO_FETCH = [
    ("no model of a hub", asked(rollout=FETCH, modelCache=ON_HUB["modelCache"])),
    ("no cache", asked(rollout=FETCH, target=ON_HUB["target"])),
]


@pytest.mark.parametrize(
    "spec", [row[1] for row in NOTHING_TO_FETCH], ids=[row[0] for row in NOTHING_TO_FETCH]
)
def test_nothing_is_fetched_where_there_is_nothing_to_fetch(spec: Any) -> None:
    assert "ModelsDownloading" not in jobs_of(spec)


def test_an_adapter_of_a_hub_is_fetched_too() -> None:
    lora = {"adapters": [{"name": "a", "model": "hf://org/adapter"}]}
    target = {"model": "file:///models/t", "lora": lora}
    spec = asked(rollout=FETCH, target=target, modelCache=ON_HUB["modelCache"])
    assert "ModelsDownloaded" in jobs_of(spec)


def test_how_far_a_download_is_stands_in_the_message() -> None:
    spec = asked(rollout=FETCH | {"preflight": "InPod"}, **ON_HUB)
    world = a_world(spec)
    world.checks[world.change(spec)] = CheckView(progress="12.0 of 140.1 GiB, 210 MiB/s")
    world.settle()
    said = condition(world, "Progressing")
    assert said.reason == Reason.MODELS_DOWNLOADING
    assert said.message.endswith("12.0 of 140.1 GiB, 210 MiB/s")
    assert world.pods == {}


def test_a_full_disk_fails_the_revision_and_a_hub_that_goes_away_parks_it() -> None:
    full = Termination(reason="DiskTooSmall", retryable=False, detail="140 GiB, 80 GiB free")
    for found, names in ((CheckView(termination=full), "DiskTooSmall"), (AWAY, "HubUnreachable")):
        spec = asked(rollout=FETCH | {"preflight": "InPod"}, **ON_HUB)
        world = a_world(spec)
        world.checks[world.change(spec)] = found
        world.settle(seconds=5)
        failed = [entry.reason for entry in world.status.failed_revisions]
        parked = [world.status.parked.reason] if world.status.parked else []
        assert failed + parked == [names]
        assert world.pods == {}


def test_notes_of_the_check_outlive_the_download() -> None:
    spec = asked(rollout=FETCH, **ON_HUB)
    world = a_world(spec)
    world.checks[world.change(spec)] = NOTED
    world.until("StableReady")
    world.settle()
    assert "1/3 of the target." in condition(world, "Accepted").message
