"""What an older CRD lacks is found wherever it is, and nothing else is."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from speculative_api.differences import missing
from speculative_api.schema import custom_resource_definition

ROOT: dict[str, Any] = custom_resource_definition()["spec"]["versions"][0]["schema"][
    "openAPIV3Schema"
]["properties"]["spec"]


def fields(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in schema.get("properties", {}).items():
        yield (*path, "properties", name)
        yield from fields(inner, (*path, "properties", name))
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], (*path, "items"))


def test_same_schema_lacks_nothing() -> None:
    assert list(missing(ROOT, ROOT)) == []


@pytest.mark.parametrize("path", list(fields(ROOT)), ids=lambda path: path[-1])
def test_every_field_that_was_taken_out_is_named(path: tuple[str, ...]) -> None:
    older = copy.deepcopy(ROOT)
    place = older
    for step in path[:-1]:
        place = place[step]
    gone = place.pop(path[-1])
    (found,) = missing(ROOT, older, "spec")
    assert found.path.endswith(f".{path[-1]}")
    assert found.assumed == gone.get("default")


def test_newer_schema_lacks_nothing() -> None:
    newer = copy.deepcopy(ROOT)
    newer["properties"]["tomorrow"] = {"type": "string"}
    assert list(missing(ROOT, newer)) == []


def test_new_value_of_an_enumeration_is_named() -> None:
    needed = {"properties": {"mode": {"enum": ["Old", "New"]}}}
    older = {"properties": {"mode": {"enum": ["Old"]}}}
    assert [each.path for each in missing(needed, older, "spec")] == ["spec.mode=New"]


def test_unknown_fields_that_are_kept_are_not_missing() -> None:
    keeps = {"x-kubernetes-preserve-unknown-fields": True}
    assert list(missing({"properties": {"a": {"default": 1}}}, keeps)) == []


def test_the_value_in_force_is_said() -> None:
    needed = {"properties": {"cap": {"default": 2}}}
    (found,) = missing(needed, {"properties": {}}, "spec")
    assert str(found) == "spec.cap (2 in force)"
