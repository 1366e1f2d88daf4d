"""When status is written: facts at once, figures and sentences rarely, nothing for nothing."""

from typing import Any

import pytest
from tests.builders import a_status, some_words, stamp

from speculative_api.v1alpha1 import Condition, SpeculativeDeploymentStatus
from speculative_operator.cluster.publishing import is_due, with_condition

WORDS = some_words()


def status(
    *, ready: int = 1, length: str | None = "2.50", state: str = "True", message: str = "m"
) -> SpeculativeDeploymentStatus:
    condition = {
        "type": "Available",
        "status": state,
        "reason": "StableReady",
        "message": message,
        "lastTransitionTime": stamp(),
    }
    fields: dict[str, Any] = {"readyReplicas": ready, "acceptanceLength": length}
    return a_status(stable=WORDS, conditions=[condition], message=message, stableFields=fields)


@pytest.mark.parametrize(
    "wanted,seconds,expected",
    [
        (status(), 1e9, False),
        (status(ready=0), 0.0, True),
        (status(state="False"), 0.0, True),
        (status(length="3.50"), 59.0, False),
        (status(length="3.50"), 60.0, True),
        (status(length="2.54"), 1e9, False),
        (status(length=None), 1e9, False),
        (status(message="other"), 59.0, False),
        (status(message="other"), 60.0, True),
    ],
    ids=[
        "nothing new",
        "count",
        "state",
        "figure, soon",
        "figure, a minute later",
        "figure hardly moved",
        "figure missing for a moment",
        "sentence, soon",
        "sentence, a minute later",
    ],
)
def test_is_due(wanted: SpeculativeDeploymentStatus, seconds: float, expected: bool) -> None:
    assert is_due(status(), wanted, seconds_since_write=seconds) is expected


@pytest.mark.parametrize("reason", ["RouteNotAccepted", "PoolNotAccepted"])
def test_what_a_gateways_controller_says_is_written_at_once(reason: str) -> None:
    def refused(words: str) -> SpeculativeDeploymentStatus:
        told = {"type": "GatewayReady", "status": "False", "reason": reason, "message": words}
        return a_status(stable=WORDS, conditions=[told | {"lastTransitionTime": stamp()}])

    assert is_due(refused("no listener"), refused("no such Gateway"), seconds_since_write=0.0)
    assert not is_due(refused("no listener"), refused("no listener"), seconds_since_write=1e9)


def test_first_figure_is_written() -> None:
    assert is_due(status(length=None), status(), seconds_since_write=60.0)


def a_condition(state: Any, message: str, time: str) -> Condition:
    return Condition(
        type="Accepted",
        status=state,
        reason="InvalidSpec",
        message=message,
        last_transition_time=time,
    )


def test_condition_keeps_its_time_until_its_state_changes() -> None:
    first = with_condition(status(), a_condition("False", "a", stamp(60)))
    second = with_condition(first, a_condition("False", "b", stamp()))
    assert second.conditions[0].last_transition_time == stamp(60)
    assert second.conditions[0].message == "b"
    third = with_condition(second, a_condition("True", "b", stamp()))
    assert third.conditions[0].last_transition_time == stamp()
    assert [c.type for c in third.conditions] == ["Accepted", "Available"]
    assert with_condition(third, a_condition("True", "b", stamp(5))) == third
