"""Every rendered object of every golden case as text; `python -m tests.golden` updates it."""

import pytest
from tests.golden import cases


@pytest.mark.parametrize("case", cases.names())
def test_rendered_objects_are_as_reviewed(case: str) -> None:
    assert cases.rendered(case) == (cases.FOLDER / case / "output.yaml").read_text("utf-8")
