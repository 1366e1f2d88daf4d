"""Does a live object already say what we want? Pure: decides whether an apply is needed.

The API server fills defaults in and writes quantities its own way, so live is
compared only where the desired body speaks, and quantities by value.
"""

import hashlib
import json
import re
from decimal import Decimal
from typing import Any, Final

import orjson

from speculative_api.labels import GROUP

APPLIED: Final = f"{GROUP}/applied"
"""Annotation with the digest of the last applied body: a field that we no longer
list leaves no other trace, and memory would not survive a restart."""

CREATED: Final = "+created"
"""Ends that digest while the object was created and never applied: the server then holds its
fields for written by an update, and an apply that lists one no longer would not remove it."""

_QUANTITY: Final = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|[KMGTPE]i|[MGTPE])?$")
_SUFFIXES: Final = {"m": Decimal("0.001"), "k": Decimal(1000), None: Decimal(1)} | {
    letter + binary: Decimal(1024 if binary else 1000) ** power
    for power, letter in enumerate("KMGTPE", start=1)
    for binary in ("i", "")
    if letter + binary != "K"
}
_LIST_KEYS: Final = ("name", "containerPort", "port", "mountPath", "key", "topologyKey", "uid")
"""Fields by which lists of the objects we write are keyed, most telling first."""


def digest(body: Any) -> str:
    """16 hexadecimal digits that stand for a body."""
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    if not text.isascii():
        # As the standard library writes it: a digest that moves makes every object be applied.
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def with_digest(body: dict[str, Any], *, created: bool = False) -> dict[str, Any]:
    """The body as it is sent: with its digest as an annotation."""
    metadata = body["metadata"]
    said = digest(body) + (CREATED if created else "")
    annotations = {**metadata.get("annotations", {}), APPLIED: said}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def said_digest(live: dict[str, Any]) -> tuple[str, bool]:
    """The digest of the body that the object was last made from, and whether it was created so."""
    said = str((live["metadata"].get("annotations") or {}).get(APPLIED, ""))
    return said.removesuffix(CREATED), said.endswith(CREATED)


def covers(live: Any, desired: Any) -> bool:
    """Whether live has everything that desired says; more is allowed."""
    if live == desired:
        # True of most branches, and compared outside of Python.
        return True
    if isinstance(desired, dict):
        # An empty block of ours may be stored as absent.
        known = live if isinstance(live, dict) else {}
        for key, value in desired.items():  # noqa: SIM110 - a generator per level takes twice as long
            if not covers(known.get(key), value):
                return False
        return True
    if isinstance(desired, list):
        return _covers_list(live if isinstance(live, list) else [], desired)
    if live is None:
        # The server may drop what equals the type's zero value.
        return desired in (None, False, "", 0)
    return _equal_quantities(live, desired)


def _covers_list(live: list[Any], desired: list[Any]) -> bool:
    key = _key_of(desired)
    if key is None:
        return len(live) == len(desired) and all(map(covers, live, desired))
    found = {item[key]: item for item in live if _has(item, key)}
    return all(item[key] in found and covers(found[item[key]], item) for item in desired)


def _key_of(items: list[Any]) -> str | None:
    """The field by which the list is keyed; None when it is not."""
    return next((k for k in _LIST_KEYS if items and all(_has(item, k) for item in items)), None)


def _has(item: Any, key: str) -> bool:
    return isinstance(item, dict) and isinstance(item.get(key), str | int)


def _equal_quantities(live: Any, desired: Any) -> bool:
    if isinstance(live, bool) or isinstance(desired, bool):
        return False
    numbers = [_QUANTITY.match(str(value)) for value in (live, desired)]
    if not all(numbers):
        return False
    first, second = (Decimal(n[1]) * _SUFFIXES[n[2]] for n in numbers if n)
    return first == second
