"""Revisions: a spec's revisioned part in canonical form, its hash, and the way back.

`words_of` makes the words; `parse` turns stored words into typed fields again;
`native_words` derives the lane without speculation. Called by `gather` (what
does the spec ask for?), `rollout` (what kind of change?) and `objects`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from speculative_api.v1alpha1 import (
    REVISIONED_FIELDS,
    Engine,
    Method,
    ModelCache,
    NGramLookup,
    Pod,
    Speculation,
    SpeculativeDeploymentSpec,
    Target,
)
from speculative_operator.snapshot import Words

HASH_LENGTH: Final = 10
_KEYED_LISTS: Final = ("env", "imagePullSecrets")
"""Lists of `pod` whose items are known by `name`: their order says nothing."""
_OPTIONAL_BLOCKS: Final = (("speculation", "extra"), ("pod", "resources"), ("pod", "affinity"))
"""Free-form blocks for which empty means absent."""
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
    """The words of a spec: only what differs from the schema's defaults.

    An API server fills defaults in on reading, so a hash over all fields would
    change with every new field of the CRD.
    """
    dumped = spec.model_dump(
        mode="json", by_alias=True, include=set(REVISIONED_FIELDS), exclude_defaults=True
    )
    canonical = _without_empty_blocks(dumped)
    return Words(hash=_digest(canonical), canonical=canonical)


def native_words(words: Words) -> Words:
    """The words of the lane without speculation; its hash is never that of a revision.

    The hash is salted with the lane: a revision whose method already is None
    would otherwise share its Deployment with its own native lane.
    """
    canonical = {**words.canonical, "speculation": {"method": Method.NONE.value}}
    return Words(hash=_digest(canonical, salt="native:"), canonical=canonical)


def is_native(hash_: str, canonical: Mapping[str, Any]) -> bool:
    """Whether a stored revision is a native lane's, not one that a user wrote."""
    return hash_ == native_words(Words(hash="", canonical=canonical)).hash


def parse(canonical: Mapping[str, Any]) -> Revisioned:
    """The typed fields of stored words.

    Raises:
        pydantic.ValidationError: the words were not written by this API version.
    """
    spec = SpeculativeDeploymentSpec.model_validate(dict(canonical))
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


def _without_empty_blocks(dumped: dict[str, Any]) -> dict[str, Any]:
    for block, field in _OPTIONAL_BLOCKS:
        if dumped.get(block, {}).get(field) == {}:
            del dumped[block][field]
    speculation = dumped.get("speculation", {})
    if speculation.get("ngram") == {}:
        # All its values are the defaults, which is what an absent block means.
        del speculation["ngram"]
    if dumped.get("pod") == {}:
        del dumped["pod"]
    return dumped


def ngram_of(speculation: Speculation) -> NGramLookup:
    """The look-up window that applies, the default one when the block is absent."""
    return speculation.ngram or NGramLookup()


def _digest(canonical: Mapping[str, Any], salt: str = "") -> str:
    keyed = dict(canonical)
    if "pod" in keyed:
        keyed["pod"] = {
            key: _keyed(value) if key in _KEYED_LISTS else value
            for key, value in keyed["pod"].items()
        }
    text = json.dumps(keyed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256((salt + text).encode()).hexdigest()[:HASH_LENGTH]


def _keyed(items: Sequence[Any]) -> Sequence[Any]:
    """Items by name, unless a value refers to an earlier variable: then order has a meaning."""
    if any("$(" in str(item.get("value", "")) for item in items):
        return items
    return sorted(items, key=lambda item: str(item.get("name", "")))
