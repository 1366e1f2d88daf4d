"""A restart: when it begins, when it is over, when it is given up."""

from dataclasses import replace
from typing import Any

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

from speculative_api.labels import RESTART
from speculative_api.worker import Termination
from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import Snapshot, WorkerPod

STABLE, OTHER = some_words(4), some_words(6)
GUARD = {"revision": 1, "hash": OTHER.hash, "startedAt": stamp(10), "weight": 5}
BEGAN = stamp(300)
BROKEN = Termination(reason="InvalidArguments", retryable=False, detail="no such flag")
SHAKY = Termination(reason="EngineCrashed", retryable=True, detail="signal 11")


def asked(value: str, **status: Any) -> Snapshot:
    return a_snapshot(
        a_spec(k=4, replicas=2),
        status=a_status(stable=STABLE, **status),
        annotations={RESTART: value.format(stable=STABLE.hash, other=OTHER.hash)},
        revisions=[a_record(STABLE)],
        deployments=[replace(a_deployment(STABLE, replicas=2), restarted_at="before")],
        pods=[a_pod(STABLE), a_pod(STABLE, number=1)],
    )


def reasons(snapshot: Snapshot) -> list[str]:
    return [event.reason for event in decide(snapshot).events]


def test_it_begins_when_stable_is_named_and_remembers_what_was_before() -> None:
    decision = decide(asked("{stable}@a"))
    assert [event.reason for event in decision.events] == ["Restarting"]
    restart = decision.status.restart
    assert restart is not None
    assert (restart.hash, restart.stamp_before, restart.render) == (STABLE.hash, "before", None)
    assert decision.status.observed_restart == f"{STABLE.hash}@a"
    progressing = next(c for c in decision.status.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("True", "Restarting")
    assert "0 of 2 pods replaced" in progressing.message


def test_a_value_is_acted_on_once() -> None:
    snapshot = asked("{stable}@a", observedRestart=f"{STABLE.hash}@a")
    assert decide(snapshot).status.restart is None


@pytest.mark.parametrize("before, render", [(None, 3), ({"render": 4}, 5)])
def test_a_rerender_takes_the_next_number(before: dict[str, int] | None, render: int) -> None:
    last = {"hash": STABLE.hash, "at": BEGAN, "stamp": BEGAN, "outcome": "Reverted"}
    snapshot = asked("{stable}/rerender@a", **({"restart": last | before} if before else {}))
    record = replace(a_record(STABLE), render=2)
    restart = decide(replace(snapshot, revisions={STABLE.hash: record})).status.restart
    assert restart is not None
    assert restart.render == render


@pytest.mark.parametrize("value", ["{other}@a", "{stable}/other@a", "nonsense", "{stable}/@a"])
def test_what_is_not_stable_is_refused_once_and_said(value: str) -> None:
    snapshot = asked(value)
    decision = decide(snapshot)
    assert [event.reason for event in decision.events] == ["RestartRefused"]
    assert decision.status.restart is None
    again = decide(replace(snapshot, status=decision.status))
    assert not again.transition


@pytest.mark.parametrize(
    "trial",
    [
        {"canary": OTHER},
        {"guard": GUARD},
        {"retiring": [{"hash": OTHER.hash, "since": stamp(1)}]},
    ],
    ids=["canary", "guard", "retiring"],
)
def test_it_waits_for_the_end_of_a_trial(trial: dict[str, Any]) -> None:
    snapshot = asked("{stable}@a", **trial)
    if "canary" in trial:
        snapshot = replace(snapshot, words=OTHER)
    decision = decide(snapshot)
    assert decision.status.restart is None
    assert decision.status.observed_restart is None


def under_way(
    *pods: WorkerPod, seconds: float = 300, render: int | None = None, **spec: Any
) -> Snapshot:
    restart = {"hash": STABLE.hash, "at": stamp(seconds), "stamp": stamp(seconds), "render": render}
    return a_snapshot(
        a_spec(k=4, replicas=2, rollout={"progressDeadlineSeconds": 600}, **spec),
        status=a_status(stable=STABLE, restart=restart),
        pods=pods,
    )


def new(number: int, *, seconds: float = 300, **fields: Any) -> WorkerPod:
    return a_pod(STABLE, number=number, restarted_at=stamp(seconds), **fields)


def old(number: int, **fields: Any) -> WorkerPod:
    return a_pod(STABLE, number=number, restarted_at="before", **fields)


OVER = {
    "all replaced": ((new(1), new(2)), True),
    "an old one drains": ((new(1), new(2), old(0, terminating=True)), True),
    "an old one serves": ((new(1), new(2), old(0)), False),
    "a new one starts": ((new(1), new(2, ready=False)), False),
    "one is missing": ((new(1),), False),
    "nothing happened": ((old(0), old(1)), False),
}


@pytest.mark.parametrize(("pods", "over"), OVER.values(), ids=OVER.keys())
def test_it_is_over_when_every_pod_is_new_and_ready(
    pods: tuple[WorkerPod, ...], over: bool
) -> None:
    assert reasons(under_way(*pods)) == (["Restarted"] if over else [])


def test_without_replicas_there_is_nothing_to_wait_for() -> None:
    snapshot = replace(under_way(), spec=a_spec(k=4, replicas=0))
    assert reasons(snapshot) == ["Restarted"]


def test_no_trial_begins_meanwhile() -> None:
    snapshot = replace(under_way(old(0), old(1)), words=OTHER)
    assert reasons(snapshot) == []
    done = replace(snapshot, pods=(new(1), new(2)))
    after = decide(done)
    assert reasons(replace(done, status=after.status)) == ["CanaryStarting"]


STALLS = {
    "in time": ((old(0), new(1, ready=False)), 599.0, False),
    "too late": (
        (old(0), new(1, seconds=601, ready=False, waiting_reason="Unschedulable: no GPU")),
        601.0,
        True,
    ),
    "one became ready meanwhile": (
        (old(0), new(1, seconds=900, ready_at=NOW.timestamp() - 300)),
        900.0,
        False,
    ),
    "and none after it": (
        (old(0), new(1, seconds=900, ready_at=NOW.timestamp() - 700)),
        900.0,
        True,
    ),
    "can never start": ((old(0), new(1, ready=False, termination=BROKEN)), 300.0, True),
    "crashed once": ((old(0), new(1, ready=False, termination=SHAKY, restarts=1)), 300.0, False),
    "crash loop": ((old(0), new(1, ready=False, termination=SHAKY, restarts=3)), 300.0, True),
    "an old one crashes": ((old(0, termination=SHAKY, restarts=9), new(1)), 300.0, False),
}


@pytest.mark.parametrize("render", [None, 1], ids=["same template", "rerender"])
@pytest.mark.parametrize(("pods", "seconds", "stalls"), STALLS.values(), ids=STALLS.keys())
def test_it_is_given_up_when_nothing_moves(
    pods: tuple[WorkerPod, ...], seconds: float, stalls: bool, render: int | None
) -> None:
    decision = decide(under_way(*pods, seconds=seconds, render=render))
    restart = decision.status.restart
    assert restart is not None
    assert restart.outcome == (("Reverted" if render else "Stalled") if stalls else None)
    if stalls:
        progressing = next(c for c in decision.status.conditions if c.type == "Progressing")
        assert (progressing.status, progressing.reason) == ("False", "RestartStalled")
        assert progressing.message == restart.message
        assert "taken back" in restart.message or render is None


def test_a_stalled_one_is_done_when_the_pods_come_after_all() -> None:
    snapshot = under_way(old(0), new(1, seconds=601, ready=False), seconds=601)
    snapshot = replace(snapshot, status=decide(snapshot).status)
    assert reasons(snapshot) == []
    pods = (new(1, seconds=601), new(2, seconds=601))
    assert reasons(replace(snapshot, pods=pods)) == ["Restarted"]
