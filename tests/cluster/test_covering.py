"""Live covers desired: more is allowed, other spellings of a quantity too, less is not."""

from typing import Any

import pytest

from speculative_operator.cluster.covering import covers


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
