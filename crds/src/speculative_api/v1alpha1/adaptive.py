"""A draft length that is not always the same."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import Percent


class AdaptiveMode(StrEnum):
    """Who decides how many tokens are drafted."""

    OFF = "Off"
    BATCH_SIZE = "BatchSize"
    ONLINE = "Online"


class BatchSizeRange(Model):
    """Draft length for batches up to a size, from where the range before it ends."""

    up_to_batch_size: int = Field(
        ge=1, le=65_536, description="Largest batch of this range, in sequences."
    )
    num_speculative_tokens: int = Field(
        ge=0, le=512, description="Tokens proposed per step; 0 is plain decoding."
    )


class Adaptive(Model):
    """Draft length by batch size, or by what is accepted and what it costs."""

    model_config = configuration(
        rule(
            "(self.mode == 'BatchSize') == has(self.schedule)",
            "mode BatchSize and schedule go together: give the draft length of each batch size, "
            "or choose another mode",
            ".schedule",
        ),
        rule(
            "self.mode == 'Online' || !has(self.minAcceptancePercent)",
            "minAcceptancePercent belongs to mode Online: remove it or set mode: Online",
            ".minAcceptancePercent",
        ),
    )
    mode: AdaptiveMode = Field(
        default=AdaptiveMode.OFF,
        description="Off (always numSpeculativeTokens), BatchSize (the engine's own schedule), or "
        "Online (follows what is accepted and what it costs, per batch size, between 0 and "
        "numSpeculativeTokens; needs an engine version and a method where it works). Default Off.",
    )
    min_acceptance_percent: Percent | None = Field(
        default=None,
        description="Only for Online: lengths of which a smaller share of tokens would be accepted "
        "are not used, whatever they gain. Absent: only speed decides.",
    )
    schedule: list[BatchSizeRange] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Only for BatchSize: ranges in rising order; the last one must reach "
        "engine.maxNumSeqs.",
    )
