"""PURE: what a checkpoint says of itself, from its small files and the heads of its large ones.

Comes in: `ModelFiles`, which somebody reads for us: the worker from a folder,
`lint` from a folder or a hub. Goes out: `ModelFacts` for `preflight`. Of
weights only the header of a safetensors file is read, never a tensor.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

HEADER_BYTES: Final = 64 * 2**20
"""Longest safetensors header that is believed; a large model's has a few hundred kilobytes."""
TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".gguf")
_INDEX: Final = "model.safetensors.index.json"
_WHOLE: Final = "model.safetensors"
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


class Unreadable(ValueError):
    """A file of the checkpoint is missing or not what it should be; the message names it."""


class ModelFiles(Protocol):
    """The files of one checkpoint, wherever they are."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file, by its path in the checkpoint."""

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file; fewer where it is shorter. Raises `Unreadable`."""


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
    special_tokens: Mapping[str, str]
    """bos, eos, pad and unk as far as `tokenizer_config.json` says them."""
    tensors: frozenset[str] | None
    """Names of all tensors; None where no safetensors file or index says them."""
    weight_bytes: int | None
    """Of all weight files; None where there are none."""

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
        found = [limit for limit in limits if isinstance(limit, int)]
        return min(found) * self._scaling() if found else None

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

    def _scaling(self) -> int:
        scaling = self.text_config.get("rope_scaling") or self.text_config.get("rope_parameters")
        if not isinstance(scaling, dict):
            return 1
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind in _SCALED_KINDS or "gemma3" in str(self.config.get("model_type", "")):
            return 1
        factor = scaling.get("factor")
        return int(factor) if isinstance(factor, int | float) and factor >= 1 else 1


def facts_of(files: ModelFiles, source: str) -> ModelFacts:
    """Reads what there is. Raises `Unreadable`: no `config.json`, or a file that is broken."""
    sizes = files.sizes()
    weights = {name: size for name, size in sizes.items() if name.endswith(_WEIGHTS)}
    return ModelFacts(
        source=source,
        config=_json(files, "config.json"),
        vocabulary=_vocabulary(files) if "tokenizer.json" in sizes else None,
        tokenizer_files=tuple(name for name in TOKENIZERS if name in sizes),
        has_weights=bool(weights),
        special_tokens=_special(files) if "tokenizer_config.json" in sizes else {},
        tensors=_tensors(files, sizes),
        weight_bytes=_preferred(weights, _shards(files, sizes)),
    )


def tensor_names(head: bytes) -> frozenset[str]:
    """Names in the header of a safetensors file: eight bytes of length, then JSON.

    Raises `Unreadable`: not such a file, or cut before its header ends.
    """
    if len(head) < 8:
        raise Unreadable("it is too short for a safetensors file")
    (length,) = struct.unpack("<Q", head[:8])
    if length > HEADER_BYTES or len(head) < 8 + length:
        raise Unreadable(f"its safetensors header of {length} bytes is not all there")
    try:
        content = json.loads(head[8 : 8 + length])
    except ValueError as error:
        raise Unreadable(f"its safetensors header cannot be read: {error}") from error
    return frozenset(content) - {"__metadata__"}


def _preferred(weights: Mapping[str, int], shards: frozenset[str]) -> int | None:
    """Bytes of the files that the engine loads, though the same weights may be there twice."""
    if shards and shards <= weights.keys():
        return sum(weights[name] for name in shards)
    if _WHOLE in weights:
        return weights[_WHOLE]
    for ending in _WEIGHTS:
        if found := [size for name, size in weights.items() if name.endswith(ending)]:
            return sum(found)
    return None


def _shards(files: ModelFiles, sizes: Mapping[str, int]) -> frozenset[str]:
    if _INDEX not in sizes:
        return frozenset()
    named = _json(files, _INDEX).get("weight_map")
    return frozenset(map(str, named.values())) if isinstance(named, dict) else frozenset()


def _tensors(files: ModelFiles, sizes: Mapping[str, int]) -> frozenset[str] | None:
    if _INDEX in sizes:
        named = _json(files, _INDEX).get("weight_map")
        return frozenset(named) if isinstance(named, dict) else None
    names: Iterable[str] = [name for name in sizes if name.endswith(".safetensors")]
    found: set[str] = set()
    for name in names:
        try:
            (length,) = struct.unpack("<Q", files.head(name, 8))
            found |= tensor_names(files.head(name, 8 + min(length, HEADER_BYTES)))
        except (Unreadable, struct.error):
            return None
    return frozenset(found) or None


def _vocabulary(files: ModelFiles) -> dict[str, int] | None:
    """Token to id from `tokenizer.json`, added tokens included; None in another format."""
    content = _json(files, "tokenizer.json")
    vocabulary = (content.get("model") or {}).get("vocab")
    if isinstance(vocabulary, list):
        # Unigram models list [token, score] pairs in the order of their ids.
        tokens = {str(pair[0]): index for index, pair in enumerate(vocabulary)}
    elif isinstance(vocabulary, dict):
        tokens = dict(vocabulary)
    else:
        return None
    for added in content.get("added_tokens") or ():
        tokens[added["content"]] = added["id"]
    return tokens


def _special(files: ModelFiles) -> dict[str, str]:
    content, found = _json(files, "tokenizer_config.json"), {}
    for name in _SPECIAL:
        token = content.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            found[name] = text
    return found


def _json(files: ModelFiles, name: str) -> dict[str, Any]:
    text = files.text(name)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise Unreadable(f"{name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Unreadable(f"{name} is not a JSON object")
    return content
