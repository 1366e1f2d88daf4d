"""Figures beyond the limit are told apart from evidence: time must not advance such a canary."""

import pytest

from speculative_operator.analysis import messages
from speculative_operator.analysis.bounds import Floors
from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.sequential import Contrast, MeanEvidence
from speculative_operator.decision import MetricVerdict, Outcome

NEEDED = messages.Needed(200.0, 20.0, failed=False)
NO_BOUND = Floors.of("AcceptanceLength", factor=None, absolute=None)


def acceptance_of(block: Contrast) -> MetricVerdict:
    found = MeanEvidence(limit=0.9).add(block)
    sides = (found.worse, found.not_worse)
    return messages.acceptance(found, NO_BOUND, NEEDED, sides=sides, missing="")


def errors_of(block: Contrast) -> MetricVerdict:
    found, refused = ErrorEvidence(limit=0.01).add(block), ErrorEvidence(limit=0.01)
    sides = (found.worse, found.not_worse)
    return messages.errors(found, refused, (), NEEDED, sides=sides, sticky=False, missing="")


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
