"""PURE: what a checkpoint says of itself, from its small files and the heads of its large ones.

Comes in: `ModelFiles`, which somebody reads for us: the worker from a folder,
`lint` from a folder or a hub. Goes out: `ModelFacts` for `preflight`. Of
weights only the header of a safetensors file is read, never a tensor.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from speculative_api.tokenizer_files import TOKENIZERS, numbers_of
from speculative_api.weight_files import ModelFiles, Unreadable, Weights, json_of, weights_of

__all__ = ["ModelFacts", "ModelFiles", "Unreadable", "facts_of"]

_SPECIAL: Final = ("bos_token", "eos_token", "pad_token", "unk_token")
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
_LARGEST_FACTOR: Final = 2**20
"""A factor above it is a mistake, and infinity is none."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What pre-flight knows of one model."""

    source: str
    """As in the spec, for messages."""
    config: Mapping[str, Any]
    """`config.json`."""
    vocabulary: Mapping[str, int] | None
    """Token to id; None when the tokenizer's format doesn't say it."""
    vocabulary_file: str | None
    """Where the vocabulary was read."""
    tokenizer_files: tuple[str, ...]
    special_tokens: Mapping[str, str]
    """bos, eos, pad and unk as far as `tokenizer_config.json` says them."""
    longest_input: int | None
    """What `tokenizer_config.json` says (model_max_length); the engine counts it in."""
    weights: Weights

    @property
    def has_weights(self) -> bool:
        """Whether there is any file of weights."""
        return self.weights.total_bytes is not None

    @property
    def tensors(self) -> frozenset[str] | None:
        """Names of all tensors; None where no safetensors file or index says them."""
        return self.weights.tensors

    @property
    def weight_bytes(self) -> int | None:
        """Of the weight files that the engine loads; None where there are none."""
        return self.weights.total_bytes

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The part about text: multimodal models keep it apart."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def architectures(self) -> tuple[str, ...]:
        """Class names of the model."""
        found = self.config.get("architectures")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def vocabulary_size(self) -> int | None:
        """Entries of the embedding, padding included."""
        return self.number("vocab_size")

    @property
    def hidden_size(self) -> int | None:
        """Width of the hidden states."""
        return self.number("hidden_size", "n_embd", "d_model")

    @property
    def layers(self) -> int | None:
        """Decoder layers, those of a multi-token head not counted."""
        return self.number("num_hidden_layers", "n_layer", "n_layers")

    @property
    def attention_heads(self) -> int | None:
        """Query heads."""
        return self.number("num_attention_heads", "n_head", "n_heads")

    @property
    def number_format(self) -> str | None:
        """Of weights and activations, as the checkpoint says."""
        found = self.text_config.get("dtype", self.text_config.get("torch_dtype"))
        found = found or self.config.get("dtype", self.config.get("torch_dtype"))
        return str(found).removeprefix("torch.") if found else None

    @property
    def quantization(self) -> str | None:
        """How the weights are quantised; None where they aren't."""
        found = self.config.get("quantization_config", self.config.get("compression_config"))
        return str(found.get("quant_method", "unnamed")) if isinstance(found, dict) else None

    @property
    def context_tokens(self) -> int | None:
        """The model's own limit, positional scaling included; None when it says none."""
        limits = [self.text_config.get(key) for key in _LENGTH_KEYS]
        found = [each for each in limits if isinstance(each, int) and each > 0]
        return int(min(found) * self._scaling()) if found else None

    @property
    def mtp_layers(self) -> int | None:
        """Multi-token layers in this checkpoint; None where it names none.

        Names by family: vllm/config/speculative.py, hf_config_override (0.32.0).
        """
        nested = self.config.get("mtp_config")
        if isinstance(nested, dict) and isinstance(nested.get("num_nextn_predict_layers"), int):
            return int(nested["num_nextn_predict_layers"])
        return self.number("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")

    def number(self, *names: str) -> int | None:
        """The first of these that the configuration has as a whole number."""
        for place in (self.text_config, self.config):
            for name in names:
                found = place.get(name)
                if isinstance(found, int) and not isinstance(found, bool):
                    return found
        return None

    def _scaling(self) -> float:
        """By how much positions are stretched beyond the limit that the configuration says."""
        if "gemma3" in str(self.config.get("model_type", "")):
            return 1
        factors = [
            scaling.get("factor")
            for scaling in self._scalings()
            if scaling.get("rope_type", scaling.get("type")) not in _SCALED_KINDS
        ]
        stretched = [each for each in factors if isinstance(each, int | float) and each >= 1]
        return stretched[-1] if stretched and stretched[-1] < _LARGEST_FACTOR else 1

    def _scalings(self) -> Iterator[Mapping[str, Any]]:
        """One, or one for each kind of layer (transformers 5)."""
        found = self.text_config.get("rope_scaling") or self.text_config.get("rope_parameters")
        if isinstance(found, dict):
            nested = [each for each in found.values() if isinstance(each, dict)]
            yield from nested or [found]


def facts_of(files: ModelFiles, source: str) -> ModelFacts:
    """Reads what there is.

    Raises `Unreadable`: no `config.json`, or a file of configuration that is broken.
    """
    sizes = files.sizes()
    config = _json(files, "config.json")
    named = "tokenizer_config.json"
    tokenizer = _json(files, named) if named in sizes else {}
    vocabulary_file, vocabulary = numbers_of(files)
    longest = tokenizer.get("model_max_length")
    return ModelFacts(
        source=source,
        config=config,
        vocabulary=vocabulary,
        vocabulary_file=vocabulary_file,
        tokenizer_files=tuple(name for name in TOKENIZERS if name in sizes),
        special_tokens=_special(tokenizer),
        longest_input=longest if isinstance(longest, int) and longest > 0 else None,
        weights=weights_of(files),
    )


def _special(content: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL:
        token = content.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            found[name] = text
    return found


def _json(files: ModelFiles, name: str) -> dict[str, Any]:
    content = json_of(files.text(name), name)
    if not isinstance(content, dict):
        raise Unreadable(f"{name} is not a JSON object")
    return content
