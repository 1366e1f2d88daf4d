"""Stable against its own first hours: when it is judged, what is done, and how it ends."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.builders import (
    a_deployment,
    a_digest,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)
from tests.rollout.assessments import PROVEN, QUIET
from tests.rollout.world import World

from speculative_api.labels import RECOVER
from speculative_api.revisions import native_hash
from speculative_operator.decision import Assessment, Baseline, Decision, DriftFinding, Share
from speculative_operator.desired.native import native_lane
from speculative_operator.notifications import with_pending
from speculative_operator.rollout.decide import decide
from speculative_operator.rollout.drifting import question
from speculative_operator.snapshot import Snapshot

STABLE, OTHER = some_words(4), some_words(6)
GUARD = {"revision": 1, "hash": OTHER.hash, "startedAt": stamp(10), "weight": 5}
BASELINE = {"acceptedTokens": 1500, "steps": 1000, "noiseMillionths": 1, "measuredAt": stamp(9)}
NATIVE = native_hash(STABLE.canonical)

SUNK = DriftFinding("", blocks=9, percent=60, worse=2000, is_drifted=True, message="60 percent")
BACK = DriftFinding("", blocks=9, percent=99, worse=0.1, is_steady=True, message="99 percent")
CALM = DriftFinding("", blocks=9, percent=97, worse=0.5, message="97 percent")
COMPLETE = DriftFinding("", blocks=60, baseline=Baseline(1500, 1000, 0.25))


def drifting(state: str, **fields: Any) -> dict[str, Any]:
    known = {"hash": STABLE.hash, "state": state, "since": stamp(100), "round": 3}
    return known | {"baseline": BASELINE, "message": "60 percent"} | fields


def a_world(
    drift: dict[str, Any] | None = None,
    action: str = "Alert",
    *,
    annotation: str = "",
    pods: Any = (),
    **more: Any,
) -> Snapshot:
    wish = more.pop("wish", {"action": action})
    spec = a_spec(k=4, replicas=2, rollout={"drift": wish} if wish else {})
    found = {"drift": drift} if drift is not None else {}
    return a_snapshot(
        spec,
        status=a_status(stable=STABLE, **found, **more),
        annotations={RECOVER: annotation} if annotation else {},
        revisions=[a_record(STABLE)],
        deployments=[a_deployment(STABLE, replicas=2)],
        pods=[a_pod(STABLE), a_pod(STABLE, number=1), *pods],
    )


def look(snapshot: Snapshot, finding: DriftFinding | None = None) -> Decision:
    """A pass in which the evidence for the present question says this."""
    asked = question(snapshot)
    named = replace(finding, identity=asked.identity) if finding and asked else finding
    return decide(snapshot, Assessment(drift=named))


def condition(decision: Decision) -> tuple[str, str]:
    found = next(c for c in decision.status.conditions if c.type == "AcceptanceDrifted")
    return found.status, found.reason


def test_without_the_field_nothing_is_asked_remembered_or_said() -> None:
    snapshot = a_world(wish=None)
    decision = look(snapshot, SUNK)
    assert question(snapshot) is None
    assert decision.status.drift is None
    assert "AcceptanceDrifted" not in {c.type for c in decision.status.conditions}


def test_a_quiet_stable_is_measured_then_judged() -> None:
    snapshot = a_world()
    begun = look(snapshot)
    assert begun.status.drift is not None
    assert begun.status.drift.state == "Measuring"
    snapshot = replace(snapshot, status=begun.status)
    asked = question(snapshot)
    assert asked is not None
    assert (asked.baseline, asked.block_seconds) == (None, 240.0)
    measured = look(snapshot, COMPLETE)
    assert [event.reason for event in measured.events] == ["BaselineMeasured"]
    assert "1.50 draft tokens per step" in measured.events[0].message
    asked = question(replace(snapshot, status=measured.status))
    assert asked is not None
    assert (asked.baseline, asked.least_share) == (COMPLETE.baseline, 0.8)


NOT_QUIET: dict[str, dict[str, Any]] = {
    "canary": {"canary": OTHER},
    "guard": {"guard": GUARD},
    "removal": {"retiring": [{"hash": OTHER.hash, "since": stamp(1)}]},
    "restart": {"restart": {"hash": STABLE.hash, "at": stamp(1), "stamp": stamp(1)}},
    "not available yet": {"available": False},
}


@pytest.mark.parametrize("status", NOT_QUIET.values(), ids=NOT_QUIET.keys())
def test_nothing_is_judged_while_something_goes_on(status: dict[str, Any]) -> None:
    snapshot = a_world(drifting("Steady"), **status)
    assert question(snapshot) is None
    known = decide(snapshot, Assessment(drift=SUNK)).status.drift
    assert known is not None
    assert known.state == "Steady"


def test_a_finding_about_another_question_is_not_looked_at() -> None:
    snapshot = a_world(drifting("Steady"))
    decision = decide(snapshot, Assessment(drift=replace(SUNK, identity="another")))
    assert not decision.transition


QUESTIONS = {
    "another limit": {"action": "Alert", "minPercentOfBaseline": 90},
    "other blocks": {"action": "Alert", "baselineSeconds": 600},
}


@pytest.mark.parametrize("wish", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_evidence_begins_anew_with_another_question(wish: dict[str, Any]) -> None:
    before, after = (
        question(a_world(drifting("Steady"))),
        question(a_world(drifting("Steady"), wish=wish)),
    )
    assert before
    assert after
    assert before.identity != after.identity


SAID = {
    "measuring": ("Measuring", {"baseline": None}, CALM, ("Unknown", "BaselineMissing")),
    "steady": ("Steady", {}, CALM, ("False", "AcceptanceSteady")),
    "drifted": ("Drifted", {}, CALM, ("True", "AcceptanceDrifted")),
    "recycled": ("Recycled", {"recycles": 1}, CALM, ("True", "PodsRecycled")),
    "no finding": ("Steady", {}, None, ("False", "AcceptanceSteady")),
}


@pytest.mark.parametrize(("state", "fields", "finding", "said"), SAID.values(), ids=SAID.keys())
def test_the_condition_says_how_it_stands(
    state: str, fields: dict[str, Any], finding: DriftFinding | None, said: tuple[str, str]
) -> None:
    decision = look(a_world(drifting(state, **fields)), finding)
    assert not decision.transition
    assert condition(decision) == said


def test_a_revision_without_speculation_has_nothing_to_drift() -> None:
    none = a_digest(STABLE, method="None")
    snapshot = replace(a_world(drifting("Steady")), pods=(a_pod(STABLE, digest=none),))
    assert condition(look(snapshot)) == ("Unknown", "NotConfigured")


def test_a_steady_sentence_does_not_move_with_every_block() -> None:
    snapshot = a_world(drifting("Steady"))
    texts = {
        next(c.message for c in decision.status.conditions if c.type == "AcceptanceDrifted")
        for decision in (look(snapshot, replace(CALM, percent=p)) for p in (98.1, 99.4, 101.9))
    }
    assert len(texts) == 1


def test_alert_says_so_and_touches_nothing() -> None:
    snapshot = a_world(drifting("Steady"))
    decision = look(snapshot, SUNK)
    (event,) = decision.events
    assert (event.reason, event.type) == ("AcceptanceDrifted", "Warning")
    assert "60 percent" in event.message
    assert condition(decision) == ("True", "AcceptanceDrifted")
    after = look(replace(snapshot, status=decision.status), SUNK)
    assert not after.transition
    assert after.status.restart is None
    assert after.shares == (Share(STABLE.hash, 100),)


@pytest.mark.parametrize("state", ["Drifted", "Recycled"])
def test_it_is_over_when_acceptance_is_shown_to_be_back(state: str) -> None:
    decision = look(a_world(drifting(state, recycles=2)), BACK)
    assert [event.reason for event in decision.events] == ["AcceptanceSteady"]
    assert decision.status.drift is not None
    assert (decision.status.drift.state, decision.status.drift.recycles) == ("Steady", 0)


RECYCLES = {
    "the first": ({}, {}, True),
    "after one in vain, too early": ({"recycles": 1, "recycledAt": stamp(14_000)}, {}, False),
    "after one in vain": ({"recycles": 1, "recycledAt": stamp(14_401)}, {}, True),
    "after two in vain, too early": ({"recycles": 2, "recycledAt": stamp(28_000)}, {}, False),
    "after two in vain": ({"recycles": 2, "recycledAt": stamp(28_801)}, {}, True),
    "after one that helped, too early": ({"recycles": 0, "recycledAt": stamp(14_000)}, {}, False),
    "after three in vain": ({"recycles": 3, "recycledAt": stamp(1_000_000)}, {}, False),
    "the last restart stalled": (
        {},
        {"restart": {"hash": STABLE.hash, "at": "x", "stamp": "x", "outcome": "Stalled"}},
        False,
    ),
    "a canary is on trial": ({}, {"canary": OTHER}, False),
}


@pytest.mark.parametrize(("drift", "status", "begins"), RECYCLES.values(), ids=RECYCLES.keys())
def test_pods_are_replaced_later_and_later_and_only_so_often(
    drift: dict[str, Any], status: dict[str, Any], begins: bool
) -> None:
    snapshot = a_world(drifting("Drifted", **drift), "RecyclePods", **status)
    if "canary" in status:
        snapshot = replace(snapshot, words=OTHER)
    decision = look(snapshot, SUNK)
    reasons = [event.reason for event in decision.events]
    assert ("PodsRecycled" in reasons) is begins
    if begins:
        assert decision.status.restart is not None
        assert decision.status.restart.outcome is None
        assert decision.status.drift is not None
        assert decision.status.drift.recycles == drift.get("recycles", 0) + 1
        known = decision.status.drift.baseline
        assert known is not None
        assert known.accepted_tokens == BASELINE["acceptedTokens"]


def test_recycling_in_vain_ends_with_a_condition_and_is_said_once() -> None:
    snapshot = a_world(drifting("Recycled", recycles=3, recycledAt=stamp(1_000_000)), "RecyclePods")
    decision = look(snapshot, SUNK)
    assert [event.reason for event in decision.events] == ["RecyclingInVain"]
    assert condition(decision) == ("True", "RecyclingInVain")
    after = look(replace(snapshot, status=decision.status), SUNK)
    assert not after.transition


def ready_native(count: int) -> list[Any]:
    return [a_pod(NATIVE, number=number) for number in range(count)]


def test_disabling_starts_pods_before_any_traffic_moves() -> None:
    snapshot = a_world(drifting("Drifted"), "DisableSpeculation")
    decision = look(snapshot, SUNK)
    assert [event.reason for event in decision.events] == ["SpeculationDisabled"]
    after = replace(snapshot, status=decision.status)
    decided = look(after)
    assert decided.shares == (Share(STABLE.hash, 100), Share(NATIVE, 0))
    lane = native_lane(after, decided)
    assert lane.wanted is not None
    assert (lane.wanted.hash, lane.wanted.replicas) == (NATIVE, 2)
    assert condition(decided) == ("True", "SpeculationDisabled")


@pytest.mark.parametrize(("ready", "weight"), [(0, 0), (1, 50), (2, 100), (3, 100)])
def test_traffic_moves_as_far_as_those_pods_are_ready(ready: int, weight: int) -> None:
    drift = drifting("Disabled")
    snapshot = a_world(drift, "DisableSpeculation", pods=ready_native(ready))
    assert look(snapshot).shares == (Share(STABLE.hash, 100 - weight), Share(NATIVE, weight))


@pytest.mark.parametrize("trial", [{"canary": OTHER}, {"guard": GUARD}], ids=["canary", "guard"])
def test_a_trial_has_the_traffic_back_at_stable(trial: dict[str, Any]) -> None:
    drift = drifting("Disabled")
    snapshot = a_world(drift, "DisableSpeculation", pods=ready_native(2), **trial)
    wanted = OTHER if "canary" in trial else STABLE
    decision = decide(replace(snapshot, words=wanted))
    shares = {share.hash: share.weight for share in decision.shares}
    assert shares.get(NATIVE, 0) == 0


ENDS = {
    "a person": ({"annotation": f"{STABLE.hash}@1"}, "Recovered", "Steady"),
    "a person, this is normal": (
        {"annotation": f"{STABLE.hash}/rebaseline@1"},
        "Recovered",
        "Measuring",
    ),
    "another action": ({"wish": {"action": "Alert"}}, "SpeculationEnabled", "Drifted"),
}


@pytest.mark.parametrize(("world", "reason", "state"), ENDS.values(), ids=ENDS.keys())
def test_speculation_comes_back(world: dict[str, Any], reason: str, state: str) -> None:
    pods = ready_native(2)
    snapshot = a_world(drifting("Disabled"), "DisableSpeculation", pods=pods, **world)
    decision = look(snapshot)
    assert [event.reason for event in decision.events] == [reason]
    assert decision.status.drift is not None
    assert decision.status.drift.state == state
    assert (decision.status.drift.baseline is None) == (state == "Measuring")
    after = replace(snapshot, status=decision.status)
    assert look(after).shares == (Share(STABLE.hash, 100),)


def test_what_is_named_wrongly_is_refused_once() -> None:
    snapshot = a_world(drifting("Disabled"), "DisableSpeculation", annotation=f"{OTHER.hash}@1")
    decision = look(snapshot)
    assert [event.reason for event in decision.events] == ["RecoverRefused"]
    assert decision.status.drift is not None
    assert decision.status.drift.state == "Disabled"
    assert not look(replace(snapshot, status=decision.status)).transition


FORGOTTEN = {
    "the field was taken out": ({"wish": None}, True),
    "another revision is stable": ({"drift": {"hash": OTHER.hash}}, True),
    "the old one may return": ({"drift": {"hash": OTHER.hash}, "guard": GUARD}, False),
}


@pytest.mark.parametrize(("more", "gone"), FORGOTTEN.values(), ids=FORGOTTEN.keys())
def test_it_is_forgotten_with_its_revision(more: dict[str, Any], gone: bool) -> None:
    more = dict(more)
    drift = drifting("Steady", **more.pop("drift", {}))
    assert (look(a_world(drift, **more)).status.drift is None) is gone


def test_native_pods_stay_until_no_gateway_sends_there() -> None:
    from tests.builders import a_gateway

    snapshot = a_world(drifting("Steady"), "DisableSpeculation", pods=ready_native(2))
    native = a_deployment(NATIVE, track="native", replicas=2)
    snapshot = replace(
        snapshot,
        deployments={**snapshot.deployments, NATIVE: native},
        gateways=(a_gateway({STABLE.hash: 50, NATIVE: 50}),),
    )
    lane = native_lane(snapshot, look(snapshot))
    assert lane.wanted is not None
    assert lane.wanted.replicas == 2
    followed = replace(snapshot, gateways=(a_gateway({STABLE.hash: 100}),))
    assert native_lane(followed, look(followed)).wanted is None


def test_receivers_of_drift_are_told_and_others_are_not() -> None:
    for events, told in ((["Drifted"], [("Drifted", STABLE.hash)]), (None, [])):
        hook = {"urlSecret": {"name": "hook"}} | ({"events": events} if events else {})
        snapshot = a_world(drifting("Steady"))
        rollout = {"drift": {}, "notifications": [hook]}
        snapshot = replace(snapshot, spec=a_spec(k=4, replicas=2, rollout=rollout))
        noted = with_pending(snapshot, look(snapshot, SUNK), told=())
        found = [(item.event, item.hash) for item in noted.status.pending_notifications]
        assert found == told


@dataclass
class Drifting(World):
    """A world with a native lane in which acceptance has sunk or not, as the test says."""

    finding: DriftFinding = CALM
    natives: list[str] = field(default_factory=list)

    def look(self, seconds: float = 1.0) -> Decision:
        asked = question(self.snapshot())
        if asked is not None:
            named = replace(self.finding, identity=asked.identity)
            self.assessment = Assessment(drift=named)
        elif self.assessment.drift is not None:
            self.assessment = QUIET
        return super().look(seconds)

    def _kubernetes(self, decision: Decision) -> None:
        before = {hash_: self.pods.pop(hash_) for hash_ in self.natives if hash_ in self.pods}
        super()._kubernetes(decision)
        lane = native_lane(replace(self.snapshot(), status=decision.status), decision)
        self.natives = []
        for scale in (*((lane.wanted,) if lane.wanted else ()), *lane.leaving):
            had = before.get(scale.hash, [])
            pods = [True for _ in had][: scale.replicas]
            self.pods[scale.hash] = pods + [False] * (scale.replicas - len(pods))
            self.natives.append(scale.hash)


def disabled() -> Drifting:
    rollout = {"drift": {"action": "DisableSpeculation"}, "steps": [{"weight": 50}]}
    world = Drifting(a_spec(k=4, replicas=4, rollout=rollout))
    world.until("StableReady")
    world.finding = COMPLETE
    world.until("BaselineMeasured")
    world.finding = SUNK
    world.until("SpeculationDisabled")
    world.settle()
    return world


def test_every_weight_on_the_way_there_and_back_is_carried_by_ready_pods() -> None:
    world = disabled()
    (native,) = world.natives
    assert world.used == ((STABLE.hash, 0), (native, 100))
    world.annotations[RECOVER] = f"{STABLE.hash}@1"
    world.finding = CALM
    world.until("Recovered")
    world.settle()
    assert world.used == ((STABLE.hash, 100),)
    assert native not in world.pods
    for decision in world.decisions:
        assert sum(share.weight for share in decision.shares) in (0, 100)


def test_a_new_spec_ends_it_and_is_measured_anew() -> None:
    world = disabled()
    spec = world.spec.model_dump(mode="json", by_alias=True)
    spec["speculation"]["numSpeculativeTokens"] = 6
    canary = world.change(type(world.spec).model_validate(spec))
    world.until("CanaryStarting")
    world.settle(3)
    assert dict(world.used)[STABLE.hash] >= 50
    world.finding = CALM
    world.with_assessment(PROVEN).until("Promoted")
    world.until("GuardOver", seconds=60)
    world.settle()
    assert world.status.drift is not None
    assert (world.status.drift.hash, world.status.drift.state) == (canary, "Measuring")
    assert world.used == ((canary, 100),)
