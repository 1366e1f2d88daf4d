"""The generated CRD: current, documented, bounded, and refusing what it cannot express."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, Union

import pytest
import yaml
from pydantic import BaseModel

from speculative_api.__main__ import rendered
from speculative_api.conditions import SENTENCES, Reason
from speculative_api.reference import reference
from speculative_api.schema import (
    INT_OR_STRING,
    UnsupportedSchema,
    custom_resource_definition,
    structural,
)
from speculative_api.v1alpha1 import REVISIONED_FIELDS, SpeculativeDeploymentSpec

ROOT = Path(__file__).parents[2]
CRD = custom_resource_definition()
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]


@pytest.mark.parametrize(
    "file",
    ["crds/speculativedeployments.yaml", "charts/speculative-operator/files/crd.yaml"],
)
def test_the_written_crd_is_current(file: str) -> None:
    assert (ROOT / file).read_text("utf-8") == rendered(), "run `make generate`"


def test_the_reference_page_is_current_and_names_every_field() -> None:
    page = (ROOT / "docs" / "crd.md").read_text("utf-8")
    assert page == reference(), "run `make generate`"
    fields = {path.rsplit(".", 1)[-1] for path in ALL if not path.endswith(("[]", ".*"))}
    assert [field for field in fields - {"spec", "status"} if f"`{field}`" not in page] == []


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node below (and with) this one, with its path."""
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}.*")


ALL = dict(nodes(SPEC, "spec")) | dict(nodes(SCHEMA["properties"]["status"], "status"))


def test_every_field_has_a_full_sentence_as_its_description() -> None:
    missing = [
        path
        for path, node in ALL.items()
        if not path.endswith(("[]", ".*")) and not node.get("description", "").endswith((".", "?"))
    ]
    assert missing == []


def test_descriptions_name_the_default() -> None:
    silent = [
        path
        for path, node in dict(nodes(SPEC, "spec")).items()
        if node.get("default") not in (None, "", [], {})
        and len(node.get("enum", "many")) > 1
        and "efault" not in node.get("description", "")
    ]
    assert silent == []


def test_spec_and_status_hold_no_floating_point_numbers() -> None:
    assert [path for path, node in ALL.items() if node.get("type") == "number"] == []


def test_integers_and_lists_of_the_spec_are_bounded() -> None:
    """Bounds are what keeps the cost of CEL rules finite, and a typing mistake small."""
    spec = dict(nodes(SPEC, "spec"))
    open_ended = [
        path
        for path, node in spec.items()
        if (_may_be_integer(node) and not {"minimum", "maximum"} <= node.keys())
        or (INT_OR_STRING in node and "pattern" not in node)
        or (node.get("type") == "array" and "maxItems" not in node)
    ]
    assert open_ended == []


def _may_be_integer(node: dict[str, Any]) -> bool:
    return node.get("type") == "integer" or INT_OR_STRING in node


def test_every_rule_says_what_to_do() -> None:
    rules = [
        (path, rule)
        for path, node in nodes(SCHEMA, "")
        for rule in node.get("x-kubernetes-validations", [])
    ]
    assert rules
    assert [path for path, rule in rules if len(rule.get("message", "")) < 30] == []


def test_scale_and_status_are_subresources() -> None:
    scale = VERSION["subresources"]["scale"]
    assert VERSION["subresources"]["status"] == {}
    for path in scale.values():
        assert path[1:] in ALL, path


def test_printer_columns_point_at_fields_that_exist() -> None:
    paths = [column["jsonPath"][1:] for column in VERSION["additionalPrinterColumns"]]
    assert [p for p in paths if p not in ALL and p != "metadata.creationTimestamp"] == []


def test_conditions_are_a_list_keyed_by_type() -> None:
    node = ALL["status.conditions"]
    assert node["x-kubernetes-list-map-keys"] == ["type"]


class Node(BaseModel):
    child: Optional["Node"] = None


class WithUnion(BaseModel):
    value: Union[int, str]  # noqa: UP007 - the point of the test


class WithTuple(BaseModel):
    value: tuple[int, str]


class Untyped(BaseModel):
    value: Any


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Node, "contains itself"),
        (WithUnion, "WithUnion.value: a union"),
        (WithTuple, "WithTuple.value: tuples"),
        (Untyped, "Untyped.value: no single type"),
    ],
)
def test_what_a_structural_schema_cannot_say_is_refused(model: type[BaseModel], words: str) -> None:
    with pytest.raises(UnsupportedSchema, match=words):
        structural(model)


def test_yaml_round_trips() -> None:
    assert yaml.safe_load(rendered()) == CRD


def test_every_reason_has_a_sentence_for_the_docs() -> None:
    assert set(SENTENCES) == set(Reason)
    assert [reason for reason, text in SENTENCES.items() if not text.endswith(".")] == []


def test_revisioned_fields_exist() -> None:
    assert set(REVISIONED_FIELDS) <= set(SpeculativeDeploymentSpec.model_fields)
