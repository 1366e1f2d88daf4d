"""Hashes: stable over defaults, order and CRD growth; the way back; the kind of a change."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_raw_spec, a_spec, some_words

from speculative_api.revisions import is_native
from speculative_api.schema import structural
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.desired import revision
from speculative_operator.desired.revision import ChangeKind

GOLDEN = json.loads((Path(__file__).parent / "golden_hashes.json").read_text("utf-8"))


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_the_hash_of_known_words_never_changes(case: dict[str, Any]) -> None:
    words = revision.words_of(SpeculativeDeploymentSpec.model_validate(case["spec"]))
    assert words.hash == case["hash"]
    assert revision.native_words(words).hash == case["native"]


def filled(schema: dict[str, Any], value: Any) -> Any:
    """What an API server returns: every default of the schema filled in."""
    if schema.get("type") == "array":
        return [filled(schema["items"], item) for item in value]
    if schema.get("type") != "object" or "properties" not in schema:
        return value
    found = dict(value)
    for key, inner in schema["properties"].items():
        if key not in found and "default" in inner:
            found[key] = inner["default"]
        if key in found:
            found[key] = filled(inner, found[key])
    return found


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_defaults_filled_in_by_the_api_server_do_not_change_the_hash(case: dict[str, Any]) -> None:
    schema = structural(SpeculativeDeploymentSpec)
    raw = filled(schema, case["spec"])
    assert raw != case["spec"]
    assert revision.words_of(SpeculativeDeploymentSpec.model_validate(raw)).hash == case["hash"]


@pytest.mark.parametrize(
    "explicit",
    [
        {"engine": {}},
        {"engine": {"warmup": {}, "maxNumSeqs": 64}},
        {"pod": {"resources": {}, "affinity": {}, "nodeSelector": {}}},
        {"speculation": {"method": "NGram", "numSpeculativeTokens": 4, "ngram": {}, "extra": {}}},
        {
            "speculation": {
                "method": "NGram",
                "numSpeculativeTokens": 4,
                "ngram": {"promptLookupMax": 4},
            }
        },
    ],
    ids=["empty-engine", "explicit-default", "empty-pod", "empty-ngram", "default-ngram"],
)
def test_writing_a_default_down_is_not_a_change(explicit: dict[str, Any]) -> None:
    assert revision.words_of(a_spec(**explicit)).hash == some_words().hash


@pytest.mark.parametrize(
    "unrelated",
    [
        {"replicas": 7},
        {"lanes": {"native": {"replicas": 2}}},
        {"gateway": {"replicas": 3}},
        {"rollout": {"steps": [{"weight": 50}]}},
    ],
    ids=lambda value: next(iter(value)),
)
def test_scale_lanes_gateway_and_rollout_are_not_part_of_a_revision(
    unrelated: dict[str, Any],
) -> None:
    assert revision.words_of(a_spec(**unrelated)).hash == some_words().hash


def test_a_number_and_its_text_are_one_quantity() -> None:
    number, text = (
        a_spec(pod={"resources": {"requests": {"cpu": cpu}, "limits": {"memory": "2Gi"}}})
        for cpu in (2, "2")
    )
    assert revision.words_of(number) == revision.words_of(text)
    other = a_spec(pod={"resources": {"requests": {"cpu": 3}, "limits": {"memory": "2Gi"}}})
    assert revision.words_of(other).hash != revision.words_of(text).hash


VARIABLES = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {}}}]


def test_the_order_of_variables_is_irrelevant() -> None:
    forward = some_words(pod={"env": VARIABLES})
    assert forward.hash == some_words(pod={"env": VARIABLES[::-1]}).hash
    assert forward.hash != some_words(pod={"env": VARIABLES[:1]}).hash


def test_the_order_of_variables_counts_where_one_refers_to_another() -> None:
    chained = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]
    assert some_words(pod={"env": chained}).hash != some_words(pod={"env": chained[::-1]}).hash


def test_the_order_of_engine_arguments_counts() -> None:
    one, two = ["--a", "--b"], ["--b", "--a"]
    assert some_words(engine={"extraArgs": one}).hash != some_words(engine={"extraArgs": two}).hash


def test_the_native_lane_of_a_plain_revision_has_its_own_hash() -> None:
    plain = some_words(speculation={"method": "None"}, k=None)
    native = revision.native_words(plain)
    assert native.canonical == plain.canonical
    assert native.hash != plain.hash
    assert is_native(native.hash, native.canonical)
    assert not is_native(plain.hash, plain.canonical)


def test_revisions_that_differ_in_speculation_share_one_native_lane() -> None:
    assert revision.native_words(some_words(2)).hash == revision.native_words(some_words(6)).hash


@settings(deadline=None, max_examples=50)
@given(
    k=st.integers(1, 512),
    seqs=st.integers(1, 1000),
    env=st.dictionaries(st.from_regex(r"[A-Z]{1,8}", fullmatch=True), st.text(max_size=8)),
)
def test_words_survive_the_way_back(k: int, seqs: int, env: dict[str, str]) -> None:
    spec = a_spec(
        k=k,
        engine={"maxNumSeqs": seqs},
        pod={"env": [{"name": name, "value": value} for name, value in env.items()]},
        modelCache={"persistentVolumeClaim": "models"},
    )
    part = revision.parse(revision.words_of(spec).canonical)
    assert (part.target, part.speculation, part.engine) == (
        spec.target,
        spec.speculation,
        spec.engine,
    )
    assert (part.pod, part.model_cache) == (spec.pod, spec.model_cache)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        ({"speculation": {"method": "None"}}, ChangeKind.SPECULATION),
        ({"target": {"model": "file:///models/other"}}, ChangeKind.TARGET),
        ({"target": {"model": "file:///models/target", "dtype": "half"}}, ChangeKind.TARGET),
        ({"engine": {"extraArgs": ["--enforce-eager"]}}, ChangeKind.ENGINE),
        ({"engine": {"image": "worker:2"}}, ChangeKind.ENGINE),
        ({"engine": {"maxNumSeqs": 8, "drainSeconds": 30}}, ChangeKind.CAPACITY),
        ({"pod": {"nodeSelector": {"gpu": "a100"}}}, ChangeKind.CAPACITY),
        ({"pod": {"env": [{"name": "VLLM_X", "value": "1"}]}}, ChangeKind.ENGINE),
        (
            {"speculation": {"method": "None"}, "pod": {"nodeSelector": {"gpu": "a100"}}},
            ChangeKind.ENGINE,
        ),
    ],
)
def test_kind_of_change(changes: dict[str, Any], kind: ChangeKind | None) -> None:
    new = revision.words_of(SpeculativeDeploymentSpec.model_validate(a_raw_spec(**changes)))
    assert revision.change_kind(some_words().canonical, new.canonical) == kind
