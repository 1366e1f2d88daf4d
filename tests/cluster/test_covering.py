"""Live covers desired: more is allowed, other spellings of a quantity too, less is not."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.cluster.covering import covers, digest

BODIES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "live,desired,expected",
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 1}, False),
        ({"cpu": "500m"}, {"cpu": "0.5"}, True),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({"memory": "1G"}, {"memory": "1Gi"}, False),
        ({"gpu": "1"}, {"gpu": 1}, True),
        ({"on": True}, {"on": 1}, True),
        ({"on": True}, {"on": False}, False),
        ({}, {"on": False, "text": "", "number": 0, "block": {}, "list": []}, True),
        ({}, {"on": True}, False),
        ({"replicas": 1}, {"replicas": 0}, False),
        ({"items": [{"name": "a", "x": 1, "y": 2}]}, {"items": [{"name": "a", "x": 1}]}, True),
        ({"items": [{"name": "b"}, {"name": "a"}]}, {"items": [{"name": "a"}]}, True),
        ({"items": [{"name": "a"}]}, {"items": [{"name": "a"}, {"name": "b"}]}, False),
        ({"args": ["run", "x"]}, {"args": ["run"]}, False),
        ({"args": ["run"]}, {"args": ["run"]}, True),
        ({"data": {"a": "1"}}, {"data": {"a": "2"}}, False),
    ],
)
def test_covers(live: Any, desired: Any, expected: bool) -> None:
    assert covers(live, desired) is expected


@given(BODIES)
def test_a_digest_stays_what_former_versions_wrote_on_objects(body: Any) -> None:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert digest(body) == hashlib.sha256(text.encode()).hexdigest()[:16]
