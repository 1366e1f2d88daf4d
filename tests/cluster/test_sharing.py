"""Equal parts are kept once, and nothing reads differently for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.cluster import sharing
from speculative_operator.cluster.sharing import Shared

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def spelt(value: Any) -> str:
    """Tells 1 from True and [] from {}, unlike `==`, and the order of keys too."""
    return repr(value)


@given(st.lists(VALUES, max_size=8))
def test_what_is_shared_reads_the_same(values: list[Any]) -> None:
    shared = Shared()
    kept = [shared.of(value) for value in values]
    assert [spelt(value) for value in kept] == [spelt(value) for value in values]


def test_equal_parts_of_different_objects_are_one() -> None:
    shared = Shared()
    first = shared.of({"spec": {"probe": {"path": "/livez"}, "name": "first"}})
    second = shared.of({"spec": {"probe": {"path": "/livez"}, "name": "second"}})
    assert first["spec"]["probe"] is second["spec"]["probe"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST", 10)
    shared = Shared()
    for number in range(100):
        assert shared.of({"name": str(number)}) == {"name": str(number)}
        assert shared.remembered <= 10 + 4
