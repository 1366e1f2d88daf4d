"""A canary without room waits longer while a node is on its way, and not for ever."""

from dataclasses import replace

import pytest
from tests.builders import (
    NOW,
    a_deployment,
    a_pod,
    a_record,
    a_snapshot,
    a_spec,
    a_status,
    some_words,
    stamp,
)

from speculative_operator.rollout.blocked import waits_for_room
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import NodeNews, Snapshot

STABLE, CANARY = some_words(4), some_words(5)
DEADLINE = 600
NO_ROOM = "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def a_world(waited: float, *, why: str = NO_ROOM, news: float | None = None) -> Snapshot:
    """A canary that began so long ago; `news` are seconds since a node was announced."""
    snapshot = a_snapshot(
        a_spec(k=5, rollout={"progressDeadlineSeconds": DEADLINE}),
        status=a_status(stable=STABLE, canary=CANARY, canaryFields={"startedAt": stamp(waited)}),
        revisions=[a_record(STABLE), a_record(CANARY, number=2)],
        deployments=[a_deployment(STABLE), a_deployment(CANARY, track="canary", ready=0)],
        pods=[a_pod(STABLE), a_pod(CANARY, ready=False, waiting_reason=why)],
    )
    if news is None:
        return snapshot
    at = NOW.timestamp() - news
    return replace(snapshot, node_news=NodeNews(at, "cluster-autoscaler: 1->2"))


@pytest.mark.parametrize(
    ("world", "asked"),
    [
        (a_world(DEADLINE - 61), False),
        (a_world(DEADLINE - 59), True),
        (a_world(DEADLINE + 500), True),
        (a_world(DEADLINE, why="ImagePullBackOff: no such image"), False),
        (replace(a_world(DEADLINE), status=a_status(stable=STABLE)), False),
    ],
    ids=["early", "soon over", "over", "for an image", "no canary"],
)
def test_events_are_asked_for_only_when_they_matter(world: Snapshot, asked: bool) -> None:
    assert bool(waits_for_room(world)) is asked


@pytest.mark.parametrize(
    ("world", "kept"),
    [
        (a_world(DEADLINE - 1), True),
        (a_world(DEADLINE + 1), False),
        (a_world(DEADLINE + 1, news=100), True),
        (a_world(DEADLINE + 1, news=901), False),
        (a_world(DEADLINE + 1799, news=10), True),
        (a_world(DEADLINE + 1800, news=10), False),
        (a_world(DEADLINE + 1, why="CrashLoopBackOff: x", news=10), False),
    ],
    ids=[
        "in time",
        "nobody says so",
        "a node comes",
        "it never came",
        "again and again",
        "for ever",
        "not for want of room",
    ],
)
def test_the_deadline_moves_while_a_node_comes(world: Snapshot, kept: bool) -> None:
    assert (decide(world).status.canary is not None) is kept


def test_the_message_says_who_said_so() -> None:
    message = decide(a_world(DEADLINE + 1, news=100)).status.message
    assert "A node is on its way (cluster-autoscaler: 1->2)" in message
