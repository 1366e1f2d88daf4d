"""The part of CEL that our rules use, and the rules themselves."""

from collections.abc import Iterator
from typing import Any

import pytest

from speculative_api.cel import Unsupported, holds, outcome
from speculative_api.schema import custom_resource_definition

SELF = {
    "method": "NGram",
    "count": 3,
    "text": "it's",
    "list": [1, 2, 3],
    "empty": [],
    "block": {"inner": {"deep": 1}},
    "on": True,
}

RULES = {
    "self.method == 'NGram'": True,
    "self.method != 'NGram'": False,
    'self.method == "NGram"': True,
    r"self.text == 'it\'s'": True,
    "has(self.block)": True,
    "has(self.gone)": False,
    "has(self.block.inner.deep)": True,
    "has(self.block.inner.gone)": False,
    "!has(self.gone) && self.on": True,
    "!self.on || self.count > 2": True,
    "!has(self.gone) == self.on": True,
    "false && true || true": True,
    "true || true && false": True,
    "(true || true) && false": False,
    "self.count + 1 == 4 && self.count - 1 * 2 == 1": True,
    "-self.count == -3": True,
    "self.count * 4 % 5 == 2": True,
    "-self.count % 2 == -1": True,
    "self.count <= 3 && self.count >= 3 && !(self.count < 3)": True,
    "self.method in ['NGram', 'None']": True,
    "self.method in []": False,
    "size(self.list) == 3 && self.list.size() == 3": True,
    "self.list[0] == 1": True,
    "self.list.all(x, x > 0)": True,
    "self.list.exists(x, x > self.count)": False,
    "self.empty.all(x, false)": True,
    "self.method.matches('^N')": True,
    "self.method.startsWith('N') && self.method.endsWith('m')": True,
    "self.method.contains('Gr')": True,
    "self.on ? self.count == 3 : false": True,
    "self.gone == 1": False,
    "self.count > 'x'": False,
    "self == null": False,
}


@pytest.mark.parametrize(("rule", "expected"), RULES.items(), ids=RULES.keys())
def test_rules_are_evaluated_as_the_language_says(rule: str, expected: bool) -> None:
    assert holds(rule, SELF) is expected


@pytest.mark.parametrize(
    "rule",
    [
        "self.list.map(x, x + 1) == []",
        "duration('1h') > duration('1m')",
        "self.count / 2 == 1",
        "self.count ==",
        "self.count 3",
        "(self.count == 3",
        "has(self)",
        "",
    ],
)
def test_what_is_not_covered_is_said_and_never_guessed(rule: str) -> None:
    with pytest.raises(Unsupported):
        holds(rule, SELF)


def rules(schema: dict[str, Any]) -> Iterator[str]:
    yield from (rule["rule"] for rule in schema.get("x-kubernetes-validations", []))
    for inner in schema.get("properties", {}).values():
        yield from rules(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from rules(schema[key])


def test_every_rule_of_the_crd_is_covered() -> None:
    root = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = list(rules(root))
    assert len(found) > 10
    for rule in found:
        holds(rule, {})


def smallest(schema: dict[str, Any]) -> Any:
    """A value with no more than it must have, as the API server completes it."""
    if "default" in schema:
        found = schema["default"]
        return smallest({**schema, "default": None}) | found if isinstance(found, dict) else found
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            inner = schema.get("properties", {})
            needed = schema.get("required", ())
            return {
                name: smallest(part)
                for name, part in inner.items()
                if name in needed or "default" in part
            }
        case "array":
            return []
        case "integer":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return "x"


def ruled(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the schema that has rules, with its path."""
    if "x-kubernetes-validations" in schema and schema.get("type") == "object":
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from ruled(inner, f"{path}.{name}")
    if "items" in schema:
        yield from ruled(schema["items"], f"{path}[]")


ROOT = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
RULED = dict(ruled(ROOT))


@pytest.mark.parametrize("path", RULED)
def test_no_rule_asks_for_a_field_that_may_be_absent(path: str) -> None:
    schema = RULED[path]
    # A server sets a name; everything else may be as small as this.
    least = smallest(schema) | ({} if path else {"metadata": {"name": "x"}})
    objects = [
        least,
        *({**least, n: smallest(p)} for n, p in schema["properties"].items() if n != "metadata"),
    ]
    for rule in schema["x-kubernetes-validations"]:
        for value in objects:
            try:
                outcome(rule["rule"], value)
            except KeyError as error:
                pytest.fail(f"{error} is absent in {value}: {rule['rule']}")
