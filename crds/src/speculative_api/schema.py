"""Pydantic models -> Kubernetes structural schema and CRD (pure).

Kubernetes accepts a subset of JSON Schema: no references, no unions, no null,
boolean `exclusiveMinimum`. Anything outside it raises `UnsupportedSchema` with
the path, so that a model that cannot be expressed fails in the build and not
at a user's `kubectl apply`. Called by `python -m speculative_api`.
"""

from typing import Any, Final

from pydantic import BaseModel

from speculative_api import labels
from speculative_api.v1alpha1 import (
    MAX_GROUP_NAME_LENGTH,
    MAX_NAME_LENGTH,
    SpeculativeDeploymentSpec,
    SpeculativeDeploymentStatus,
    rule,
)

Schema = dict[str, Any]

_DROPPED: Final = {"title", "const", "additionalProperties", "discriminator"}


INT_OR_STRING: Final = "x-kubernetes-int-or-string"
"""The one union there is: such a node has no type of its own."""


class UnsupportedSchema(ValueError):
    """A model uses something that a structural schema cannot say; the message has the path."""


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model, by alias, defaults included.

    Raises:
        UnsupportedSchema: on unions (other than with None), tuples or recursion.
    """
    raw = model.model_json_schema(by_alias=True)
    return _convert(raw, raw.get("$defs", {}), model.__name__, ())


def _convert(node: Schema, definitions: Schema, path: str, seen: tuple[str, ...]) -> Schema:
    node = dict(node)
    if "anyOf" in node and INT_OR_STRING not in node:
        options = [option for option in node.pop("anyOf") if option.get("type") != "null"]
        if len(options) != 1:
            raise UnsupportedSchema(f"{path}: a union of {len(options)} types")
        node = {**options[0], **node}
    if "allOf" in node and len(node["allOf"]) == 1:
        node = {**node.pop("allOf")[0], **node}
    if "$ref" in node:
        name = node.pop("$ref").rsplit("/", 1)[-1]
        if name in seen:
            raise UnsupportedSchema(f"{path}: {name} contains itself")
        node = {**definitions[name], **node}
        seen = (*seen, name)
        if "anyOf" in node or "$ref" in node:
            return _convert(node, definitions, path, seen)
    if "prefixItems" in node or "oneOf" in node:
        raise UnsupportedSchema(f"{path}: tuples and tagged unions")
    found = {key: value for key, value in node.items() if key not in _DROPPED and key != "$defs"}
    if "const" in node:
        found["enum"] = [node["const"]]
    if found.get("default", ...) is None:
        del found["default"]
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(bound), int | float):
            found[limit], found[bound] = found[bound], True
    if "properties" in node:
        found["properties"] = {
            key: _convert(value, definitions, f"{path}.{key}", seen)
            for key, value in node["properties"].items()
        }
    elif isinstance(node.get("additionalProperties"), dict):
        found["additionalProperties"] = _convert(
            node["additionalProperties"], definitions, f"{path}.*", seen
        )
    if "items" in node:
        found["items"] = _convert(node["items"], definitions, f"{path}[]", seen)
    if "type" not in found and INT_OR_STRING not in found:
        raise UnsupportedSchema(f"{path}: no single type")
    return found


_COLUMNS: Final = (
    ("Ready", "integer", ".status.stable.readyReplicas", "Ready pods of the stable revision", 0),
    ("Stable", "string", ".status.stable.hash", "Revision in service", 0),
    ("Canary", "string", ".status.canary.hash", "Revision on trial", 0),
    ("Weight", "integer", ".status.canary.observedWeight", "Traffic the canary gets, percent", 0),
    ("Acceptance", "string", ".status.stable.acceptanceLength", "Tokens per step, stable", 0),
    ("Message", "string", ".status.message", "What is going on", 0),
    ("Age", "date", ".metadata.creationTimestamp", "", 0),
)


def custom_resource_definition() -> Schema:
    """The whole CRD as a dict ready for YAML."""
    columns = [
        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
        | ({"description": description} if description else {})
        for name, kind, path, description, priority in _COLUMNS
    ]
    root: Schema = {
        "type": "object",
        "description": "A target model served with speculative decoding: worker pods, a gateway "
        "that splits traffic between revisions, and canaries that are judged and promoted or "
        "rolled back.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(SpeculativeDeploymentSpec),
            "status": structural(SpeculativeDeploymentStatus),
        },
        "x-kubernetes-validations": [
            rule(
                f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
                f"metadata.name must have at most {MAX_NAME_LENGTH} characters: children append a "
                "hash to it",
            ),
            rule(
                "self.spec.target.nodesPerReplica == 1 || "
                f"self.metadata.name.size() <= {MAX_GROUP_NAME_LENGTH}",
                f"metadata.name must have at most {MAX_GROUP_NAME_LENGTH} characters with "
                "target.nodesPerReplica above 1: the pods of a group have longer names",
            ),
            rule(
                "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                "metadata.name must be a DNS label that begins with a letter (a-z, 0-9 and -): "
                "Services are named after it",
            ),
            rule(
                "!has(self.spec.gateway) || self.spec.gateway.mode != 'Shared' || "
                "!has(self.spec.target.servedModelName) || "
                "self.spec.target.servedModelName == self.metadata.name",
                "at a shared gateway a request is sent by the resource's name, which is to be the "
                "model's as well: leave servedModelName out, or use gateway.mode Envoy",
                ".spec.target.servedModelName",
            ),
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{labels.PLURAL}.{labels.GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": labels.GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": labels.PLURAL,
                "singular": labels.PLURAL.removesuffix("s"),
                "kind": labels.KIND,
                "listKind": f"{labels.KIND}List",
                "shortNames": ["specdep"],
                "categories": ["all", "inference"],
            },
            "versions": [
                {
                    "name": labels.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": root},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }
