"""A verdict over sticky sessions says what its bound assumes."""

import pytest
from tests.builders import a_snapshot, a_spec

from speculative_operator.rollout.transition import BY_SESSION, VerdictOutcome, verdict


@pytest.mark.parametrize(
    ("gateway", "outcome", "said"),
    [
        ({"sessionAffinityHeader": "x-session-id"}, "Promoted", True),
        ({"sessionAffinityHeader": "x-session-id"}, "RolledBack", True),
        ({"sessionAffinityHeader": "x-session-id"}, "GuardPassed", True),
        ({"sessionAffinityHeader": "x-session-id"}, "Aborted", False),
        ({}, "Promoted", False),
    ],
    ids=["promoted", "rolled back", "guard passed", "a person's word", "not sticky"],
)
def test_what_a_verdict_assumes(
    gateway: dict[str, object], outcome: VerdictOutcome, said: bool
) -> None:
    snapshot = a_snapshot(a_spec(gateway=gateway))
    found = verdict(snapshot, "a" * 10, outcome=outcome, reason="R", message="41 percent" * 500)
    assert found.message.endswith(BY_SESSION) == said
    assert len(found.message) <= 4000
