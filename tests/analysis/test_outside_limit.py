"""Figures beyond the limit are told apart from evidence: time must not advance such a canary."""

import pytest

from speculative_operator.analysis import messages
from speculative_operator.analysis.sequential import Contrast, ErrorEvidence, MeanEvidence
from speculative_operator.decision import MetricVerdict, Outcome

NEEDED = {"failed": False, "needed_worse": 200.0, "needed_not_worse": 20.0, "missing": ""}


def acceptance_of(block: Contrast) -> MetricVerdict:
    return messages.acceptance(MeanEvidence(limit=0.9).add(block), **NEEDED)  # type: ignore[arg-type]


def errors_of(block: Contrast) -> MetricVerdict:
    return messages.errors(ErrorEvidence(limit=0.01).add(block), **NEEDED)  # type: ignore[arg-type]


def test_one_block_far_below_the_limit_proves_nothing_and_is_outside() -> None:
    found = acceptance_of(Contrast(0, 90, 200, 90))
    assert (found.outcome, found.outside_limit) == (Outcome.INCONCLUSIVE, True)
    assert found.worse < 3


def test_acceptance_within_the_limit_is_not_outside() -> None:
    assert not acceptance_of(Contrast(190, 90, 200, 90)).outside_limit


@pytest.mark.parametrize(
    "block, outside",
    [
        (Contrast(2, 50, 0, 50), False),
        (Contrast(3, 50, 0, 50), True),
        (Contrast(3, 50, 3, 50), False),
    ],
    ids=["two failures say nothing", "three in fifty", "stable fails as often"],
)
def test_errors_are_outside_from_three_failures_on(block: Contrast, outside: bool) -> None:
    assert errors_of(block).outside_limit is outside
