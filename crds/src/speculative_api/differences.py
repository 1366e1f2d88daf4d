"""PURE: what a stored CRD's schema lacks of the one this version was built with.

A chart's `crds/` folder is installed once and never upgraded, so a new operator
may meet an old CRD: the API server then drops the fields it does not know, from
users' specs and from our status alike, and says nothing. Called by the operator.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Missing:
    """A field (or a value of an enumeration) that the live schema does not know."""

    path: str
    """As in `spec.rollout.steps[].weight`; a value is written `spec.x=Value`."""
    assumed: Any = None
    """The default that is in force instead; None where there is none."""

    def __str__(self) -> str:
        return self.path if self.assumed is None else f"{self.path} ({self.assumed!r} in force)"


def missing(needed: Schema, live: Schema, path: str = "") -> Iterator[Missing]:
    """Everything in `needed` that `live` would drop or refuse; a whole block as one."""
    if live.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = live.get("properties", {})
    for name, inner in needed.get("properties", {}).items():
        at = f"{path}.{name}" if path else name
        if name in known:
            yield from missing(inner, known[name], at)
        else:
            yield Missing(at, inner.get("default"))
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(needed.get(key), Mapping):
            inner = live.get(key)
            yield from missing(
                needed[key], inner if isinstance(inner, Mapping) else {}, path + mark
            )
    values = live.get("enum")
    if values is not None:
        yield from (Missing(f"{path}={v}") for v in needed.get("enum", ()) if v not in values)
