"""PURE: features that do not go together, and rules of thumb, each with its numbers.

Comes in: an `EngineRequest`. Goes out: sentences. The combinations are rows of
the table; a rule of thumb is a warning and never changes what was asked for.
Called by `engine_arguments`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from speculative_api import engine_tables as tables
from speculative_api.engine_request import EngineRequest, gives_flag
from speculative_api.engine_tables import Verdict
from speculative_api.model_buckets import bucket_of
from speculative_api.model_images import image_of

HIGH_UTILIZATION_PERCENT: Final = 95
LONG_NGRAM_DRAFT_TOKENS: Final = 32
LONG_DRAFT_TOKENS: Final = 7
"""Guides begin with 3 to 7 tokens: later positions are accepted ever more rarely."""
SHORT_DRAFT_TOKENS: Final = 3
SHORT_LOOKUP_TOKENS: Final = 8
"""vllm#40875: look-ups of 2 tokens garbled half of the tool calls, 8 cured it."""
_LOOKUPS: Final = ("NGram", "NGramGPU")
_COMMIT: Final = re.compile(r"@[0-9a-f]{40}$")
_FIELDS: Final[Mapping[str, str]] = {
    "pipelineParallel": "target.pipelineParallelSize",
    "dataParallel": "target.dataParallelSize",
    "lora": "target.lora",
    "draftQuantization": "speculation.extra.quantization",
    "schedule": "speculation.extra.num_speculative_tokens_per_batch_size",
    "draftTensorParallel": "speculation.draft.tensorParallelSize",
    "unequalDraftTensorParallel": "speculation.draft.tensorParallelSize",
    "chunkedPrefill": "engine.extraArgs",
    "asyncScheduling": "engine.extraArgs",
    "unpaddedDrafts": "speculation.extra.disable_padded_drafter_batch",
    "adaptiveVerification": "speculation.extra.enable_adaptive_verification",
    "highUtilisation": "engine.gpuMemoryUtilizationPercent",
}


def combination_findings(request: EngineRequest, verdict: Verdict) -> list[str]:
    """One sentence for each row of the table that applies, with this verdict."""
    shown = features(request)
    return [
        _sentence(row.features, row.because, request, shown)
        for row in tables.facts_of(request.version).combinations
        if row.verdict == verdict and request.method in row.methods and row.features <= shown.keys()
    ]


def features(request: EngineRequest) -> dict[str, str]:
    """The features that a request has, each with its value as a person would write it."""
    draft, target = request.draft_tensor_parallel_size, request.tensor_parallel_size
    percent = request.gpu_memory_utilization_percent
    asked = {
        "pipelineParallel": request.pipeline_parallel_size > 1,
        "dataParallel": request.data_parallel_size > 1,
        "lora": request.lora,
        "draftQuantization": "quantization" in request.extra,
        "schedule": "num_speculative_tokens_per_batch_size" in request.extra,
        "draftTensorParallel": draft > 1,
        "unequalDraftTensorParallel": request.has_draft and draft != target,
        "chunkedPrefill": gives_flag(request.extra_args, "--enable-chunked-prefill"),
        "asyncScheduling": gives_flag(request.extra_args, "--async-scheduling"),
        "unpaddedDrafts": request.extra.get("disable_padded_drafter_batch") is True,
        "adaptiveVerification": request.extra.get("enable_adaptive_verification") is True,
        "highUtilisation": percent >= HIGH_UTILIZATION_PERCENT,
    }
    values = {
        "pipelineParallel": str(request.pipeline_parallel_size),
        "dataParallel": str(request.data_parallel_size),
        "draftQuantization": str(request.extra.get("quantization")),
        "draftTensorParallel": str(draft),
        "unequalDraftTensorParallel": f"{draft} (target.tensorParallelSize {target})",
        "chunkedPrefill": "--enable-chunked-prefill",
        "asyncScheduling": "--async-scheduling",
        "highUtilisation": f"{percent} ({HIGH_UTILIZATION_PERCENT} or more)",
    }
    return {name: values.get(name, "") for name, is_asked in asked.items() if is_asked}


