"""Figures in status: what pods report, as far as it can be true."""

import pytest
from tests.builders import a_digest, a_pod, some_words

from speculative_operator.rollout.status import acceptance_length

STABLE = some_words()


@pytest.mark.parametrize(
    ("generated", "accepted", "shown"),
    [
        (300, 200, "3.00"),
        (0, 0, None),
        (10, 20, None),
        (2**53, 2**53 - 1, None),
    ],
    ids=["usual", "nothing yet", "more accepted than generated", "more than an engine can"],
)
def test_acceptance_length_is_shown_only_where_it_can_be_true(
    generated: int, accepted: int, shown: str | None
) -> None:
    digest = a_digest(STABLE, generated_tokens=generated, accepted_tokens=accepted)
    assert acceptance_length([a_pod(STABLE, digest=digest)]) == shown
