"""PURE: how much of a GPU's memory weights, draft and cache take, estimated from the files.

Activations, graphs and fragmentation come on top and are not guessed: an
estimate that does not fit can't work, one that fits may still not. Source of
the cache's size: two vectors per layer and key-value head (vLLM's
FullAttentionSpec), or one compressed one (MLA: kv_lora_rank and rope).
"""

from dataclasses import dataclass
from typing import Final

from speculative_api.model_facts import ModelFacts

GIBIBYTE: Final = 2**30
_BYTES: Final = {"float32": 4, "float": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on one GPU."""

    target_bytes: int
    draft_bytes: int
    cache_bytes_per_token: int
    """Of target and draft together."""
    usable_bytes: int
    """The GPU's memory times the engine's share."""

    @property
    def cache_bytes(self) -> int:
        """What remains for the cache; negative where weights alone are too large."""
        return self.usable_bytes - self.target_bytes - self.draft_bytes

    def requests_of(self, tokens: int) -> float:
        """How many requests of this length fit at once."""
        return self.cache_bytes / max(1, self.cache_bytes_per_token * tokens)


def estimated(
    target: ModelFacts,
    draft: ModelFacts | None,
    *,
    gpu_bytes: int,
    utilization_percent: int,
    gpus: int,
    tensor_parallel_size: int,
    draft_tensor_parallel_size: int,
    kv_cache_dtype: str | None,
) -> Estimate | None:
    """None where the target's files do not say enough.

    Args:
        gpus: that share the target's layers: tensor times pipeline parallel.
    """
    per_token = _cache_bytes(target, kv_cache_dtype, tensor_parallel_size)
    if target.weight_bytes is None or per_token is None:
        return None
    of_draft = _cache_bytes(draft, kv_cache_dtype, draft_tensor_parallel_size) if draft else 0
    draft_weights = (draft.weight_bytes or 0) if draft else 0
    stages = max(1, gpus // tensor_parallel_size)
    return Estimate(
        target_bytes=target.weight_bytes // gpus,
        draft_bytes=draft_weights // draft_tensor_parallel_size,
        cache_bytes_per_token=per_token // stages + (of_draft or 0),
        usable_bytes=gpu_bytes * utilization_percent // 100,
    )


def _cache_bytes(model: ModelFacts, kv_cache_dtype: str | None, parallel: int) -> int | None:
    """Bytes per token on one of `parallel` GPUs."""
    layers, hidden, heads = model.layers, model.hidden_size, model.attention_heads
    if not layers or not hidden or not heads:
        return None
    number = _BYTES.get(kv_cache_dtype or model.number_format or "", 2)
    if compressed := model.number("kv_lora_rank"):
        return layers * (compressed + (model.number("qk_rope_head_dim") or 0)) * number
    key_value_heads = model.number("num_key_value_heads") or heads
    width = model.number("head_dim") or hidden // heads
    return 2 * layers * max(1, key_value_heads // parallel) * width * number
