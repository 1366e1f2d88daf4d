"""PURE: can an engine load this checkpoint at all, as it is asked to? Called by `preflight`.

Comes in: the request and one model's own files. What two models make of each
other is the business of `preflight`, `vocabularies` and `draft_heads`.
"""

from collections.abc import Iterator
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_api.engine_request import EngineRequest, gives_flag
from speculative_api.findings import Finding, refused, warned
from speculative_api.model_facts import ModelFacts

TARGET: Final = "target.model"
DRAFT: Final = "speculation.draft.model"
_EMBEDDING: Final = "model.embed_tokens.weight"
_OUTPUTS: Final = ("lm_head", "embed_out", "output")
_MOST_SENTENCES: Final = 3
_OWN_FORMATS: Final = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq")
"""Methods of which one is never read as another (vllm/config/model.py, _verify_quantization)."""


def target_findings(request: EngineRequest, target: ModelFacts) -> Iterator[Finding]:
    """What keeps the target from being served, with or without a draft."""
    if not target.tokenizer_files:
        text = f"{target.source}: it has no tokenizer file"
        yield refused(WorkerReason.MODEL_NOT_FOUND, TARGET, text)
    yield from _files(target, TARGET)
    yield from _whole_model(target, TARGET)
    yield from _parallel(target, request.tensor_parallel_size, "target.tensorParallelSize")
    yield from _length(request, target)
    yield from _quantization(request.quantization, target, "target.quantization")
    yield from _numbers(target)


def draft_findings(request: EngineRequest, draft: ModelFacts) -> Iterator[Finding]:
    """What keeps the draft from being loaded beside any target."""
    yield from _files(draft, DRAFT)
    if request.method == "DraftModel":
        yield from _whole_model(draft, DRAFT)
    yield from _parallel(
        draft, request.draft_tensor_parallel_size, "speculation.draft.tensorParallelSize"
    )
    asked = request.extra.get("quantization")
    if isinstance(asked, str):
        yield from _quantization(asked, draft, "speculation.extra.quantization")


def _files(model: ModelFacts, field: str) -> Iterator[Finding]:
    if not model.has_weights:
        text = f"{model.source}: it has no weights (*.safetensors, *.bin, *.pt or *.gguf)"
        yield refused(WorkerReason.MODEL_NOT_FOUND, field, text)
    if model.weights.missing is not None:
        text = f"{model.source}: {model.weights.missing}"
        yield refused(WorkerReason.MODEL_NOT_FOUND, field, text)
    for sentence in model.weights.damaged[:_MOST_SENTENCES]:
        yield refused(WorkerReason.MODEL_DAMAGED, field, f"{model.source}: {sentence}")


def _whole_model(model: ModelFacts, field: str) -> Iterator[Finding]:
    """Embedding and output, which the engine loads row by row."""
    size = model.vocabulary_size
    rows = model.weights.shapes.get(_EMBEDDING, ())[:1]
    if size is not None and rows and rows[0] != size and model.quantization is None:
        yield refused(
            WorkerReason.MODEL_DAMAGED,
            field,
            f"{model.source}: its embedding has {rows[0]} rows and config.json says vocab_size "
            f"{size}: the engine refuses to load it; take config.json and weights of one version",
        )
    names = model.tensors
    apart = model.text_config.get("tie_word_embeddings", model.config.get("tie_word_embeddings"))
    if apart is False and names and not any(o in n for n in names for o in _OUTPUTS):
        yield warned(
            WorkerReason.MODEL_DAMAGED,
            field,
            f"{model.source}: config.json says tie_word_embeddings false, and no tensor is an "
            "output (lm_head): the checkpoint is incomplete, or its config.json another's",
        )


def _parallel(model: ModelFacts, parallel: int, field: str) -> Iterator[Finding]:
    heads = model.attention_heads
    shared = model.number("num_key_value_heads")
    if heads is not None and heads % parallel:
        yield refused(
            WorkerReason.INVALID_ARGUMENTS,
            field,
            f"{model.source} has {heads} attention heads, which {parallel} GPUs can't share "
            "evenly; choose a divisor",
        )
    elif shared and shared % parallel and parallel % shared:
        yield refused(
            WorkerReason.INVALID_ARGUMENTS,
            field,
            f"{model.source} has {shared} key-value heads, which {parallel} GPUs can neither share "
            "nor copy evenly; choose a divisor or a multiple",
        )


def _length(request: EngineRequest, target: ModelFacts) -> Iterator[Finding]:
    """The engine compares with the model's limit, unless it is told that more is meant."""
    asked, limit = request.max_model_len, target.context_tokens
    if asked is None or limit is None or request.long_context:
        return
    if gives_flag(request.extra_args, "--hf-overrides"):
        return
    own = target.config.get("model_max_length")
    if isinstance(own, int):
        limit = max(limit, own)
    elif target.longest_input is not None:
        limit = min(limit, target.longest_input)
    if asked > limit:
        yield refused(
            WorkerReason.INVALID_ARGUMENTS,
            "target.maxModelLen",
            f"target.maxModelLen is {asked}, {target.source} takes {limit} tokens: the engine "
            f"refuses it; lower it to at most {limit}, or, if longer is meant, set "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN to 1 in pod.env",
        )


def _quantization(asked: str | None, model: ModelFacts, field: str) -> Iterator[Finding]:
    said = model.quantization
    if asked is None or said is None:
        return
    ours, theirs = _plain(asked), _plain(said)
    if ours != theirs and ours in _OWN_FORMATS and theirs in _OWN_FORMATS:
        yield refused(
            WorkerReason.INVALID_ARGUMENTS,
            field,
            f"{field} is {asked}, the weights of {model.source} are {said}: the engine refuses "
            f"that; set it to {said} or remove it",
        )


def _numbers(target: ModelFacts) -> Iterator[Finding]:
    """A token beyond the embedding ends the engine on a GPU when somebody sends it."""
    size, vocabulary = target.vocabulary_size, target.vocabulary
    if size is None or not vocabulary:
        return
    token, number = max(vocabulary.items(), key=lambda item: item[1])
    if number >= size:
        beyond = sum(1 for each in vocabulary.values() if each >= size)
        yield warned(
            WorkerReason.VOCABULARY_MISMATCH,
            TARGET,
            f"{target.source}: {beyond} tokens have numbers beyond its vocab_size {size}, the last "
            f"is {token[:64]!r} with {number}: a prompt with one of them can't be answered; the "
            "embedding was not enlarged for added tokens",
        )


def _plain(method: str) -> str:
    return method.lower().replace("_", "-").removesuffix("-marlin")
