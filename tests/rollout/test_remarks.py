"""What is said of a canary beside its verdict, and silence that holds a rollout."""

import pytest
from tests.builders import a_digest, a_pod, a_snapshot, a_spec, a_status, some_words
from tests.rollout.world import World

from speculative_operator.rollout.remarks import is_silent, remarks

STABLE, CANARY = some_words(4), some_words(6)
DRAFT = {
    "method": "DraftModel",
    "numSpeculativeTokens": 4,
    "draft": {"model": "file:///models/draft"},
}


def said(stable, canary):
    pods = [
        a_pod(STABLE, digest=a_digest(STABLE, **stable)),
        a_pod(CANARY, digest=a_digest(CANARY, **canary)),
    ]
    return remarks(a_snapshot(status=a_status(stable=STABLE, canary=CANARY), pods=pods))


def length(tokens_per_step, **more):
    return {
        "generated_tokens": int(1000 * tokens_per_step),
        "accepted_tokens": int(1000 * (tokens_per_step - 1)),
        **more,
    }


def test_less_cache_than_stable_is_said_with_both_numbers():
    (found,) = said({"kv_cache_blocks": 6200}, {"kv_cache_blocks": 4100})
    assert found.startswith("its KV cache has 4100 blocks, stable's 6200 (66 percent)")


@pytest.mark.parametrize("blocks", [6200, 5600, None])
def test_about_as_much_cache_is_not(blocks):
    assert said({"kv_cache_blocks": 6200}, {"kv_cache_blocks": blocks}) == []


def test_implausibly_high_acceptance_is_a_warning():
    (found,) = said(length(2.9), length(4.9))
    assert "implausibly high: 4.90 tokens per step of at most 5, stable 2.90" in found


@pytest.mark.parametrize(
    "stable, canary",
    [
        pytest.param(length(4.6), length(4.9), id="stable is as high"),
        pytest.param(length(2.0), length(3.5), id="much better and far from the end"),
        pytest.param(length(2.9), {"generated_tokens": 49, "accepted_tokens": 40}, id="too little"),
        pytest.param({}, length(4.9), id="nothing to compare with"),
    ],
)
def test_other_acceptance_is_not(stable, canary):
    assert said(stable, canary) == []


@pytest.mark.parametrize(
    "method, generated, drafted, silent",
    [
        ("DraftModel", 256, 0, True),
        ("Eagle3", 256, None, True),
        ("DraftModel", 256, 8, False),
        ("DraftModel", 0, 0, False),
        ("DraftModel", None, None, False),
        ("NGram", 256, 0, False),
        ("None", 256, None, False),
    ],
)
def test_silence_is_of_methods_that_always_draft(method, generated, drafted, silent):
    digest = a_digest(CANARY, method=method, generated_tokens=generated, draft_tokens=drafted)
    status = a_status(stable=STABLE, canary=CANARY)
    snapshot = a_snapshot(status=status, pods=[a_pod(CANARY, digest=digest)])
    assert is_silent(snapshot, CANARY.hash) is silent


def test_a_silent_canary_gets_no_user_until_it_drafts():
    world = World(a_spec(k=4, rollout={"steps": [{"weight": 50}]}))
    world.until("StableReady")
    world.settle()
    canary = world.change(a_spec(speculation=DRAFT, rollout={"steps": [{"weight": 50}]}))
    quiet = a_digest(canary, method="DraftModel", generated_tokens=256, draft_tokens=0)
    world.digests[canary] = quiet
    for _ in range(50):
        world.look(10)
    (condition,) = [c for c in world.status.conditions if c.type == "Progressing"]
    assert condition.reason == "NotDrafting"
    assert "drafted none of 256 generated tokens" in condition.message
    assert dict(world.used).get(canary, 0) == 0
    assert [event.reason for event in world.events].count("NotDrafting") == 1
    world.digests[canary] = quiet.model_copy(update={"draft_tokens": 4})
    world.until("CanaryWeightObserved")


@pytest.mark.parametrize(
    "phase, detail, shown",
    [
        ("Downloading", "3.1 of 16.0 GiB", "is Downloading (3.1 of 16.0 GiB)."),
        ("Compiling", "", "is Compiling."),
    ],
)
def test_a_starting_pod_says_how_far_it_is(phase, detail, shown):
    digest = a_digest(CANARY, ready=False, phase=phase, phase_detail=detail)
    snapshot = a_snapshot(pods=[a_pod(CANARY, ready=False, digest=digest)])
    assert snapshot.waiting_reason(CANARY.hash).endswith(shown)
