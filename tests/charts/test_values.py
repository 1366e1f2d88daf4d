"""The chart's values: documented, described by the schema, and no copy of a default drifts."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from speculative_operator.settings import Settings

CHART = Path(__file__).parents[2] / "charts" / "speculative-operator"
TEXT = (CHART / "values.yaml").read_text("utf-8")
VALUES: dict[str, Any] = yaml.safe_load(TEXT)
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    return SCHEMA["definitions"][node["$ref"].rsplit("/", 1)[-1]]  # type: ignore[no-any-return]


def test_the_schema_knows_exactly_the_values() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for key, value in VALUES.items():
        properties = resolved(SCHEMA["properties"][key]).get("properties")
        if isinstance(value, dict) and properties:
            assert set(value) <= set(properties), key


def test_unknown_values_are_refused() -> None:
    assert SCHEMA["additionalProperties"] is False


@pytest.mark.parametrize("key", sorted(VALUES))
def test_every_value_is_used_by_a_template(key: str) -> None:
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    assert f".Values.{key}" in templates


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def test_settings_are_the_operators_and_have_its_defaults() -> None:
    defaults = {camel(field.name): field.default for field in fields(Settings)}
    assert {key: defaults[key] for key in VALUES["settings"]} == VALUES["settings"]


def test_images_are_the_operators_defaults() -> None:
    settings = Settings()
    assert VALUES["gateway"]["image"] == settings.gateway_image
    assert VALUES["worker"]["image"] == settings.worker_image
    assert VALUES["imagePullPolicy"] == settings.image_pull_policy


def test_every_paragraph_of_values_begins_with_a_comment_or_its_first_value_does() -> None:
    paragraphs = TEXT.strip().split("\n\n")
    bare = [text for text in paragraphs if "#" not in "".join(text.splitlines()[:2])]
    assert bare == []


def test_the_chart_has_the_version_of_the_images() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert VALUES["operator"]["image"].endswith(f":{chart['appVersion']}")
