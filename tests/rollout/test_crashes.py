"""A model of the operator that dies between any two of its writes, and begins again.

A pass writes status first and then its effects one by one (pods per revision,
route). The machine cuts a pass off after any of these writes; the next pass
starts from whatever was written. Rules hold after every cut, not only after
whole passes.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.builders import a_spec
from tests.rollout.assessments import ALL_FAILED, NOTHING, PROVEN, QUIET, WORSE
from tests.rollout.cluster_world import ClusterWorld
from tests.rollout.test_preflight_job import AWAY, LOST, REFUSED
from tests.rollout.world import PASSES

from speculative_api.labels import ABORT, PROMOTE
from speculative_operator.decision import Decision
from speculative_operator.desired.revision import words_of
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import CheckView, RevisionRecord

STEPS = [{"weight": 20}, {"pause": {"durationSeconds": 20}}, {"weight": 60}, {"pause": {}}]
SHADOW = {"shadow": {"percent": 40, "durationSeconds": 20, "maxConcurrentRequests": 8}}
MODES: dict[str, dict[str, Any]] = {
    "shadow first": {
        "guard": {"durationSeconds": 30},
        "steps": [SHADOW, {"shadow": {"percent": 80}}, *STEPS],
    },
    "shadow between": {
        "guard": {"durationSeconds": 30, "keep": "One"},
        "dynamicStable": True,
        "steps": [*STEPS[:2], SHADOW, *STEPS[2:]],
    },
    "surge": {"guard": {"durationSeconds": 30, "keep": "One"}},
    "dynamic": {"guard": {"durationSeconds": 30}, "dynamicStable": True},
    "in place": {"guard": {"durationSeconds": 30, "keep": "None"}, "capacity": "InPlace"},
    "checked": {
        "guard": {"durationSeconds": 30, "keep": "One"},
        "preflight": "Job",
        "download": "Job",
    },
    "checked in place": {
        "guard": {"durationSeconds": 30, "keep": "None"},
        "capacity": "InPlace",
        "preflight": "Job",
    },
}


class CrashingWorld(ClusterWorld):
    """A pass may end after any of its writes; what was asked of Kubernetes is kept apart."""

    writes_left: int | None = None
    """Writes until the operator dies; None: it lives."""

    def _written(self) -> bool:
        if self.writes_left is None:
            return True
        self.writes_left -= 1
        return self.writes_left >= 0

    def cut_off(self, writes: int) -> None:
        """One pass of which only the first so many writes are made."""
        self.looked = self.snapshot()
        decision = decide(self.looked, self.assessment)
        self.writes_left = writes
        asked: dict[str, int] = {}
        if self.decisions:
            asked = {scale.hash: scale.replicas for scale in self.decisions[-1].scales}
        if self._written():
            self.status = decision.status
        if self._written():
            self._make_job(decision)
        # The route stands before the workers' Deployments, as in `desired_objects`.
        if self._written():
            self.write_route(decision)
        for scale in decision.scales:
            if self._written():
                number = len(self.records) + 1
                self.records.setdefault(scale.hash, RevisionRecord(scale.hash, number, {}, {}))
                asked[scale.hash] = scale.replicas
        self.writes_left = None
        partial = tuple(s for s in decision.scales if s.hash in asked)
        self.decisions.append(_with_replicas(decision, partial, asked))
        self._kubernetes(self.decisions[-1])
        self._gateway_follows()

    def _gateway_follows(self) -> None:
        if self.route is not None and not self.deaf:
            self.used_sequence = self.route.sequence
            self.used = tuple((b.hash, b.weight) for b in self.route.backends)
            self.used_shadow = self.route.shadow


def _with_replicas(decision: Decision, scales: Any, asked: dict[str, int]) -> Decision:
    return replace(
        decision, scales=tuple(replace(scale, replicas=asked[scale.hash]) for scale in scales)
    )


class Operator(RuleBasedStateMachine):
    """Users, pods and verdicts do what they like; the operator dies where it hurts."""

    @initialize(mode=st.sampled_from(sorted(MODES)), replicas=st.integers(2, 5))
    def starts(self, mode: str, replicas: int) -> None:
        self.rollout = {"steps": STEPS, "progressDeadlineSeconds": 300, **MODES[mode]}
        self.k, self.furthest = 4, (-1, "")
        self.world = CrashingWorld(a_spec(k=4, replicas=replicas, rollout=self.rollout), gpus=12)
        self.world.until("StableReady")
        self.world.settle(5)

    def _spec(self, *, k: int | None = None, replicas: int | None = None) -> None:
        self.k = k or self.k
        total = self.world.spec.replicas if replicas is None else replicas
        self.world.change(a_spec(k=self.k, replicas=total, rollout=self.rollout))

    @rule(k=st.integers(3, 6))
    def applies(self, k: int) -> None:
        self._spec(k=k)

    @rule(replicas=st.integers(2, 6))
    def scales(self, replicas: int) -> None:
        self._spec(replicas=replicas)

    @rule(found=st.sampled_from([WORSE, PROVEN, QUIET, NOTHING, ALL_FAILED]))
    def judges(self, found: Any) -> None:
        self.world.assessment = found

    @rule(looks=st.integers(1, 8))
    def passes(self, looks: int) -> None:
        for _ in range(looks):
            self._look()

    def _look(self, writes: int | None = None) -> None:
        """One pass, whole or cut off: who serves is not taken away from under its traffic."""
        world = self.world
        serving = [name for name, weight in world.used if weight and world.ready(name)]
        copied = world.used_shadow
        if copied is not None and copied.percent and world.ready(copied.hash):
            serving.append(copied.hash)
        if writes is None:
            world.look(5)
        else:
            world.cut_off(writes)
        asked = {scale.hash: scale.replicas for scale in world.decisions[-1].scales}
        assert all(asked.get(name, 0) > 0 for name in serving), "pods go while gateways send"
        self.rules_hold()

    @rule(
        k=st.integers(3, 6),
        found=st.sampled_from([PASSES, CheckView(), REFUSED, AWAY, LOST]),
    )
    def a_check_comes_to(self, k: int, found: CheckView) -> None:
        """Only where checks are asked for; with the others it says nothing."""
        self.world.checks[words_of(a_spec(k=k)).hash] = found

    @rule(writes=st.integers(0, 6))
    def dies(self, writes: int) -> None:
        self._look(writes)

    @rule(pods=st.integers(1, 3))
    def a_canary_s_pods_die(self, pods: int) -> None:
        if self.world.status.canary is not None:
            self.world.kill(self.world.status.canary.hash, pods)

    @rule(deaf=st.booleans())
    def gateways_are_deaf(self, deaf: bool) -> None:
        self.world.deaf = deaf

    @precondition(lambda self: self.world.status.canary is not None)
    @rule()
    def promotes(self) -> None:
        canary = self.world.status.canary
        assert canary is not None
        self.world.annotations[PROMOTE] = f"{canary.hash}/{canary.step}@{len(self.world.decisions)}"

    @precondition(lambda self: self.world.status.canary is not None)
    @rule()
    def a_rollback_is_always_reachable(self) -> None:
        """From wherever it is, an abort takes the canary out of every gateway and of status."""
        world, canary = self.world, self.world.status.canary
        assert canary is not None
        world.deaf, world.loading, world.copies = False, 1, {}
        world.annotations[ABORT] = f"{canary.hash}@{len(world.decisions)}"
        for _ in range(150):
            self._look()
            if canary.hash not in dict(world.used) and world.status.canary is None:
                break
        assert world.status.canary is None or world.status.canary.hash != canary.hash
        stable = world.status.stable
        taken_over = stable is not None and stable.hash == canary.hash
        assert taken_over or dict(world.used).get(canary.hash, 0) == 0
        self._spec(k=3 if self.k != 3 else 5)

    @invariant()
    def rules_hold(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        for weights in (dict(world.used), {b.hash: b.weight for b in world.route.backends}):
            assert not weights or sum(weights.values()) == 100
        self._copies_are_safe()
        status = world.status
        assert status.stable is not None
        assert status.stable.hash not in {entry.hash for entry in status.retiring}
        assert not (status.canary and status.guard)
        if "preflight" in self.rollout:
            made = {pod.hash for pod in world.things}
            assert made <= world.passed, "a pod was made before its revision was checked"
        self._never_backwards()

    def _copies_are_safe(self) -> None:
        """No revision has copies and users at once, and none is chosen for them unready."""
        world = self.world
        for weights, shadow in (
            (dict(world.used), world.used_shadow),
            ({b.hash: b.weight for b in world.route.backends}, world.route.shadow),
        ):
            assert shadow is None or not shadow.percent or weights[shadow.hash] == 0
        copies = world.decisions[-1].copies
        if copies is not None and copies.percent:
            assert world.looked is not None
            assert world.looked.ready_pods(copies.hash) > 0

    @rule(copies=st.integers(0, 2))
    def copies_are_answered(self, copies: int) -> None:
        canary = self.world.status.canary
        self.world.copies = {canary.hash: copies} if canary else {}

    def _never_backwards(self) -> None:
        """A trial's steps only rise, unless it is another trial."""
        canary = self.world.status.canary
        if canary is None:
            self.furthest = (-1, "")
            return
        step, trial = self.furthest
        if trial == f"{canary.hash}/{canary.started_at}":
            assert canary.step >= step, "a step was taken back"
        self.furthest = (canary.step, f"{canary.hash}/{canary.started_at}")

    def teardown(self) -> None:
        """Left alone, whatever was begun comes to its end."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.deaf, world.loading, world.assessment, world.copies = False, 1, QUIET, {}
        world.checks.clear()
        for number in range(300):
            canary, status = world.status.canary, world.status
            if canary is not None:
                world.annotations[PROMOTE] = f"{canary.hash}/{canary.step}@end{number}"
            world.look(5)
            checking = status.preflight is not None and status.preflight.outcome is None
            if number > 5 and not (checking or status.canary or status.guard or status.retiring):
                break
        for _ in range(10):
            world.look(5)
        left = (world.status.canary, world.status.guard, world.status.retiring)
        assert left == (None, None, [])
        stable = world.status.stable
        assert stable is not None
        assert world.used == ((stable.hash, 100),)
        assert world.ready(stable.hash) == world.spec.replicas


Operator.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestOperatorThatCrashes = pytest.mark.slow(Operator.TestCase)
