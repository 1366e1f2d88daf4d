"""What several nodes for a replica go with, said by the schema or the engine's table."""

from typing import Any

import pytest
from tests.api.test_validation import a_manifest

from speculative_api.v1alpha1 import MAX_GROUP_NAME_LENGTH
from speculative_api.validation import problems

TARGET = {"model": "file:///m", "tensorParallelSize": 4, "nodesPerReplica": 2}
SPOT = {"spot": {"nodeLabel": {"key": "capacity", "value": "spot"}, "percent": 50}}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "uneven": ({"target": TARGET | {"nodesPerReplica": 3}}, "target.nodesPerReplica", "multiple"),
    "more nodes than GPUs": (
        {"target": TARGET | {"nodesPerReplica": 8}},
        "target.nodesPerReplica",
        "multiple",
    ),
    "copies": (
        {"target": TARGET | {"dataParallelSize": 2}},
        "target.dataParallelSize",
        "raise spec.replicas instead",
    ),
    "spot": ({"target": TARGET, "pod": SPOT}, "pod.spot", "ends its whole group"),
    "an engine of before": (
        {"target": TARGET, "engine": {"version": "0.11.2"}},
        "target.nodesPerReplica",
        "spans nodes over Ray alone",
    ),
    "its flag": (
        {"target": TARGET, "engine": {"extraArgs": ["--nnodes=2"]}},
        "engine.extraArgs",
        "target.nodesPerReplica says this already",
    ),
    "the worker's flags": (
        {"target": TARGET, "engine": {"extraArgs": ["--master-addr", "x"]}},
        "engine.extraArgs",
        "the worker sets what target.nodesPerReplica needs",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_refused(case: tuple[dict[str, Any], str, str]) -> None:
    spec, field, words = case
    found = [p for p in problems(a_manifest(**spec)) if p.severity == "error"]
    assert [(field in p.field, words in p.message) for p in found] == [(True, True)]


@pytest.mark.parametrize("target", [TARGET, TARGET | {"nodesPerReplica": 4}])
def test_taken(target: dict[str, Any]) -> None:
    assert not [p for p in problems(a_manifest(target=target)) if p.severity == "error"]


def test_a_group_s_pods_need_room_for_their_names() -> None:
    longest = "c" * MAX_GROUP_NAME_LENGTH
    # `controller-revision-hash`: the follower's StatefulSet, a hyphen, at most 10 characters.
    assert len(f"{longest}-{'a' * 10}-g-1000-{'b' * 10}") == 63
    assert not problems(a_manifest(longest, target=TARGET))
    (problem,) = problems(a_manifest(longest + "c", target=TARGET))
    assert "34 characters with target.nodesPerReplica above 1" in problem.message
    assert not problems(a_manifest(longest + "c"))
