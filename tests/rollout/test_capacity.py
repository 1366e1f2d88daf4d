"""Pods while traffic moves: `dynamicStable` and `capacity: InPlace`, under any order of events."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.builders import a_spec
from tests.rollout.assessments import ALL_FAILED, NOTHING, PROVEN, QUIET, WORSE
from tests.rollout.cluster_world import ClusterWorld

from speculative_api.labels import ABORT, PROMOTE
from speculative_operator.decision import Decision
from speculative_operator.snapshot import Snapshot, WorkerPod

STEPS = [{"weight": 20}, {"pause": {}}, {"weight": 60}, {"pause": {}}]
DYNAMIC: Mapping[str, Any] = {"dynamicStable": True}
IN_PLACE: Mapping[str, Any] = {"capacity": "InPlace"}


def rollout(mode: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    keep = "One" if mode is IN_PLACE else "Full"
    guard = {"durationSeconds": 60, "keep": keep}
    return {"steps": STEPS, "guard": guard, "progressDeadlineSeconds": 600, **mode, **fields}


def trying(
    mode: Mapping[str, Any], *, replicas: int = 4, gpus: int = 1000, **fields: Any
) -> tuple[ClusterWorld, str, str]:
    """A world whose canary of k=6 waits in its first pause; with stable's and canary's hash."""
    spec = {"replicas": replicas, "rollout": rollout(mode, **fields)}
    world = ClusterWorld(a_spec(k=4, **spec), gpus=gpus)
    world.until("StableReady")
    world.settle()
    assert world.status.stable is not None
    stable = world.status.stable.hash
    canary = world.change(a_spec(k=6, **spec))
    world.with_assessment(QUIET)
    world.until("CanaryPaused")
    world.settle()
    return world, stable, canary


def scaled(world: ClusterWorld) -> dict[str, int]:
    return {scale.hash: scale.replicas for scale in world.decisions[-1].scales}


def promote(world: ClusterWorld, canary: str) -> None:
    assert world.status.canary is not None
    world.annotations[PROMOTE] = f"{canary}/{world.status.canary.step}"


# ---- dynamicStable


def test_stable_shrinks_after_the_weight_was_seen_and_not_before() -> None:
    world, stable, canary = trying(DYNAMIC, replicas=10)
    assert scaled(world) == {stable: 8, canary: 2}
    promote(world, canary)
    world.deaf = True
    for _ in range(10):
        world.look()
    assert world.decisions[-1].shares[1].weight == 60
    assert scaled(world) == {stable: 8, canary: 6}
    world.deaf = False
    world.settle()
    assert scaled(world) == {stable: 4, canary: 6}


def test_without_it_stable_keeps_all() -> None:
    world, stable, canary = trying({}, replicas=10)
    assert scaled(world) == {stable: 10, canary: 2}


def test_a_silent_gateway_brings_nothing_back_and_takes_nothing_away() -> None:
    world, stable, canary = trying(DYNAMIC, replicas=10)
    world.silent = True
    for _ in range(5):
        world.look()
    assert scaled(world) == {stable: 8, canary: 2}


def test_an_abort_gives_traffic_back_only_as_far_as_stable_has_pods() -> None:
    world, stable, canary = trying(DYNAMIC, replicas=10)
    promote(world, canary)
    world.until("CanaryPaused")
    world.settle()
    assert scaled(world) == {stable: 4, canary: 6}
    world.annotations[ABORT] = canary
    world.loading = 3
    world.until("Aborted", looks=1)
    assert scaled(world)[stable] == 10
    assert {s.hash: s.weight for s in world.decisions[-1].shares} == {stable: 40, canary: 60}
    assert "keeps 60 percent until stable has its pods again" in world.look().status.message
    world.settle()
    assert world.used == ((stable, 100),)
    assert scaled(world) == {stable: 10, canary: 0}


def test_a_canary_that_answers_nothing_gets_nothing_from_the_verdict_on() -> None:
    world, stable, canary = trying(DYNAMIC, replicas=10)
    world.with_assessment(ALL_FAILED)
    world.until("RolledBack", looks=1)
    assert {s.hash: s.weight for s in world.decisions[-1].shares} == {stable: 100, canary: 0}


def test_stable_grows_before_a_lower_weight_is_given() -> None:
    steps = [{"weight": 60}, {"pause": {}}, {"weight": 20}, {"pause": {}}]
    world, stable, canary = trying(DYNAMIC, replicas=10, steps=steps)
    assert scaled(world)[stable] == 4
    world.loading = 5
    promote(world, canary)
    world.until("StepPromoted", looks=1)
    world.look()
    assert scaled(world)[stable] == 8
    assert world.decisions[-1].shares[1].weight == 60
    world.until("CanaryWeight", looks=20)
    assert world.ready(stable) == 8


def test_a_canary_without_pods_leaves_its_share_to_a_stable_that_grows() -> None:
    world, stable, canary = trying(DYNAMIC, replicas=10)
    world.unready.add(canary)
    world.look()
    world.look()
    assert scaled(world)[stable] == 10
    assert world.decisions[-1].shares[0].weight == 100
    world.unready.clear()
    world.settle()
    assert scaled(world) == {stable: 8, canary: 2}


# ---- InPlace


@pytest.mark.parametrize(
    ("replicas", "weight", "pods", "share"),
    [
        (2, 5, 1, 5),
        (2, 60, 1, 50),
        (4, 30, 1, 25),
        (4, 50, 2, 50),
        (4, 100, 3, 75),
        (10, 19, 1, 10),
        (10, 20, 2, 20),
        (3, 67, 2, 66),
        (1, 10, 1, 10),
    ],
    ids=lambda value: str(value),
)
def test_a_share_in_place_is_at_most_the_part_of_the_pods(
    replicas: int, weight: int, pods: int, share: int
) -> None:
    steps = [{"weight": weight}, {"pause": {}}]
    world, stable, canary = trying(IN_PLACE, replicas=replicas, gpus=max(2, replicas), steps=steps)
    assert len(world.pods[canary]) == pods
    assert world.used == ((stable, 100 - share), (canary, share))


def test_in_place_no_pod_ever_needs_a_spare_gpu() -> None:
    world, stable, canary = trying(IN_PLACE, gpus=4)
    assert scaled(world) == {stable: 3, canary: 1}
    promote(world, canary)
    world.until("CanaryPaused", looks=60)
    world.settle()
    assert scaled(world) == {stable: 2, canary: 2}
    promote(world, canary)
    world.until("Promoted", looks=60)
    world.settle()
    assert scaled(world) == {canary: 3, stable: 1}, "one is kept for the guard"
    world.until("GuardOver", looks=60, seconds=5)
    world.settle()
    assert scaled(world) == {canary: 4}
    assert world.ready(canary) == 4


def test_in_place_goes_back_pod_by_pod() -> None:
    world, stable, canary = trying(IN_PLACE, replicas=6, gpus=6)
    promote(world, canary)
    world.until("CanaryPaused", looks=60)
    world.settle()
    assert scaled(world) == {stable: 3, canary: 3}
    world.annotations[ABORT] = canary
    world.until("Aborted", looks=1)
    shares, pods = [], []
    for _ in range(60):
        decision = world.look()
        weights = {share.hash: share.weight for share in decision.shares}
        if weights.get(canary) not in (shares or [None])[-1:]:
            shares.append(weights.get(canary))
        if scaled(world).get(canary) not in (pods or [None])[-1:]:
            pods.append(scaled(world).get(canary))
    assert shares == [33, 16, 0, None]
    assert pods == [3, 2, 1, 0]
    assert scaled(world)[stable] == world.ready(stable) == 6


def test_the_only_pod_is_replaced_when_downtime_is_allowed() -> None:
    fields = {"allowDowntime": True}
    world, stable, canary = trying(IN_PLACE, replicas=1, gpus=1, **fields)
    assert scaled(world) == {stable: 0, canary: 1}
    assert world.used == ((stable, 0), (canary, 100))
    world.annotations[ABORT] = canary
    world.until("Aborted", looks=1)
    world.settle()
    assert scaled(world)[stable] == world.ready(stable) == 1
    assert world.used == ((stable, 100),)


def test_the_only_pod_may_be_promoted() -> None:
    fields = {"allowDowntime": True}
    world, _, canary = trying(IN_PLACE, replicas=1, gpus=1, **fields)
    promote(world, canary)
    world.until("CanaryPaused", looks=60)
    promote(world, canary)
    world.until("Promoted", looks=60)
    world.settle()
    assert scaled(world) == {canary: 1}
    assert world.used == ((canary, 100),)


def test_in_place_returns_pod_by_pod_as_well() -> None:
    world, stable, canary = trying(IN_PLACE, gpus=4)
    promote(world, canary)
    world.until("CanaryPaused", looks=60)
    promote(world, canary)
    world.until("Promoted", looks=60)
    world.settle()
    world.with_assessment(WORSE)
    world.until("RolledBack", looks=1)
    world.with_assessment(QUIET)
    world.until("ReturnFinished", looks=60)
    world.settle()
    assert scaled(world)[stable] == world.ready(stable) == 4
    assert world.used == ((stable, 100),)


@pytest.mark.parametrize(("over", "promoted"), [(True, True), (False, False)])
def test_in_place_an_evicted_pod_of_stable_takes_no_room(over: bool, promoted: bool) -> None:
    """It stays around as Failed until somebody cleans up; one that drains has its GPU still."""

    class Evicting(ClusterWorld):
        def snapshot(self) -> Snapshot:
            found = super().snapshot()
            stable = self.status.stable.hash if self.status.stable else ""
            left = WorkerPod("left", "left", stable, ready=False, terminating=True, over=over)
            return replace(found, pods=(*found.pods, left))

    spec = {"replicas": 2, "rollout": rollout(IN_PLACE)}
    world = Evicting(a_spec(k=4, **spec))
    world.until("StableReady")
    world.change(a_spec(k=6, **spec))
    world.settle(12)
    assert world.status.canary is not None
    assert (world.status.canary.step >= 0) is promoted


# ---- what holds whatever happens


@pytest.mark.parametrize("mode", [{}, DYNAMIC, IN_PLACE], ids=["surge", "dynamic", "in place"])
def test_an_aborted_canary_stays_away_when_the_autoscaler_moves(mode: Mapping[str, Any]) -> None:
    """H15: 4 to 6 right after the abort, the new pods loading for long."""
    world, stable, canary = trying(mode)
    promote(world, canary)
    world.until("CanaryPaused", looks=60)
    world.annotations[ABORT] = canary
    world.until("Aborted", looks=2)
    world.settle()
    assert world.pods[canary] == []
    world.loading = 600
    world.change(a_spec(k=6, replicas=6, rollout=rollout(mode)))
    before = world.route
    for _ in range(200):
        world.look(3)
        assert scaled(world) == {stable: 6, canary: 0}
    assert world.route == before
    assert world.ready(stable) == 4


ACTIONS = st.one_of(
    st.tuples(st.just("spec"), st.integers(2, 4)),
    st.tuples(st.just("assess"), st.sampled_from([WORSE, PROVEN, QUIET, NOTHING, ALL_FAILED])),
    st.tuples(st.just("kill"), st.integers(1, 3)),
    st.tuples(st.just("unready"), st.booleans()),
    st.tuples(st.just("loading"), st.integers(0, 5)),
    st.tuples(st.just("say"), st.sampled_from([ABORT, PROMOTE, PROMOTE])),
    st.tuples(st.just("replicas"), st.integers(2, 8)),
    st.tuples(st.just("deaf"), st.booleans()),
    st.tuples(st.just("looks"), st.integers(3, 25)),
)


def act(world: ClusterWorld, mode: Mapping[str, Any], action: str, value: object) -> None:
    spec, status = world.spec, world.status
    tried = status.canary.hash if status.canary else None
    fields = {"replicas": spec.replicas, "rollout": rollout(mode)}
    match action:
        case "spec":
            world.change(a_spec(k=int(str(value)), **fields))
        case "assess":
            world.assessment = value  # type: ignore[assignment]
        case "kill":
            if tried:
                world.kill(tried, int(str(value)))
        case "unready":
            world.unready = {tried} if tried and value else set()
        case "loading":
            world.loading = int(str(value))
        case "say":
            step = status.canary.step if status.canary else 0
            value_of = {ABORT: tried or "", PROMOTE: f"{tried}/{step}"}
            world.annotations = {str(value): value_of[str(value)]}
        case "replicas":
            k = spec.speculation.num_speculative_tokens
            world.change(a_spec(k=k, replicas=int(str(value)), rollout=rollout(mode)))
        case "deaf":
            world.deaf = bool(value)


def weights(decision: Decision) -> dict[str, int]:
    return {share.hash: share.weight for share in decision.shares}


def check(world: ClusterWorld, seen: Snapshot, before: Decision, used: dict[str, int]) -> None:
    """`seen` is what the newest decision was made from, `used` what the gateway used then."""
    after = world.decisions[-1]
    stable, old = after.status.stable, before.status.stable
    assert stable is not None
    assert sum(weights(after).values()) == 100
    assert all(0 <= weight <= 100 for weight in weights(after).values())
    for revision, weight in weights(after).items():
        assert weight == 0 or revision == stable.hash or seen.ready_pods(revision) > 0
    if old is None or old.hash != stable.hash or stable.available_at is None:
        return
    total = world.spec.replicas
    ready, share = seen.ready_pods(stable.hash), weights(after)[stable.hash]
    asked = {scale.hash: scale.replicas for scale in after.scales}[stable.hash]
    had = seen.deployments[stable.hash].replicas
    others = [revision for revision in weights(before) if revision != stable.hash]
    carried = any(seen.ready_pods(revision) for revision in others)
    lost = after.status.failed_revisions and world.assessment is ALL_FAILED
    in_place = world.spec.rollout.capacity == "InPlace"
    if share > weights(before).get(stable.hash, 0) and carried and not lost:
        # In place one pod is missing, and the other side's part is rounded down.
        spare = in_place * (100 + total)
        enough = 100 * ready + spare >= total * share
        # Where fewer pods serve than are asked for, its part of those is all there is to have.
        serving = sum(seen.ready_pods(revision) for revision in weights(after))
        fair = share * serving <= 100 * ready + serving
        assert enough or fair, "more traffic than it has pods for"
    if asked < min(had, total):
        elsewhere = sum(used.get(revision, 0) for revision in others)
        needed = ceil(total * (100 - elsewhere) / 100)
        if in_place:
            needed = total - ceil(total * elsewhere / 100) - 1
        assert asked >= needed, "fewer pods than it needs"


@pytest.mark.parametrize("mode", [DYNAMIC, IN_PLACE], ids=["dynamic", "in place"])
@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(ACTIONS, max_size=14), st.integers(2, 6))
@example([("replicas", 7), ("spec", 2)], 5)
@example([("say", PROMOTE), ("spec", 2), ("replicas", 6)], 4)
def test_stable_keeps_what_its_share_needs(
    mode: Mapping[str, Any], actions: list[tuple[str, object]], replicas: int
) -> None:
    world = ClusterWorld(a_spec(k=4, replicas=replicas, rollout=rollout(mode)))
    if mode is IN_PLACE:
        world.gpus = 8
    for action, value in [("looks", 10), ("spec", 3), ("looks", 12), *actions]:
        act(world, mode, action, value)
        for _ in range(int(str(value)) if action == "looks" else 2):
            seen, used = world.snapshot(), dict(world.used)
            world.look(5)
            if len(world.decisions) > 1:
                check(world, seen, world.decisions[-2], used)
    _settles(world)


def _settles(world: ClusterWorld) -> None:
    """Once nothing disturbs any more, the rollout comes to its end."""
    world.unready.clear()
    world.deaf, world.loading, world.assessment = False, 1, QUIET
    for looks in range(400):
        canary = world.status.canary
        if canary is not None:
            world.annotations = {PROMOTE: f"{canary.hash}/{canary.step}@{looks}"}
        world.look(5)
        stable, left = world.status.stable, world.status
        done = not (left.canary or left.guard or left.retiring) and looks > 5
        if done and stable and world.ready(stable.hash) == world.spec.replicas:
            break
    for _ in range(5):
        world.look(5)
    stable = world.status.stable
    assert stable is not None
    assert (world.status.canary, world.status.guard, world.status.retiring) == (None, None, [])
    assert scaled(world)[stable.hash] == world.ready(stable.hash) == world.spec.replicas
    assert world.used == ((stable.hash, 100),)
    assert not world.look(0).transition
