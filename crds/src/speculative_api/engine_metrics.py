"""PURE: the engine's Prometheus text becomes counters with canonical names.

Comes in: the body of the engine's `/metrics`. Goes out: a `Reading`, from which
the digest, the worker's own `/metrics` and the progress rule are made. The
worker reads its own engine; the operator reads that of a pod without our worker.
Absent stays absent (`None`), which is not 0; NaN and infinities are absent.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from speculative_api.engine_tables import all_metrics
from speculative_api.metrics_page import Series, series_by_name
from speculative_api.worker import Latency

ALIASES: Final = all_metrics()
"""Canonical name to the engine's names, newest first; the first that is present counts.

Rows of `speculative_api/engines/vllm.json`, each with the releases that report it.
"""

_CACHE: Final = "vllm:cache_config_info"
_BLOCKS_LABEL: Final = "num_gpu_blocks"
_EMITTED: Final = "vllm:spec_decode_num_emitted_tokens_total"
"""First-generation (V0) engines only: tokens that drafting steps yielded, the step's own included.
Their accepted tokens also count those that stand behind a rejected one."""
_STARTED: Final = "process_start_time_seconds"
_CREATED: Final = "vllm:generation_tokens_created"
_PER_ENGINE: Final = (
    "generated_tokens",
    "prompt_tokens",
    "draft_tokens",
    "accepted_tokens",
    "running",
    "waiting",
)
"""What every engine behind one page reports, each for itself."""
_HISTOGRAMS: Final = (
    "inter_token_seconds",
    "time_to_first_token_seconds",
    "output_token_seconds",
    "request_seconds",
)


def _series(*meanings: str) -> frozenset[str]:
    ends = dict.fromkeys(_HISTOGRAMS, ("_bucket", "_sum", "_count"))
    return frozenset(
        f"{name}{end}"
        for meaning in meanings
        for name in ALIASES[meaning]
        for end in ends.get(meaning, ("",))
    )


SERIES: Final = _series(*ALIASES) | {_CACHE, _EMITTED}
"""Names of series that a reading is made of: three quarters of an engine's page are others."""
LOAD_SERIES: Final = _series("running", "waiting", "generated_tokens")
"""Those that `Reading.loads` is made of."""
_READ: Final = SERIES | {_STARTED, _CREATED}
_IMPOSSIBLE: Final = 2**53 + 1
"""For a sum beyond all numbers: no digest takes it (`worker.Count`)."""


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
    preemptions: int | None = None
    kv_cache_blocks: int | None = None
    """Blocks of the cache, of all engines."""
    emitted_tokens: int | None = None
    """Of first-generation engines: tokens of drafting steps."""
    started_at: float | None = None
    """Unix seconds at which the counters began, where the page says so."""
    torn: bool = False
    """Some counters lack an engine that others have: half a page, or a series that is NaN. Its
    sums would fall, which looks like a restart."""


def reading(text: str) -> Reading:
    """Reads the engine's metrics; lines it cannot read count as absent."""
    families = series_by_name(text, _READ)
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
        preemptions=_total(families, "preemptions"),
        kv_cache_blocks=_blocks(families),
        emitted_tokens=_sum(families.get(_EMITTED, [])),
        started_at=_started_at(families),
        torn=len(set(_engines(families))) > 1,
    )


def counters(found: Reading, *, num_speculative_tokens: int | None) -> dict[str, int | None]:
    """The counters of a digest, alike for every generation of engines.

    Where only first-generation counters are there, accepted tokens are the
    emitted ones less one for each step, and steps are known only with
    `num_speculative_tokens`; without it they are absent.
    """
    drafts, accepted = found.drafts, found.accepted_tokens
    if drafts is None and found.emitted_tokens is not None:
        accepted = None
        if num_speculative_tokens and found.draft_tokens is not None:
            drafts = found.draft_tokens // num_speculative_tokens
            accepted = max(found.emitted_tokens - drafts, 0)
    return {
        "requests_finished": found.requests_finished,
        "prompt_tokens": found.prompt_tokens,
        "generated_tokens": found.generated_tokens,
        "drafts": drafts,
        "draft_tokens": found.draft_tokens,
        "accepted_tokens": accepted,
        "running": found.running,
        "waiting": found.waiting,
        "preemptions": found.preemptions,
        "kv_cache_blocks": found.kv_cache_blocks,
    }