def rules_of_thumb(request: EngineRequest) -> Iterable[str]:
    """What the guides advise against, with both numbers."""
    tokens, method = request.num_speculative_tokens or 0, request.method
    name = f"speculation.numSpeculativeTokens {tokens}"
    if method in _LOOKUPS and tokens > LONG_NGRAM_DRAFT_TOKENS:
        yield (
            f"{name} is long for {method}: few of so many draft tokens are accepted, and every one "
            "of them is verified"
        )
    elif method in ("DraftModel", "Eagle", "Eagle3") and tokens > LONG_DRAFT_TOKENS:
        yield (
            f"{name} is more than the {SHORT_DRAFT_TOKENS} to {LONG_DRAFT_TOKENS} to begin with: "
            "later positions are accepted ever more rarely, and each costs one run of the draft"
        )
    elif method == "DraftModel" and 0 < tokens < SHORT_DRAFT_TOKENS:
        yield (
            f"{name} is less than the {SHORT_DRAFT_TOKENS} to {LONG_DRAFT_TOKENS} to begin with: "
            "a separate draft rarely pays for itself with so few"
        )
    yield from _tool_calls(request)
    if method == "Suffix":
        yield (
            "speculation.method Suffix needs the package arctic-inference in the image; an engine "
            "without it ends at once"
        )
    for where, source in request.models.items():
        if source.startswith("hf://") and not _COMMIT.search(source):
            yield (
                f"{where} {source!r} names no commit: pods that start later may get other weights; "
                "end it in @ and the 40 digits of a commit (the digest of a pod says which it has)"
            )
        bucket = bucket_of(source)
        if bucket is not None and bucket.version is None:
            yield (
                f"{where} {source!r} names no version: pods that start later may get other "
                "weights; end it in @ and the 40 digits of a version (the digest of a pod says "
                "which it has)"
            )
        image = image_of(source)
        if image is not None and not image.is_pinned:
            yield (
                f"{where} {source!r} names no digest: pods that start later may get other weights; "
                "write registry/name@sha256:…"
            )
    if request.image is not None and _floats(request.image):
        yield (
            f"engine.image {request.image!r} has no tag of its own or latest: what it holds can "
            "change without a new revision, and engine.version would no longer say its flags and "
            "metric names; pin a version or a digest"
        )


def schedule_findings(schedule: list[Any], *, largest_k: int, max_num_seqs: int) -> list[str]:
    """A schedule by batch size is ordered, without gaps, and reaches the largest batch."""
    name = "speculation.extra.num_speculative_tokens_per_batch_size"
    expected_start = 1
    for index, entry in enumerate(schedule):
        if not (
            isinstance(entry, list) and len(entry) == 3 and all(is_integer(part) for part in entry)
        ):
            return [f"{name}[{index}]: must be [first batch size, last batch size, tokens]"]
        start, end, tokens = entry
        if start != expected_start or end < start:
            return [
                f"{name}[{index}]: {entry} must start at batch size {expected_start}: ranges are "
                "ordered and leave no gap"
            ]
        if not 0 <= tokens <= largest_k:
            return [
                f"{name}[{index}]: {tokens} tokens must lie between 0 and "
                f"speculation.numSpeculativeTokens {largest_k}"
            ]
        expected_start = end + 1
    if expected_start <= max_num_seqs:
        return [
            f"{name}: ends at batch size {expected_start - 1}, below engine.maxNumSeqs "
            f"{max_num_seqs}; add a range"
        ]
    return []


def is_integer(value: Any) -> bool:
    """Whether a value from JSON is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _sentence(
    needed: frozenset[str], because: str, request: EngineRequest, shown: Mapping[str, str]
) -> str:
    first, *others = sorted(needed, key=lambda name: (name in ("lora", "dataParallel"), name))
    beside = "".join(f" and {_FIELDS[name]} {shown[name]}".rstrip() for name in others)
    return (
        f"{_FIELDS[first]} {shown[first]}".rstrip()
        + f": with method {request.method}{beside} on engine {request.version}: {because}"
    )


def _tool_calls(request: EngineRequest) -> Iterable[str]:
    shortest = request.ngram_prompt_lookup_min or 2
    if (
        request.method in _LOOKUPS
        and shortest < SHORT_LOOKUP_TOKENS
        and gives_flag(request.extra_args, "--enable-auto-tool-choice")
    ):
        yield (
            f"speculation.ngram.promptLookupMin {shortest} is below {SHORT_LOOKUP_TOKENS} while "
            "tools are called: such short look-ups were reported to garble tool calls "
            "(vllm#40875)"
        )


def _floats(image: str) -> bool:
    """Whether an image's name says nothing of its content: no digest, and no tag or `latest`."""
    name, _, digest = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return not digest and tag in ("", "latest")
