"""PURE: the words of a revision and its hash, from a spec.

The operator names a revision's objects by the hash; the command line finds out
by it which revision a spec asks for. Golden hashes stand in the tests: within
an API version the hash of a spec never changes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from speculative_api.v1alpha1 import REVISIONED_FIELDS, Method, SpeculativeDeploymentSpec

HASH_LENGTH: Final = 10
_KEYED_LISTS: Final = ("env", "imagePullSecrets")
"""Lists of `pod` whose items are known by `name`: their order says nothing."""
_OPTIONAL_BLOCKS: Final = (
    ("speculation", "adaptive"),
    ("speculation", "extra"),
    ("pod", "resources"),
    ("pod", "affinity"),
)
"""Free-form blocks for which empty means absent."""


def canonical_words(spec: SpeculativeDeploymentSpec) -> dict[str, Any]:
    """The revisioned part of a spec, camelCase: only what differs from the schema's defaults.

    An API server fills defaults in on reading, so a hash over all fields would
    change with every new field of the CRD.
    """
    dumped = spec.model_dump(
        mode="json", by_alias=True, include=set(REVISIONED_FIELDS), exclude_defaults=True
    )
    return _without_empty_blocks(dumped)


def words_hash(canonical: Mapping[str, Any]) -> str:
    """The hash of canonical words: `HASH_LENGTH` hexadecimal characters."""
    return _digest(canonical)


def native_words_of(canonical: Mapping[str, Any]) -> dict[str, Any]:
    """The words of the lane without speculation beside a revision."""
    return {**canonical, "speculation": {"method": Method.NONE.value}}


def native_hash(canonical: Mapping[str, Any]) -> str:
    """The hash of the native lane beside a revision, never that of a revision.

    It is salted with the lane: a revision whose method already is None would
    otherwise share its Deployment with its own native lane.
    """
    return _digest(native_words_of(canonical), salt="native:")


def is_native(hash_: str, canonical: Mapping[str, Any]) -> bool:
    """Whether a stored revision is a native lane's, not one that a user wrote."""
    return hash_ == native_hash(canonical)


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
    if "resources" in dumped.get("pod", {}):
        dumped["pod"]["resources"] = _quantities_as_text(dumped["pod"]["resources"])
    return dumped


def _quantities_as_text(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Requests and limits with `2` written as `"2"`: to Kubernetes they are one quantity."""
    return {
        kind: {name: _quantity(value) for name, value in amounts.items()}
        if isinstance(amounts, Mapping)
        else amounts
        for kind, amounts in resources.items()
    }


def _quantity(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


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
