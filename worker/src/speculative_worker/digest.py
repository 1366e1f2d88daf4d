"""PURE: the engine's Prometheus text becomes counters with canonical names.

Comes in: the body of the engine's `/metrics`. Goes out: a `Reading`, from which
the digest, the worker's own `/metrics` and the progress rule are made.
Absent stays absent (`None`), which is not 0; NaN and infinities are absent.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from speculative_api.engine_tables import all_metrics

ALIASES: Final = all_metrics()
"""Canonical name to the engine's names, newest first; the first that is present counts.

Rows of `speculative_api/engines/vllm.json`, each with the releases that report it.
"""

_SERIES = re.compile(
    r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r'(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
    r"\s+(?P<value>\S+)(?:\s+\S+)?\s*$"
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound in seconds, summed over engines."""

    buckets: tuple[tuple[float, int], ...]
    sum: float
    count: int
    source: str = ""
    """The engine's name of it."""


@dataclass(frozen=True, slots=True)
class Load:
    """One engine's work: requests now, and tokens generated since it started."""

    running: int
    waiting: int
    generated: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the engine's metrics; counters are sums over its engines."""

    requests_finished: int | None
    prompt_tokens: int | None
    generated_tokens: int | None
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    running: int | None
    waiting: int | None
    kv_cache_usage: float | None
    """Share in use, 0 to 1; the fullest engine's."""
    inter_token_seconds: Histogram | None
    time_to_first_token_seconds: Histogram | None
    output_token_seconds: Histogram | None
    """Per request where the engine counts so, else the same as `inter_token_seconds`."""
    request_seconds: Histogram | None
    loads: Mapping[str, Load]
    """By the `engine` label: one stuck engine hides behind busy ones in a sum."""


@dataclass(frozen=True, slots=True)
class _Series:
    labels: Mapping[str, str]
    value: float


def reading(text: str) -> Reading:
    """Reads the engine's metrics; lines it cannot read count as absent."""
    families = _families(text.splitlines())
    return Reading(
        requests_finished=_total(families, "requests_finished"),
        prompt_tokens=_total(families, "prompt_tokens"),
        generated_tokens=_total(families, "generated_tokens"),
        drafts=_total(families, "drafts"),
        draft_tokens=_total(families, "draft_tokens"),
        accepted_tokens=_total(families, "accepted_tokens"),
        running=_total(families, "running"),
        waiting=_total(families, "waiting"),
        kv_cache_usage=max(
            (series.value for series in _newest(families, "kv_cache_usage")), default=None
        ),
        inter_token_seconds=_histogram(families, "inter_token_seconds"),
        time_to_first_token_seconds=_histogram(families, "time_to_first_token_seconds"),
        output_token_seconds=_histogram(families, "output_token_seconds"),
        request_seconds=_histogram(families, "request_seconds"),
        loads=_loads(families),
    )


def _families(lines: Iterable[str]) -> dict[str, list[_Series]]:
    families: dict[str, list[_Series]] = {}
    for line in lines:
        if line.startswith("#") or not (found := _SERIES.match(line)):
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = {
                name: _ESCAPE.sub(lambda mark: "\n" if mark[1] == "n" else mark[1], text)
                for name, text in _LABEL.findall(found["labels"] or "")
            }
            families.setdefault(found["name"], []).append(_Series(labels, value))
    return families


def _newest(families: Mapping[str, list[_Series]], canonical: str) -> list[_Series]:
    for name in ALIASES[canonical]:
        if found := families.get(name):
            return found
    return []


def _total(families: Mapping[str, list[_Series]], canonical: str) -> int | None:
    found = _newest(families, canonical)
    return max(0, round(sum(series.value for series in found))) if found else None


def _histogram(families: Mapping[str, list[_Series]], canonical: str) -> Histogram | None:
    """The newest name that has buckets; sum and count are of the same name, never of another."""
    source = next((name for name in ALIASES[canonical] if families.get(f"{name}_bucket")), None)
    if source is None:
        return None
    buckets: dict[float, float] = {}
    for series in families[f"{source}_bucket"]:
        bound = _bound(series.labels.get("le", ""))
        if bound is not None:
            buckets[bound] = buckets.get(bound, 0.0) + series.value
    if not buckets:
        return None
    return Histogram(
        buckets=tuple((bound, round(count)) for bound, count in sorted(buckets.items())),
        sum=sum(series.value for series in families.get(f"{source}_sum", [])),
        count=round(sum(series.value for series in families.get(f"{source}_count", []))),
        source=source,
    )


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _loads(families: Mapping[str, list[_Series]]) -> dict[str, Load]:
    found: dict[str, dict[str, float]] = {}
    for canonical in ("running", "waiting", "generated_tokens"):
        for series in _newest(families, canonical):
            engine = found.setdefault(series.labels.get("engine", "0"), {})
            engine[canonical] = engine.get(canonical, 0.0) + series.value
    return {
        name: Load(
            running=round(engine["running"]),
            waiting=round(engine["waiting"]),
            generated=round(engine["generated_tokens"]),
        )
        for name, engine in found.items()
        if engine.keys() >= {"running", "waiting", "generated_tokens"}
    }
