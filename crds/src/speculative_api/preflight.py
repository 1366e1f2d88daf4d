"""PURE: do draft and target fit each other and the GPU? Known from files, before any GPU is held.

Comes in: what is asked of the engine and what both checkpoints say of
themselves. Goes out: findings, each with both numbers and what to change. The
worker ends with those that refuse; `lint --with-models` shows all.

vLLM compares the configured vocabulary sizes only, and then feeds the draft
with ids of the target's tokenizer: equal sizes with other tokens load well and
have almost no token accepted. So tokens are compared one by one.
"""

from collections.abc import Iterator
from typing import Final

from speculative_api import draft_heads
from speculative_api.checkpoints import DRAFT, TARGET, draft_findings, target_findings
from speculative_api.conditions import WorkerReason
from speculative_api.engine_request import EngineRequest
from speculative_api.engine_tables import facts_of
from speculative_api.findings import Finding, refused, warned
from speculative_api.memory_estimate import GIBIBYTE, estimated
from speculative_api.model_facts import ModelFacts
from speculative_api.vocabularies import vocabulary_findings

__all__ = ["LARGEST_DRAFT_SHARE", "Finding", "preflight"]

LARGEST_DRAFT_SHARE: Final = 20
"""Guides: a separate draft has at most one twentieth of the target's size."""
_HEADS: Final = ("Eagle", "Eagle3")
_EAGLE_POSITIONS_SINCE: Final = (0, 27)
"""Engines from here on give an EAGLE head the target's positions
(vllm/config/speculative.py, _maybe_override_draft_max_position_embeddings)."""


def preflight(
    request: EngineRequest,
    target: ModelFacts,
    draft: ModelFacts | None,
    *,
    gpu_bytes: int | None = None,
) -> list[Finding]:
    """All findings, those that refuse first.

    Args:
        gpu_bytes: memory of one GPU; None where it is not known.
    """
    found = [*target_findings(request, target)]
    if draft is not None:
        found += draft_findings(request, draft)
        found += [*_context(request, target, draft), *_vocabulary(request, target, draft)]
        found += [*_formats(request, target, draft), *_share(request, target, draft)]
    found += [
        Finding(severity, WorkerReason.DRAFT_MISMATCH, DRAFT if draft else TARGET, text)
        for severity, text in draft_heads.head_findings(request, target, draft)
    ]
    if gpu_bytes is not None:
        found += _memory(request, target, draft, gpu_bytes)
    return sorted(found, key=lambda finding: finding.severity != "refuse")


def _context(request: EngineRequest, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    effective, limit = request.max_model_len or target.context_tokens, draft.context_tokens
    asked = request.extra.get("max_model_len")
    if isinstance(asked, int) and limit is not None and asked > limit:
        yield refused(
            WorkerReason.DRAFT_CONTEXT_TOO_SHORT,
            "speculation.extra.max_model_len",
            f"{asked} is above the {limit} tokens that {draft.source} takes; lower it to at most "
            f"{limit} or remove it",
        )
    if effective is None or limit is None or limit >= effective:
        return
    where = "target.maxModelLen" if request.max_model_len else "the target's own limit"
    numbers = f"the draft {draft.source} takes {limit} tokens, {where} is {effective}"
    if request.method in _HEADS and facts_of(request.version).series >= _EAGLE_POSITIONS_SINCE:
        yield warned(
            WorkerReason.DRAFT_CONTEXT_TOO_SHORT,
            DRAFT,
            f"{numbers}: this engine stretches the head's positions; beyond {limit} tokens, which "
            "it was not trained for, expect fewer to be accepted",
        )
        return
    yield refused(
        WorkerReason.DRAFT_CONTEXT_TOO_SHORT,
        DRAFT,
        f"{numbers}: longer requests would kill the engine; set target.maxModelLen to at most "
        f"{limit} or choose a draft with a longer context",
    )


def _vocabulary(request: EngineRequest, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    if request.method != "DraftModel":
        return
    if request.extra.get("use_heterogeneous_vocab") is True:
        text = f"use_heterogeneous_vocab: vocabularies of {draft.source} are not compared"
        yield warned(WorkerReason.VOCABULARY_MISMATCH, DRAFT, text)
        return
    for severity, text in vocabulary_findings(target, draft):
        yield Finding(severity, WorkerReason.VOCABULARY_MISMATCH, DRAFT, text)


def _formats(request: EngineRequest, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    ours, theirs = target.number_format, draft.number_format
    if ours and theirs and ours != theirs and request.dtype in (None, "auto"):
        yield warned(
            WorkerReason.DRAFT_MISMATCH,
            DRAFT,
            f"{draft.source} is {theirs}, the target {ours}: the engine runs both as {ours}; set "
            "target.dtype if that is not meant",
        )
    if target.quantization and not draft.quantization and request.method != "DraftModel":
        yield warned(
            WorkerReason.DRAFT_MISMATCH,
            DRAFT,
            f"the target is quantised ({target.quantization}), {draft.source} is not: a head that "
            "was trained on full precision has fewer tokens accepted",
        )


def _share(request: EngineRequest, target: ModelFacts, draft: ModelFacts) -> Iterator[Finding]:
    ours, theirs = target.weight_bytes, draft.weight_bytes
    if request.method != "DraftModel" or not ours or not theirs:
        return
    if theirs * LARGEST_DRAFT_SHARE > ours:
        yield warned(
            WorkerReason.DRAFT_MISMATCH,
            DRAFT,
            f"{draft.source} has {_size(theirs)} of weights, 1/{max(1, round(ours / theirs))} of "
            f"the target's {_size(ours)}: with more than 1/{LARGEST_DRAFT_SHARE} the draft's own "
            "time often eats the gain; try a smaller draft",
        )


def _memory(
    request: EngineRequest, target: ModelFacts, draft: ModelFacts | None, gpu_bytes: int
) -> Iterator[Finding]:
    tensor = request.tensor_parallel_size
    found = estimated(
        target,
        draft,
        gpu_bytes=gpu_bytes,
        utilization_percent=request.gpu_memory_utilization_percent,
        gpus=tensor * request.pipeline_parallel_size,
        tensor_parallel_size=tensor,
        draft_tensor_parallel_size=request.draft_tensor_parallel_size,
        kv_cache_dtype=request.kv_cache_dtype,
    )
    length = request.max_model_len or target.context_tokens
    if found is None or length is None:
        return
    requests = found.requests_of(length)
    numbers = (
        f"on each GPU weights take {_size(found.target_bytes)} and the draft "
        f"{_size(found.draft_bytes)} of {_size(found.usable_bytes)} "
        f"({request.gpu_memory_utilization_percent} percent of {_size(gpu_bytes)}); the rest holds "
        f"{max(0.0, requests):.1f} requests of {length} tokens (estimated)"
    )
    remedy = (
        "lower target.maxModelLen, raise target.tensorParallelSize, or use a smaller or "
        "quantised draft"
    )
    # Weights that the engine quantises while loading, and caches of sliding or linear layers, are
    # smaller than what the files say: those are never refused here.
    if found.cache_bytes <= 0 and (request.quantization is None or target.quantization):
        yield refused(WorkerReason.GPU_MEMORY, TARGET, f"{numbers}: {remedy}")
    elif requests < 1:
        yield warned(WorkerReason.GPU_MEMORY, TARGET, f"{numbers}: {remedy}")
    elif requests < min(4, request.max_num_seqs):
        yield warned(WorkerReason.GPU_MEMORY, TARGET, f"{numbers}: long requests will wait")


def _size(count: int) -> str:
    return f"{count / GIBIBYTE:.1f} GiB"
