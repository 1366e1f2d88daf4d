"""PURE: where the models of one revision come from."""

from typing import Final

from speculative_api.v1alpha1 import Speculation, Target


def model_sources(target: Target, speculation: Speculation) -> list[str]:
    """The sources of the target, of the draft where there is one, and of LoRA adapters."""
    draft, lora = speculation.draft, target.lora
    adapters = [adapter.model for adapter in lora.adapters] if lora else []
    return [target.model, *([draft.model] if draft else []), *adapters]


_FETCHED: Final = ("hf://", "s3://")


def is_fetched(source: str) -> bool:
    """Whether a model is fetched into the cache; others are mounted."""
    return source.startswith(_FETCHED)
