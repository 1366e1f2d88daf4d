"""PURE: what each engine version takes and reports, read from `engines/vllm.json`.

A row of the table holds from one series of releases ("0.18") up to, not
including, another; each has its source. `facts_of` picks the rows of a version.
Called by `engine_arguments`, `engine_combinations` and the worker.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

Series = tuple[int, int]
Verdict = Literal["warn", "refuse"]

_VERSION: Final = re.compile(r"^(\d+)\.(\d+)(?:\.\d+.*)?$")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the engine's speculative configuration."""

    kind: str
    """boolean, integer, number, text, list or map."""
    methods: tuple[str, ...] | None
    """Methods it says something for; None: all."""
    flag: str | None
    """How engines without a JSON value spell it."""


@dataclass(frozen=True, slots=True)
class Combination:
    """Features that do not go together, or not well."""

    features: frozenset[str]
    methods: frozenset[str]
    verdict: Verdict
    because: str
    source: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The table's rows for one version."""

    version: str
    series: Series
    """The series whose rows these are: the version's own, or the nearest below an unknown one."""
    takes_json: bool
    """Whether there is one `--speculative-config`; earlier engines have a flag for each value."""
    methods: Mapping[str, str]
    """Our name to the engine's."""
    aliases: frozenset[str]
    """Other names that the engine has for MTP."""
    keys: Mapping[str, Key]
    lossy_keys: Mapping[str, str]
    """Keys that change the output, with their kind of value."""
    choices: Mapping[str, tuple[str, ...]]
    """Values of a key that leave the target's distribution unchanged."""
    lossy_choices: Mapping[str, tuple[str, ...]]
    """Values of a key that change the output."""
    flags: Mapping[str, str]
    """Flags of this version that a field says, with the field."""
    short_flags: Mapping[str, str]
    combinations: tuple[Combination, ...]
    metrics: Mapping[str, tuple[str, ...]]
    """Meaning to the names that this version may report, newest first."""


