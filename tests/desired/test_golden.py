"""Every rendered object of every golden case as text; `python -m tests.golden` updates it."""

import pytest
from tests.golden import cases

from speculative_operator.desired.inputs import inputs_of
from speculative_operator.desired.objects import desired_objects


@pytest.mark.parametrize("case", cases.names())
def test_rendered_objects_are_as_reviewed(case: str) -> None:
    assert cases.rendered(case) == (cases.FOLDER / case / "output.yaml").read_text("utf-8")


@pytest.mark.parametrize("case", cases.of_one_resource())
def test_objects_follow_from_what_is_compared_between_passes(case: str) -> None:
    snapshot, decision = cases.world(case)
    assert desired_objects(inputs_of(snapshot), decision, cases.SETTINGS) == desired_objects(
        snapshot, decision, cases.SETTINGS
    )
