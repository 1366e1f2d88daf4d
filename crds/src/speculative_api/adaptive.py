"""PURE: where a changing draft length works, and the engine's schedule that it needs.

Comes in: an `EngineRequest`. Goes out: sentences that name the field and the
remedy, and `num_speculative_tokens_per_batch_size` (vLLM, ranges of first batch
size, last batch size, tokens). Called by `engine_arguments` and the worker.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from speculative_api import engine_tables as tables
from speculative_api.engine_request import EngineRequest, gives_flag

SCHEDULE_KEY: Final = "num_speculative_tokens_per_batch_size"
ONLINE_VERSIONS: Final = ("0.32.0",)
"""Versions whose scheduler was read and tried: vLLM calls its interface not public."""
ONLINE_METHODS: Final = ("DraftModel", "NGram", "Eagle", "Eagle3", "MTP")
"""NGram and DraftModel were run; the others draft through DraftModel's own proposer
(vllm/v1/spec_decode/llm_base_proposer.py at 0.32.0), which keeps the drafter's cache in step
at length 0."""

_ALL_AT_ONCE: Final = (
    "drafts all its positions in one pass of a fixed width, so a shorter draft saves nothing"
)
ONLINE_REFUSED: Final[Mapping[str, str]] = {
    "NGramGPU": "was never run with a changing length: this needs a GPU; use NGram",
    "Suffix": "chooses the length of each draft by itself; mode Off already adapts",
    "Medusa": _ALL_AT_ONCE,
    "DFlash": _ALL_AT_ONCE,
    "DSpark": _ALL_AT_ONCE,
    "MLPSpeculator": "was never run with a changing length",
    "Custom": "is not told the length (vllm/v1/worker/gpu_model_runner.py at 0.32.0)",
}
"""Methods for which Online is refused, each with the reason."""
SCHEDULE_REFUSED: Final[Mapping[str, str]] = {
    method: ONLINE_REFUSED[method] for method in ("DFlash", "DSpark", "Custom")
}
"""The same for BatchSize: fewer, since the engine does it and no scheduler of ours."""
_SYNCHRONOUS: Final = frozenset({"NGram"})
_OURS: Final = ("--scheduler-cls", "--async-scheduling", "--no-async-scheduling")


def adaptive_findings(request: EngineRequest) -> list[str]:
    """Why the mode cannot work with this version, method and parallelism."""
    mode = request.adaptive_mode
    if mode == "Off":
        return []
    return [*_both(request), *(_online(request) if mode == "Online" else _schedule(request))]


def schedule_of(request: EngineRequest) -> list[list[int]] | None:
    """The engine's schedule; None where the length is fixed.

    For Online it is only a beginning: our scheduler overwrites it. It holds
    every length from 0 on, because engines that capture whole decode graphs
    capture those of the schedule (vllm/v1/worker/gpu/cudagraph_utils.py).
    """
    if request.adaptive_mode == "BatchSize":
        start, found = 1, []
        for up_to, tokens in request.adaptive_schedule:
            found.append([start, up_to, tokens])
            start = up_to + 1
        return found
    if request.adaptive_mode != "Online":
        return None
    largest, batch = request.num_speculative_tokens or 0, request.max_num_seqs
    lengths = min(largest, batch - 1)
    # With fewer batch sizes than lengths the longest ones are captured.
    first = largest - lengths
    ranges = [[size, size, first + size - 1] for size in range(1, lengths + 1)]
    return [*ranges, [lengths + 1, batch, largest]]


def is_synchronous(method: str) -> bool:
    """Whether the engine schedules this method's steps one by one."""
    return method in _SYNCHRONOUS


def _both(request: EngineRequest) -> Iterator[str]:
    mode = f"speculation.adaptive.mode {request.adaptive_mode}"
    if SCHEDULE_KEY not in tables.facts_of(request.version).keys:
        yield (
            f"{mode} needs a schedule by batch size, which engine.version {request.version} does "
            "not have: use 0.24 or newer, or mode: Off"
        )
    if request.data_parallel_size > 1:
        yield (
            f"{mode} does not go with target.dataParallelSize {request.data_parallel_size}: the "
            "engine drops the schedule, since its ranks would choose different lengths; use "
            "spec.replicas instead, or mode: Off"
        )
    if SCHEDULE_KEY in request.extra:
        yield (
            f"speculation.extra.{SCHEDULE_KEY}: {mode} says this already; remove one of the two "
            "(mode: BatchSize takes a schedule)"
        )


def _schedule(request: EngineRequest) -> Iterator[str]:
    if why := SCHEDULE_REFUSED.get(request.method):
        yield f"speculation.adaptive.mode BatchSize: method {request.method} {why}; use mode: Off"
    name, before = "speculation.adaptive.schedule", 0
    for index, (up_to, tokens) in enumerate(request.adaptive_schedule):
        if up_to <= before:
            yield (
                f"{name}[{index}].upToBatchSize {up_to} must be above {before}, where the range "
                "before it ends"
            )
        if tokens > (request.num_speculative_tokens or 0):
            yield (
                f"{name}[{index}].numSpeculativeTokens {tokens} is above "
                f"speculation.numSpeculativeTokens {request.num_speculative_tokens}, the most that "
                "the engine prepares for; raise that or lower this"
            )
        before = up_to
    if before < request.max_num_seqs:
        yield (
            f"{name} ends at batch size {before}, below engine.maxNumSeqs {request.max_num_seqs}: "
            "add a range"
        )


def _online(request: EngineRequest) -> Iterator[str]:
    mode = "speculation.adaptive.mode Online"
    if request.version not in ONLINE_VERSIONS:
        yield (
            f"{mode} works through the scheduler of engine.version "
            f"{' or '.join(ONLINE_VERSIONS)}, not of {request.version}: use that version, or mode: "
            "BatchSize or Off"
        )
    if request.method not in ONLINE_METHODS:
        why = ONLINE_REFUSED.get(request.method, "drafts nothing")
        yield f"{mode}: method {request.method} {why}"
    if request.pipeline_parallel_size > 1:
        yield (
            f"{mode} does not go with target.pipelineParallelSize "
            f"{request.pipeline_parallel_size}: several steps run at once, and none has a time of "
            "its own; use tensorParallelSize, or mode: BatchSize"
        )
    for key in ("parallel_drafting", "disable_padded_drafter_batch"):
        if request.extra.get(key) is True:
            yield f"speculation.extra.{key}: does not go with {mode}; remove it or use mode: Off"
    for flag in _OURS:
        if gives_flag(request.extra_args, flag):
            yield f"engine.extraArgs {flag}: {mode} sets the scheduler; remove it or use mode: Off"