def series_of(version: str) -> Series | None:
    """Major and minor of a version; None for what is no version, such as `latest`."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else None


def is_known(version: str) -> bool:
    """Whether the table was read from a release of this series."""
    return series_of(version) in _known()


def known_versions() -> tuple[str, ...]:
    """The releases that the table was read from, oldest first."""
    return tuple(table()["read"])


@functools.cache
def facts_of(version: str) -> Facts:
    """The rows for a version; for one that is not known, those of the nearest series below it.

    Versions that can't be read as one get the newest rows.
    """
    known = sorted(_known())
    asked = series_of(version)
    below = [series for series in known if asked is None or series <= asked]
    series = below[-1] if below else known[0]
    content = table()
    return Facts(
        version=version,
        series=series,
        takes_json=series >= _parsed(content["speculative_config_since"]),
        methods={row["method"]: row["engine"] for row in _rows("methods", series)},
        aliases=frozenset(row["alias"] for row in _rows("aliases", series)),
        keys={row["key"]: _key(row) for row in _rows("keys", series)},
        lossy_keys={row["key"]: row["kind"] for row in _rows("lossy_keys", series)},
        choices=_choices(series, lossy=False),
        lossy_choices=_choices(series, lossy=True),
        flags={row["flag"]: row["field"] for row in _rows("flags", series)},
        short_flags=_short_flags(content),
        combinations=tuple(_combination(row) for row in _rows("combinations", series)),
        metrics=_metrics(_rows("metrics", series)),
    )


def all_metrics() -> Mapping[str, tuple[str, ...]]:
    """Meaning to every name that any version reports, newest first.

    An engine is read by these and not by its version: names are exported
    under both spellings for a while, and an image may lie about its version.
    """
    return _metrics(table()["metrics"])


@functools.cache
def all_aliases() -> Mapping[str, str]:
    """Every other name of a method, of any version, with the name here."""
    return {row["alias"]: row["method"] for row in table()["aliases"]}


def key_field(key: str) -> str | None:
    """The field that says a key already."""
    return _pairs("key_fields", "key", "field").get(key)


def key_fields() -> Iterable[str]:
    """All keys that a field says."""
    return _pairs("key_fields", "key", "field")


def misnamed_key(key: str) -> str | None:
    """What to do instead of a name that no version has as a key."""
    return _pairs("misnamed_keys", "key", "remedy").get(key)


def versions_of_key(key: str) -> tuple[dict[str, Any], ...]:
    """All rows about a key, also those that change the output, whatever the version."""
    content = table()
    return tuple(row for row in (*content["keys"], *content["lossy_keys"]) if row["key"] == key)


def lossy_anywhere(key: str) -> frozenset[str]:
    """Values of a key that change the output, in whatever version."""
    rows = table()["choices"]
    return frozenset(row["value"] for row in rows if row["key"] == key and row.get("lossy"))


def other_flags(series: Series) -> Mapping[str, tuple[str, str]]:
    """Flags that this series does not have but others do: field, and `until` or empty."""
    return {
        row["flag"]: (row["field"], row.get("until", ""))
        for row in table()["flags"]
        if not _holds(row, series)
    }


def refused_flags() -> Mapping[str, str]:
    """Flags that no field says and that may not be set, each with the reason."""
    return _pairs("refused_flags", "flag", "why")


def refused_variables() -> Mapping[str, str]:
    """Environment variables of the engine that may not be set, each with the reason."""
    return _pairs("refused_variables", "name", "why")


def overriding_flags() -> Mapping[str, str]:
    """Flags that take the effect of a field away, each with what is to be known."""
    return _pairs("overriding_flags", "flag", "because")


def since_of_method(method: str) -> tuple[str, ...]:
    """In words, which series have a method."""
    return tuple(
        f"{row['since']} to before {row['until']}" if "until" in row else f"{row['since']} or newer"
        for row in table()["methods"]
        if row["method"] == method
    )


def since_of_flag(flag: str) -> str:
    """The first series that has a flag which a field says."""
    return next(str(row["since"]) for row in table()["flags"] if row["flag"] == flag)


@functools.cache
def table() -> dict[str, Any]:
    """The whole table as it is written."""
    text = files("speculative_api").joinpath("engines/vllm.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@functools.cache
def _known() -> frozenset[Series]:
    return frozenset(_parsed(version) for version in table()["read"])


def _parsed(text: str) -> Series:
    found = series_of(text)
    if found is None:
        raise ValueError(f"engines/vllm.json: {text!r} is no version")
    return found


def _holds(row: Mapping[str, Any], series: Series) -> bool:
    until = row.get("until")
    return _parsed(row["since"]) <= series and (until is None or series < _parsed(until))


def _rows(kind: str, series: Series) -> list[dict[str, Any]]:
    return [row for row in table()[kind] if _holds(row, series)]


@functools.cache
def _pairs(kind: str, key: str, value: str) -> Mapping[str, str]:
    return {row[key]: row[value] for row in table()[kind]}


def _key(row: Mapping[str, Any]) -> Key:
    methods = row.get("methods")
    return Key(row["kind"], tuple(methods) if methods is not None else None, row.get("flag"))


def _combination(row: Mapping[str, Any]) -> Combination:
    return Combination(
        features=frozenset(row["feature"].split("+")),
        methods=frozenset(row["methods"]),
        verdict=row["verdict"],
        because=row["because"],
        source=row["source"],
    )


def _choices(series: Series, *, lossy: bool) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in _rows("choices", series):
        if row.get("lossy", False) is lossy:
            found[row["key"]] = (*found.get(row["key"], ()), row["value"])
    return found


def _short_flags(content: Mapping[str, Any]) -> dict[str, str]:
    rows = (*content["flags"], *content["refused_flags"])
    return {row["short"]: row["flag"] for row in rows if "short" in row}


def _metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        found[row["meaning"]] = (*found.get(row["meaning"], ()), row["name"])
    return found
