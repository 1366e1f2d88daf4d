"""Revisions: a spec's revisioned part in canonical form, its hash, and the way back.

`words_of` makes the words; `parse` turns stored words into typed fields again;
`native_words` derives the lane without speculation. Called by `gather` (what
does the spec ask for?), `rollout` (what kind of change?) and `objects`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import orjson

from speculative_api.revisions import canonical_words, native_hash, native_words_of, words_hash
from speculative_api.v1alpha1 import (
    Engine,
    ModelCache,
    NGramLookup,
    Pod,
    Speculation,
    SpeculativeDeploymentSpec,
    Target,
)
from speculative_operator.snapshot import Words

_CAPACITY_ENGINE_FIELDS: Final = frozenset(
    {
        "maxNumSeqs",
        "gpuMemoryUtilizationPercent",
        "startupDeadlineSeconds",
        "drainSeconds",
        "warmup",
    }
)


class ChangeKind(StrEnum):
    """What a new revision changes; output equivalence speaks only for the first."""

    SPECULATION = "SpeculationOnly"
    ENGINE = "Engine"
    TARGET = "Target"
    CAPACITY = "CapacityOnly"


@dataclass(frozen=True, slots=True)
class Revisioned:
    """The revisioned part of a spec, typed, with defaults filled in."""

    target: Target
    speculation: Speculation
    engine: Engine
    pod: Pod
    model_cache: ModelCache | None


def words_of(spec: SpeculativeDeploymentSpec) -> Words:
    """The words of a spec: only what differs from the schema's defaults."""
    canonical = canonical_words(spec)
    return Words(hash=words_hash(canonical), canonical=canonical)


def native_words(words: Words) -> Words:
    """The words of the lane without speculation; its hash is never that of a revision."""
    canonical = native_words_of(words.canonical)
    return Words(hash=native_hash(words.canonical), canonical=canonical)


def parse(canonical: Mapping[str, Any]) -> Revisioned:
    """The typed fields of stored words.

    Raises:
        pydantic.ValidationError: the words were not written by this API version.
    """
    return _parsed(orjson.dumps(dict(canonical)))


@lru_cache(maxsize=256)
def _parsed(text: bytes) -> Revisioned:
    """By content: the objects of one pass ask for the same words ten times."""
    spec = SpeculativeDeploymentSpec.model_validate(orjson.loads(text))
    return Revisioned(spec.target, spec.speculation, spec.engine, spec.pod, spec.model_cache)


def change_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> ChangeKind | None:
    """What changes between two canonical forms; None when nothing does.

    A change of `pod.env` counts as Engine, since variables steer the engine.
    Speculation together with anything else is never SpeculationOnly.
    """
    changed = _changed(old, new)
    if not changed:
        return None
    if changed == {"speculation"}:
        return ChangeKind.SPECULATION
    if "target" in changed:
        return ChangeKind.TARGET
    engine = _changed(old.get("engine", {}), new.get("engine", {}))
    steers_engine = "env" in _changed(old.get("pod", {}), new.get("pod", {}))
    if "speculation" in changed or steers_engine or engine - _CAPACITY_ENGINE_FIELDS:
        return ChangeKind.ENGINE
    return ChangeKind.CAPACITY


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {key for key in {*old, *new} if old.get(key) != new.get(key)}


def ngram_of(speculation: Speculation) -> NGramLookup:
    """The look-up window that applies, the default one when the block is absent."""
    return speculation.ngram or NGramLookup()
