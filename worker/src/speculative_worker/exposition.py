"""PURE: the worker's own `/metrics`, in Prometheus text with canonical names."""

from collections.abc import Iterator
from typing import Final

from speculative_api.engine_metrics import Histogram, Reading
from speculative_api.worker import AdaptiveState, Digest

_PREFIX: Final = "speculative_worker_"
_COUNTERS: Final = (
    ("requests_finished", "Requests that ended, by whatever reason."),
    ("prompt_tokens", "Prompt tokens handled."),
    ("generated_tokens", "Tokens generated."),
    ("drafts", "Steps in which something was drafted."),
    ("draft_tokens", "Tokens proposed by the draft."),
    ("accepted_tokens", "Proposed tokens that the target accepted."),
)
_GAUGES: Final = (
    ("running", "Requests being generated."),
    ("waiting", "Requests waiting for a place in the batch."),
)


def exposition(digest: Digest, reading: Reading | None) -> str:
    """The text of `/metrics`; what is absent in the digest has no series."""
    return "\n".join([*_lines(digest, reading), ""])


def _lines(digest: Digest, reading: Reading | None) -> Iterator[str]:
    for name, says in (
        ("ready", "1 when new requests may come."),
        ("draining", "1 while the worker lets running generations finish."),
        ("stalled", "1 while work waits and no token comes."),
    ):
        yield from _single(name, says, "gauge", float(getattr(digest, name)))
    yield from _single(
        "engine_start_time_seconds",
        "Unix time of the engine's start; counters began anew then.",
        "gauge",
        digest.engine_started_at,
    )
    for name, says in _COUNTERS:
        yield from _single(f"{name}_total", says, "counter", getattr(digest, name))
    for name, says in _GAUGES:
        yield from _single(f"requests_{name}", says, "gauge", getattr(digest, name))
    yield from _adaptive(digest.adaptive)
    if reading is None:
        return
    yield from _single(
        "kv_cache_usage_ratio",
        "Share of the KV cache in use, 1 is full; the fullest engine's.",
        "gauge",
        reading.kv_cache_usage,
    )
    yield from _histogram(
        "inter_token_latency_seconds", "Time between tokens.", reading.inter_token_seconds
    )
    yield from _histogram(
        "time_to_first_token_seconds",
        "Time to the first token.",
        reading.time_to_first_token_seconds,
    )
    yield from _histogram(
        "request_latency_seconds", "Whole requests, waiting included.", reading.request_seconds
    )


def _adaptive(state: AdaptiveState | None) -> Iterator[str]:
    if state is None:
        return
    yield from _single(
        "adaptive_draft_tokens", "Draft length in use apart from trials.", "gauge", state.tokens
    )
    if state.gain_percent is not None:
        yield from _single(
            "adaptive_gain_ratio",
            "Estimated tokens per second over those at draft length 0.",
            "gauge",
            1 + state.gain_percent / 100,
        )


def _single(name: str, says: str, kind: str, value: float | None) -> Iterator[str]:
    if value is not None:
        yield f"# HELP {_PREFIX}{name} {says}"
        yield f"# TYPE {_PREFIX}{name} {kind}"
        yield f"{_PREFIX}{name} {value!r}"


def _histogram(name: str, says: str, histogram: Histogram | None) -> Iterator[str]:
    if histogram is None:
        return
    yield f"# HELP {_PREFIX}{name} {says}"
    yield f"# TYPE {_PREFIX}{name} histogram"
    for bound, count in histogram.buckets:
        shown = "+Inf" if bound == float("inf") else repr(bound)
        yield f'{_PREFIX}{name}_bucket{{le="{shown}"}} {count}'
    yield f"{_PREFIX}{name}_sum {histogram.sum!r}"
    yield f"{_PREFIX}{name}_count {histogram.count}"
