"""PURE: what the API server and the operator would say about a manifest, without either.

Comes in: a parsed manifest. Goes out: problems, each with the field it is
about. The schema and its rules are those of the CRD itself. Called by `lint`.
"""

import copy
import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

from speculative_api import engine_arguments, labels, rollout_rules
from speculative_api.cel import Unsupported, holds
from speculative_api.schema import Schema, custom_resource_definition
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec

ROOT: Final[Schema] = custom_resource_definition()["spec"]["versions"][0]["schema"][
    "openAPIV3Schema"
]


CONTESTED: Final = (
    "is the autoscaler's to set: each apply of this manifest would set it back. Leave it out"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong (`error`: it would be refused or lost) or unwise (`warning`)."""

    severity: Literal["error", "warning"]
    field: str
    message: str


def problems(manifest: Mapping[str, Any]) -> list[Problem]:
    """Everything wrong with a SpeculativeDeployment, errors first."""
    expected = f"{labels.GROUP}/{labels.VERSION}"
    if manifest.get("apiVersion") != expected:
        return [Problem("error", "apiVersion", f"must be {expected}")]
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return [Problem("error", "spec", "is needed")]
    schema = ROOT["properties"]["spec"]
    found = [Problem("error", *each) for each in _unknown(schema, spec, "spec")]
    spec = _pruned(schema, spec)
    try:
        # As JSON and strict, like the API server: "4" is no number.
        parsed = SpeculativeDeploymentSpec.model_validate_json(
            json.dumps(spec, default=str), strict=True
        )
    except ValidationError as error:
        found += [
            Problem("error", ".".join(["spec", *map(str, each["loc"])]), each["msg"])
            for each in error.errors(include_input=False, include_url=False)
        ]
        return found
    document = with_defaults(ROOT, {"metadata": {}, **manifest, "spec": spec})
    found += _broken_rules(ROOT, document, "")
    found += [_about(text, "error") for text in engine_arguments.findings(parsed)]
    found += [_about(text, "error") for text in rollout_rules.findings(parsed)]
    if "replicas" in spec and "autoscaling" in spec:
        found.append(Problem("warning", "spec.replicas", CONTESTED))
    return found + [_about(text, "warning") for text in engine_arguments.warnings(parsed)]


def with_defaults(schema: Schema, value: Any) -> Any:
    """The value with the schema's defaults filled in, as the API server stores it."""
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    if not isinstance(value, Mapping):
        return value
    filled = dict(value)
    for key, inner in schema.get("properties", {}).items():
        if key not in filled and "default" in inner:
            filled[key] = copy.deepcopy(inner["default"])
        if key in filled:
            filled[key] = with_defaults(inner, filled[key])
    return filled


def _pruned(schema: Schema, value: Any) -> Any:
    """The value without unknown fields and nulls, both of which an API server drops."""
    if isinstance(value, list):
        return [_pruned(schema.get("items", {}), item) for item in value]
    if not isinstance(value, Mapping) or "properties" not in schema:
        return value
    known = schema["properties"]
    return {
        key: _pruned(known[key], item)
        for key, item in value.items()
        if key in known and item is not None
    }


def _unknown(schema: Schema, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Fields that the schema does not know: the API server drops them, often silently."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(schema.get("items", {}), item, f"{path}[{index}]")
    elif isinstance(value, Mapping) and "properties" in schema:
        known = schema["properties"]
        for key, item in value.items():
            if key in known:
                yield from _unknown(known[key], item, f"{path}.{key}")
                continue
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"{path}.{key}", f"is not a field, and would be dropped{hint}"


def _broken_rules(schema: Schema, value: Any, path: str) -> Iterator[Problem]:
    for rule in schema.get("x-kubernetes-validations", []):
        field = f"{path}{rule.get('fieldPath', '')}".lstrip(".") or "metadata"
        try:
            if not holds(rule["rule"], value):
                yield Problem("error", field, rule["message"])
        except Unsupported as error:
            yield Problem("warning", field, f"not checked here, but by the API server: {error}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken_rules(schema.get("items", {}), item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, inner in schema.get("properties", {}).items():
            if key in value:
                yield from _broken_rules(inner, value[key], f"{path}.{key}")


def _about(text: str, severity: Literal["error", "warning"]) -> Problem:
    """A finding's sentence begins with its field."""
    field, _, rest = text.partition(" ")
    return Problem(severity, f"spec.{field.rstrip(':')}", rest)
