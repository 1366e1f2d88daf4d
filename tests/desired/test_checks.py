"""Contradictions that are known without a pod; each message names the field and the remedy."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.builders import a_spec

from speculative_operator.desired.checks import SURELY_FIT, findings
from speculative_operator.desired.objects import MAX_REVISION_BYTES
from speculative_operator.desired.restarts import revision_bytes
from speculative_operator.desired.revision import words_of
from speculative_operator.desired.workers import pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord


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


def pieces(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


HOSTILE = {"quotes": '"', "backslashes": "\\", "controls": "\x01", "letters": "é", "plain": "x"}


@pytest.mark.parametrize("character", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize(
    "changes",
    [
        lambda text: {"pod": {"env": [{"name": "A", "value": text}]}},
        lambda text: {"pod": {"annotations": dict(zip("abcd", pieces(text, 4000), strict=False))}},
        lambda text: {"pod": {"affinity": {"a": text}}},
        lambda text: {"engine": {"extraArgs": [f"--a={part}" for part in pieces(text, 200)]}},
        lambda text: {
            "speculation": {"method": "NGram", "numSpeculativeTokens": 4, "extra": {"a": text}}
        },
    ],
    ids=["env", "annotation", "affinity", "arguments", "extra"],
)
def test_revisions_that_are_not_measured_are_far_from_the_limit(
    changes: Callable[[str], dict[str, Any]], character: str
) -> None:
    each = len(json.dumps(character)) - 2
    count = (SURELY_FIT - 1024) // each
    words = words_of(a_spec(**changes(character * count)))
    assert SURELY_FIT * 3 // 4 < len(json.dumps(words.canonical)) <= SURELY_FIT
    template = pod_template(words, name="chat", settings=Settings())
    record = RevisionRecord(words.hash, 1, words.canonical, template)
    assert revision_bytes(record) < MAX_REVISION_BYTES / 2