def cache_usage(found: Reading) -> dict[str, float | None]:
    """Share of the KV cache in use; absent where it can't be true, lest it cost the digest."""
    usage = found.kv_cache_usage
    return {"kv_cache_usage": usage if usage is not None and 0 <= usage <= 1 else None}


def latencies(found: Reading) -> dict[str, Latency | None]:
    """The histograms of a digest."""
    return {
        "ttft": _latency(found.time_to_first_token_seconds),
        "itl": _latency(found.output_token_seconds),
        "e2e": _latency(found.request_seconds),
    }


def _latency(histogram: Histogram | None) -> Latency | None:
    """The digest's form; absent where the buckets contradict each other (a series was NaN)."""
    if histogram is None:
        return None
    finite = [(bound, count) for bound, count in histogram.buckets if math.isfinite(bound)]
    rising = [*(count for _, count in finite), histogram.count]
    if not finite or rising[0] < 0 or rising != sorted(rising):
        return None
    return Latency(
        source=histogram.source,
        bounds_seconds=tuple(bound for bound, _ in finite),
        counts=tuple(count for _, count in finite),
        count=histogram.count,
    )


def _blocks(families: Mapping[str, list[Series]]) -> int | None:
    """From labels of an information series (vllm/v1/metrics/loggers.py, cache_config_info)."""
    found = [series.labels.get(_BLOCKS_LABEL, "") for series in families.get(_CACHE, [])]
    counts = [int(text) for text in found if text.isascii() and text.isdigit() and len(text) < 16]
    return sum(counts) if counts else None


def _started_at(families: Mapping[str, list[Series]]) -> float | None:
    """The process's start; several server processes share one page without it."""
    for name in (_STARTED, _CREATED):
        if found := families.get(name):
            return max(series.value for series in found)
    return None


def _engines(families: Mapping[str, list[Series]]) -> Iterable[frozenset[str]]:
    for canonical in _PER_ENGINE:
        if found := _newest(families, canonical):
            yield frozenset(series.labels.get("engine", "0") for series in found)
    for canonical in _HISTOGRAMS:
        for name in ALIASES[canonical]:
            if buckets := families.get(f"{name}_bucket"):
                yield frozenset(series.labels.get("engine", "0") for series in buckets)


def _newest(families: Mapping[str, list[Series]], canonical: str) -> list[Series]:
    for name in ALIASES[canonical]:
        if found := families.get(name):
            return found
    return []


def _total(families: Mapping[str, list[Series]], canonical: str) -> int | None:
    return _sum(_newest(families, canonical))


def _sum(found: list[Series]) -> int | None:
    return max(0, _whole(sum(series.value for series in found))) if found else None


def _whole(value: float) -> int:
    return round(value) if math.isfinite(value) else _IMPOSSIBLE


def _histogram(families: Mapping[str, list[Series]], canonical: str) -> Histogram | None:
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
        buckets=tuple((bound, _whole(count)) for bound, count in sorted(buckets.items())),
        sum=sum(series.value for series in families.get(f"{source}_sum", [])),
        count=_whole(sum(series.value for series in families.get(f"{source}_count", []))),
        source=source,
    )


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _loads(families: Mapping[str, list[Series]]) -> dict[str, Load]:
    found: dict[str, dict[str, float]] = {}
    for canonical in ("running", "waiting", "generated_tokens"):
        for series in _newest(families, canonical):
            engine = found.setdefault(series.labels.get("engine", "0"), {})
            engine[canonical] = engine.get(canonical, 0.0) + series.value
    return {
        name: Load(
            running=_whole(engine["running"]),
            waiting=_whole(engine["waiting"]),
            generated=_whole(engine["generated_tokens"]),
        )
        for name, engine in found.items()
        if engine.keys() >= {"running", "waiting", "generated_tokens"}
    }
