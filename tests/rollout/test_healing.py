"""Times that somebody garbled by hand break no pass and stop no clock."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import NOW, a_snapshot, a_status, some_words, stamp

from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.rollout.decide import decide
from speculative_operator.rollout.healing import healed
from speculative_operator.rollout.times import moment

FIRST, SECOND = some_words(4), some_words(5)
PATHS = [
    ("stable", "availableAt"),
    ("canary", "startedAt"),
    ("canary", "stepStartedAt"),
    ("canary", "weightObservedAt"),
    ("canary", "unreadySince"),
    ("guard", "startedAt"),
    ("retiring", 0, "since"),
    ("retiring", 0, "routeRemovedAt"),
    ("failedRevisions", 0, "at"),
    ("verdict", "at"),
    ("conditions", 0, "lastTransitionTime"),
]
GARBLED = ["", "yesterday", "2026-01-02", "2026-01-02T03:04:05", "2999-01-01T00:00:00Z", "0"]


def a_full_status() -> dict[str, Any]:
    old = stamp(600)
    status = a_status(
        stable=FIRST,
        canary=SECOND,
        canaryFields={"step": 1, "weight": 5, "weightObservedAt": old, "unreadySince": old},
        guard={"revision": 1, "hash": "g" * 10, "startedAt": old, "weight": 5},
        retiring=[{"hash": "r" * 10, "since": old, "routeRemovedAt": old}],
        failedRevisions=[{"hash": "f" * 10, "reason": "ErrorsWorse", "at": old}],
        verdict={
            "hash": "f" * 10,
            "outcome": "RolledBack",
            "reason": "x",
            "message": "",
            "at": old,
        },
        conditions=[
            {"type": "Available", "status": "True", "reason": "x", "lastTransitionTime": old}
        ],
    )
    found: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def times_of(value: Any) -> list[str]:
    """Everything in a status that looks like one of its times."""
    if isinstance(value, dict):
        mine = [v for k, v in value.items() if k.endswith(("At", "Since", "at", "since", "Time"))]
        return [t for t in mine if isinstance(t, str)] + [
            t for v in value.values() for t in times_of(v)
        ]
    return [t for v in value for t in times_of(v)] if isinstance(value, list) else []


def test_the_table_names_every_time_of_the_status() -> None:
    assert len(times_of(a_full_status())) == len(PATHS)


@pytest.mark.parametrize("text", GARBLED)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_a_garbled_time_becomes_now_and_the_pass_goes_on(path: tuple[Any, ...], text: str) -> None:
    raw = a_full_status()
    place = raw
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = text
    found = healed(SpeculativeDeploymentStatus.model_validate(raw), NOW)
    now = found.model_dump(mode="json", by_alias=True)
    for step in path:
        now = now[step]
    assert moment(str(now)) == NOW
    decide(a_snapshot(status=found))


def test_good_times_stay_as_they_are() -> None:
    status = SpeculativeDeploymentStatus.model_validate(a_full_status())
    assert healed(status, NOW) is status


@settings(deadline=None)
@given(st.text(max_size=40) | st.datetimes().map(str) | st.datetimes().map(lambda d: f"{d}Z"))
def test_whatever_is_written_there_the_result_is_readable_and_healing_is_done(text: str) -> None:
    raw = json.loads(json.dumps(a_full_status()))
    raw["canary"]["stepStartedAt"] = text
    found = healed(SpeculativeDeploymentStatus.model_validate(raw), NOW)
    assert healed(found, NOW) is found
    assert found.canary is not None
    moment(found.canary.step_started_at)
    decide(a_snapshot(status=found))
