"""What follows from a resource's spec alone, worked out once per spec and not per pass.

Parsing, words and contradictions are half of a quiet pass, and change only when
somebody edits. `Specs` remembers them by resource; all of it may be lost.
"""

from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from speculative_api.engine_arguments import findings as engine_findings
from speculative_api.engine_arguments import warnings as engine_warnings
from speculative_api.rollout_rules import findings as rollout_findings
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.cluster.resources import Key
from speculative_operator.desired import checks
from speculative_operator.desired.revision import words_of
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Words

MOST: Final = 20_000
"""Specs remembered; beyond that they begin anew."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The spec has another shape than this operator's version knows: says where."""

    message: str


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """A spec and what follows from it."""

    spec: SpeculativeDeploymentSpec
    words: Words
    findings: tuple[str, ...]
    warnings: tuple[str, ...]


def read(raw: dict[str, Any], *, name: str, settings: Settings) -> ReadSpec | Unreadable:
    """Parses and checks one spec; never raises for a bad one."""
    try:
        spec = SpeculativeDeploymentSpec.model_validate(raw)
    except ValidationError as error:
        return Unreadable(sentence(error))
    words = words_of(spec)
    return ReadSpec(
        spec=spec,
        words=words,
        findings=(
            *checks.findings(spec, name=name, settings=settings, words=words),
            *engine_findings(spec),
            *rollout_findings(spec),
        ),
        warnings=tuple(engine_warnings(spec)),
    )


class Specs:
    """Remembers the last reading of each resource."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[Key, tuple[dict[str, Any], ReadSpec | Unreadable]] = {}

    def read(self, key: Key, raw: dict[str, Any]) -> ReadSpec | Unreadable:
        """The reading of this spec, by its content: a newer CRD may add defaults unasked."""
        known = self._known.get(key)
        if known is not None and known[0] == raw:
            return known[1]
        if len(self._known) >= MOST:
            self._known.clear()
        found = read(raw, name=key[1], settings=self._settings)
        self._known[key] = (raw, found)
        return found

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._known.pop(key, None)


def sentence(error: ValidationError) -> str:
    """Where it is wrong and how, without the value: a value may be a secret."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False)[:5]
    )
