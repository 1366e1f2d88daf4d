"""PURE: does the draft fit the target? Checked before the engine takes memory.

Comes in: what `models` read from both folders. Raises `WorkerFailure` for what
can never work, returns notes for what deserves a line in the log.

vLLM 0.32.0 compares the configured vocabulary sizes only, and then feeds the
draft with ids of the target's tokenizer: equal sizes with other tokens load
well and have almost no token accepted. So tokens are compared one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from speculative_api.conditions import WorkerReason
from speculative_api.worker import WorkerConfig
from speculative_worker.errors import WorkerFailure

_LENGTH_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Names of a model's own limit, vllm/transformers_utils/model_arch_config_convertor.py (0.32.0)."""
_SCALED_KINDS: Final = (
    *(None, "default", "mrope", "su", "longrope", "llama3", "yarn"),
    *("deepseek_yarn", "deepseek_llama_scaling"),
)
"""Kinds of positional scaling whose limit counts the factor already (vllm/config/model.py)."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What pre-flight knows of one model."""

    source: str
    """As in the spec, for messages."""
    config: Mapping[str, Any]
    """`config.json`."""
    vocabulary: Mapping[str, int] | None
    """Token to id; None when the tokenizer's format doesn't say it."""
    tokenizer_files: tuple[str, ...]
    has_weights: bool

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The part about text: multimodal models keep it apart."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def vocabulary_size(self) -> int | None:
        """Entries of the embedding, padding included."""
        size = self.text_config.get("vocab_size")
        return size if isinstance(size, int) else None

    @property
    def context_tokens(self) -> int | None:
        """The model's own limit, positional scaling included; None when it says none."""
        limits = [self.text_config.get(key) for key in _LENGTH_KEYS]
        found = [limit for limit in limits if isinstance(limit, int)]
        return min(found) * self._scaling() if found else None

    def _scaling(self) -> int:
        scaling = self.text_config.get("rope_scaling") or self.text_config.get("rope_parameters")
        if not isinstance(scaling, dict):
            return 1
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind in _SCALED_KINDS or "gemma3" in str(self.config.get("model_type", "")):
            return 1
        factor = scaling.get("factor")
        return int(factor) if isinstance(factor, int | float) and factor >= 1 else 1


def preflight(config: WorkerConfig, *, target: ModelFacts, draft: ModelFacts | None) -> list[str]:
    """Notes for the log. Raises `WorkerFailure` for what can never work."""
    _require_files(target)
    if draft is None:
        return []
    _require_weights(draft)
    _require_context(config, target, draft)
    if config.speculation.extra.get("use_heterogeneous_vocab") is True:
        return [f"use_heterogeneous_vocab: vocabularies of {draft.source} are not compared"]
    return _compare_vocabularies(target, draft)


def _require_files(model: ModelFacts) -> None:
    if not model.tokenizer_files:
        raise _not_found(model, "it has no tokenizer file")
    _require_weights(model)


def _require_weights(model: ModelFacts) -> None:
    if not model.has_weights:
        raise _not_found(model, "it has no weights (*.safetensors, *.bin, *.pt or *.gguf)")


def _require_context(config: WorkerConfig, target: ModelFacts, draft: ModelFacts) -> None:
    effective = config.max_model_len or target.context_tokens
    limit = draft.context_tokens
    if effective is None or limit is None or limit >= effective:
        return
    where = "target.maxModelLen" if config.max_model_len else "the target's own limit"
    raise WorkerFailure(
        WorkerReason.DRAFT_CONTEXT_TOO_SHORT,
        f"the draft {draft.source} takes {limit} tokens, {where} is {effective}: longer requests "
        f"would kill the engine; set target.maxModelLen to at most {limit} or choose a draft "
        "with a longer context",
        retryable=False,
    )


def _compare_vocabularies(target: ModelFacts, draft: ModelFacts) -> list[str]:
    sizes = (target.vocabulary_size, draft.vocabulary_size)
    if target.vocabulary is not None and draft.vocabulary is not None:
        difference = _first_difference(target.vocabulary, draft.vocabulary)
        if difference:
            raise _mismatch(
                f"{difference}; the draft has {len(draft.vocabulary)} tokens, the target "
                f"{len(target.vocabulary)} (vocab_size {sizes[1]} and {sizes[0]}); choose a "
                "draft with the target's tokenizer"
            )
        if None not in sizes and sizes[0] != sizes[1]:
            raise _mismatch(
                f"both tokenizers hold the same {len(target.vocabulary)} tokens, but vocab_size "
                f"is {sizes[1]} in the draft and {sizes[0]} in the target: only the padding "
                "differs, and the engine compares strictly; set "
                "speculation.extra.use_heterogeneous_vocab: true or choose another draft"
            )
        return [f"vocabularies are equal: {len(target.vocabulary)} tokens"]
    if None not in sizes and sizes[0] != sizes[1]:
        raise _mismatch(f"vocab_size is {sizes[1]} in the draft and {sizes[0]} in the target")
    return ["tokens are not compared: a tokenizer.json is missing; vocab_size is equal"]


def _first_difference(target: Mapping[str, int], draft: Mapping[str, int]) -> str | None:
    """The lowest id at which the two disagree, in words."""
    if target == draft:
        return None
    of_target = {number: token for token, number in target.items()}
    of_draft = {number: token for token, number in draft.items()}
    for number in sorted(of_target.keys() | of_draft.keys()):
        ours, theirs = of_target.get(number), of_draft.get(number)
        if ours != theirs:
            return f"token {number} is {_word(theirs)} in the draft and {_word(ours)} in the target"
    return None


def _word(token: str | None) -> str:
    return "absent" if token is None else repr(token[:64])


def _mismatch(detail: str) -> WorkerFailure:
    return WorkerFailure(WorkerReason.VOCABULARY_MISMATCH, detail, retryable=False)


def _not_found(model: ModelFacts, what: str) -> WorkerFailure:
    return WorkerFailure(WorkerReason.MODEL_NOT_FOUND, f"{model.source}: {what}", retryable=False)
