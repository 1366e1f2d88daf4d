"""Contradictions that are known without a pod; each message names the field and the remedy."""

from typing import Any

import pytest
from tests.builders import a_spec

from speculative_operator.desired.checks import findings
from speculative_operator.settings import Settings


def found(**changes: Any) -> tuple[str, ...]:
    return findings(a_spec(**changes), name="chat", settings=Settings())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pod": {"env": [{"value": "1"}]}}, ["spec.pod.env[0]", "has no name"]),
        (
            {"pod": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
            ["sets A 2 times", "keep one"],
        ),
        ({"pod": {"env": [{"name": "POD_NAME", "value": "x"}]}}, ["POD_NAME", "remove it"]),
        (
            {"pod": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
            ["resources.limits", "nvidia.com/gpu", "tensorParallelSize"],
        ),
        ({"pod": {"resources": {"limit": {}}}}, ["resources.limit is unknown"]),
        ({"pod": {"resources": {"limits": 3}}}, ["resources.limits must map"]),
        ({"target": {"model": "file:///usr/lib"}}, ["file:///usr/lib", "hide"]),
        ({"target": {"model": "file:////"}}, ["hide"]),
        (
            {"gateway": {"allowedCidrs": ["10.0.0.0/8", "10.0.0.1/8"]}},
            ["spec.gateway.allowedCidrs[1]", "10.0.0.1/8", "write an address range"],
        ),
        ({"target": {"model": "pvc://claim/../x"}}, ["'..'"]),
        (
            {"pod": {"annotations": {f"a{i}": "x" * 4096 for i in range(70)}}},
            ["spec.pod is too long", "262144"],
        ),
    ],
)
def test_finding(changes: dict[str, Any], words: list[str]) -> None:
    messages = found(**changes)
    assert len(messages) == 1
    assert [word for word in words if word not in messages[0]] == []


def test_a_good_spec_has_no_findings() -> None:
    assert found() == ()
    assert found(pod={"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}) == ()
