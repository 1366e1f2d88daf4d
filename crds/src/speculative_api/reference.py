"""The CRD as a page of documentation, from the same schema that `kubectl explain` shows (pure).

Called by `python -m speculative_api` for files that end in `.md`.
"""

from collections.abc import Iterator
from typing import Any, Final

from speculative_api import labels
from speculative_api.conditions import SENTENCES
from speculative_api.schema import INT_OR_STRING, custom_resource_definition

_INTRODUCTION: Final = f"""# {labels.KIND} ({labels.GROUP}/{labels.VERSION})

Short name `specdep`. The same text is in the cluster:
`kubectl explain {labels.KIND.lower()}.spec.speculation`. Examples are in `examples/`.

`target`, `speculation`, `engine`, `pod` and `modelCache` are the *revisioned* part: a change there
makes a new revision, which is tried as `rollout` says. A value equal to its default counts as
absent, and the order of `pod.env` says nothing. All other fields take effect at once and make no
revision.
"""
_ANNOTATIONS: Final = f"""## Annotations

Written by `kubectl speculative`; by hand they work as well.

| annotation | value | effect |
|---|---|---|
| `{labels.PROMOTE}` | `<hash>/<step>[@<anything>]` | The rollout goes past the pause it is in. |
| `{labels.ABORT}` | `<hash>[@<anything>]` | The canary with this hash is rolled back. |
| `{labels.RETRY}` | `<hash>@<anything>` | The failed revision may be tried again, once per value. |
"""

_BOUNDS: Final = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("pattern", "matches `{}`"),
)


def reference() -> str:
    """The whole page as Markdown."""
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    parts = [_INTRODUCTION]
    for root in ("spec", "status"):
        parts += _blocks(schema["properties"][root], root)
    parts += [_ANNOTATIONS, _reasons()]
    return "\n".join(parts)


def _blocks(node: dict[str, Any], path: str) -> Iterator[str]:
    """A heading and a table for this block, then for those inside it."""
    if not node.get("properties"):
        return
    yield f"{'##' if '.' not in path else '###'} {path}\n\n{node.get('description', '')}\n"
    rows = [
        _row(key, inner, required=key in node.get("required", ()))
        for key, inner in node["properties"].items()
    ]
    yield "\n".join(["| field | type | description |", "|---|---|---|", *rows]) + "\n"
    rules = [rule["message"] for rule in node.get("x-kubernetes-validations", ())]
    if rules:
        yield "Refused by the API server:\n\n" + "\n".join(f"- {rule}" for rule in rules) + "\n"
    for key, inner in node["properties"].items():
        nested = inner.get("items", inner) if inner.get("type") == "array" else inner
        yield from _blocks(nested, f"{path}.{key}" + ("[]" if nested is not inner else ""))


def _row(name: str, node: dict[str, Any], *, required: bool) -> str:
    words = [node.get("description", "")]
    if "enum" in node:
        words.append("One of " + ", ".join(f"`{value}`" for value in node["enum"]) + ".")
    bounds = [text.format(node[key]) for key, text in _BOUNDS if key in node]
    if INT_OR_STRING in node:
        # The minimum is that of whole numbers; with decimals there may be less.
        least = f"at least {node['minimum']}" if node["minimum"] > 1 else "more than 0"
        bounds = ["with decimals in quotes", least, f"at most {node['maximum']}"]
    if bounds:
        words.append("(" + ", ".join(bounds) + ")")
    text = " ".join(word for word in words if word).replace("|", "\\|")
    return f"| `{name}`{' (required)' if required else ''} | {_type(node)} | {text} |"


def _type(node: dict[str, Any]) -> str:
    if INT_OR_STRING in node:
        return "integer or string"
    if node["type"] == "array":
        return f"list of {_type(node['items'])}"
    if node["type"] == "object" and isinstance(node.get("additionalProperties"), dict):
        return f"map of {_type(node['additionalProperties'])}"
    return str(node["type"])


def _reasons() -> str:
    rows = [f"| `{reason}` | {sentence} |" for reason, sentence in SENTENCES.items()]
    head = "## Reasons\n\nOf conditions, events and failed revisions.\n\n"
    return head + "\n".join(["| reason | meaning |", "|---|---|", *rows]) + "\n"
