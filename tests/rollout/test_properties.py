"""Invariants under any order of events: weights, order of removal, stable's capacity."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_spec
from tests.rollout.assessments import ALL_FAILED, NOTHING, PROVEN, QUIET, UNKNOWN, WORSE
from tests.rollout.world import World

from speculative_api.labels import ABORT, PROMOTE, RETRY
from speculative_api.worker import Termination
from speculative_operator.decision import Decision

ROLLOUT = {
    "steps": [
        {"shadow": {"percent": 30, "durationSeconds": 60}},
        {"weight": 20},
        {"pause": {"durationSeconds": 60}},
        {"weight": 60},
    ],
    "guard": {"durationSeconds": 60},
    "progressDeadlineSeconds": 120,
}
END = Termination(reason="VocabularyMismatch", retryable=False, detail="sizes differ")

ACTIONS = st.one_of(
    st.tuples(st.just("spec"), st.integers(2, 5)),
    st.tuples(
        st.just("assess"), st.sampled_from([WORSE, PROVEN, QUIET, NOTHING, UNKNOWN, ALL_FAILED])
    ),
    st.tuples(st.just("unready"), st.integers(2, 5)),
    st.tuples(st.just("heal"), st.none()),
    st.tuples(st.just("end"), st.integers(2, 5)),
    st.tuples(st.just("active"), st.integers(0, 3)),
    st.tuples(st.just("silent"), st.booleans()),
    st.tuples(st.just("say"), st.sampled_from([ABORT, PROMOTE, RETRY, "full", "skip"])),
    st.tuples(st.just("replicas"), st.integers(0, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 40.0, 200.0])),
)


def act(world: World, action: str, value: object) -> float:
    """Does one thing to the world; returns the seconds the next look is away."""
    spec, status = world.spec, world.status
    known = [part.hash for part in (status.canary, status.stable) if part]
    match action:
        case "spec":
            world.change(a_spec(k=int(str(value)), replicas=spec.replicas, rollout=ROLLOUT))
        case "assess":
            world.assessment = value  # type: ignore[assignment]
        case "unready":
            world.unready |= set(known[:1])
        case "heal":
            world.unready.clear()
            world.ends.clear()
        case "end":
            world.ends |= dict.fromkeys(known[:1], END)
        case "active":
            world.active = dict.fromkeys(known[:1], int(str(value)))
        case "silent":
            world.silent = bool(value)
        case "say":
            step = status.canary.step if status.canary else 0
            name = known[0] if known else "0" * 10
            world.annotations = {
                ABORT: {ABORT: name},
                PROMOTE: {PROMOTE: f"{name}/{step}"},
                "full": {PROMOTE: f"{name}/full"},
                "skip": {PROMOTE: f"{name}/{step}/skip"},
                RETRY: {RETRY: f"{name}@{len(world.decisions)}"},
            }[str(value)]
        case "replicas":
            k = spec.speculation.num_speculative_tokens
            world.change(a_spec(k=k, replicas=int(str(value)), rollout=ROLLOUT))
        case "wait":
            return float(str(value))
    return 1.0


def check_copies(world: World, decision: Decision) -> None:
    """Copies are for a ready canary without users, beside stable that has them all."""
    copies = decision.copies
    if copies is None:
        return
    weights = {share.hash: share.weight for share in decision.shares}
    assert copies.hash in weights
    if copies.percent:
        assert (weights[copies.hash], decision.shares[0].weight) == (0, 100)
        assert world.looked is not None
        assert world.looked.ready_pods(copies.hash) > 0


def check(world: World) -> None:
    decision, status = world.decisions[-1], world.status
    if decision.shares:
        assert sum(share.weight for share in decision.shares) == 100
        assert all(0 <= share.weight <= 100 for share in decision.shares)
    hashes = [share.hash for share in decision.shares]
    assert len(set(hashes)) == len(hashes)
    scaled = [scale.hash for scale in decision.scales]
    assert len(set(scaled)) == len(scaled)
    assert set(hashes) <= set(scaled)
    check_copies(world, decision)
    assert not (status.canary and status.guard)
    if status.stable is not None:
        assert hashes[0] == status.stable.hash
        assert status.stable.hash not in {entry.hash for entry in status.retiring}
        kept = next(s.replicas for s in decision.scales if s.hash == status.stable.hash)
        if status.stable.available_at is not None:
            assert kept == world.spec.replicas
    if status.canary is not None:
        assert status.canary.weight <= 60
        assert status.canary.hash not in {entry.hash for entry in status.failed_revisions}


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=30))
def test_invariants_hold_whatever_happens(actions: list[tuple[str, object]]) -> None:
    world = World(a_spec(k=4, rollout=ROLLOUT))
    for action, value in actions:
        seconds = act(world, action, value)
        for _ in range(3):
            world.look(seconds)
            check(world)


@settings(max_examples=80, deadline=None)
@given(st.lists(ACTIONS, max_size=20))
def test_everything_settles_and_a_settled_world_is_left_alone(
    actions: list[tuple[str, object]],
) -> None:
    world = World(a_spec(k=4, rollout=ROLLOUT))
    for action, value in actions:
        world.look(act(world, action, value))
    world.unready.clear()
    world.ends.clear()
    world.active.clear()
    world.silent = False
    world.assessment = QUIET
    for _ in range(60):
        world.look(20)
    world.settle()
    before = world.status
    decision = world.look(0)
    assert not decision.transition
    assert decision.status == before
    assert not world.status.retiring
    assert world.status.guard is None
