"""How tokens are drafted and verified."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import ModelSource, Opaque


class Method(StrEnum):
    """How tokens are drafted."""

    NONE = "None"
    DRAFT_MODEL = "DraftModel"
    NGRAM = "NGram"


class Draft(Model):
    """A smaller model that proposes tokens; it shares the target's GPUs."""

    model: ModelSource = Field(
        description="Where the draft model comes from; same forms as target.model. Its "
        "vocabulary must equal the target's, token by token."
    )
    tensor_parallel_size: int = Field(
        default=1, ge=1, le=64, description="GPUs that share each layer of the draft. Default 1."
    )


class NGramLookup(Model):
    """Drafts are copied from earlier text that ends in the same tokens."""

    model_config = configuration(
        rule(
            "self.promptLookupMin <= self.promptLookupMax",
            "promptLookupMin must not exceed promptLookupMax: shorten the minimum or lengthen "
            "the maximum",
            ".promptLookupMin",
        )
    )
    prompt_lookup_min: int = Field(
        default=2, ge=1, le=512, description="Shortest match in tokens. Default 2."
    )
    prompt_lookup_max: int = Field(
        default=4, ge=1, le=512, description="Longest match in tokens. Default 4."
    )


class Speculation(Model):
    """Speculative decoding: a draft proposes tokens, the target verifies them in one step."""

    model_config = configuration(
        rule(
            "self.method != 'DraftModel' || has(self.draft)",
            "method DraftModel needs a draft: add speculation.draft.model",
            ".draft",
        ),
        rule(
            "self.method == 'DraftModel' || !has(self.draft)",
            "draft belongs to method DraftModel: remove speculation.draft or set method: "
            "DraftModel",
            ".draft",
        ),
        rule(
            "self.method == 'NGram' || !has(self.ngram)",
            "ngram belongs to method NGram: remove speculation.ngram or set method: NGram",
            ".ngram",
        ),
        rule(
            "self.method == 'None' || has(self.numSpeculativeTokens)",
            "numSpeculativeTokens is needed unless method is None: 3 to 5 is a good start",
            ".numSpeculativeTokens",
        ),
        rule(
            "self.method != 'None' || (!has(self.numSpeculativeTokens) && !has(self.extra))",
            "method None drafts nothing: remove numSpeculativeTokens and extra, or choose a method",
            ".method",
        ),
    )
    method: Method = Field(
        description="How tokens are drafted: DraftModel (a smaller model), NGram (copied from the "
        "text so far), or None (plain decoding)."
    )
    num_speculative_tokens: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Tokens proposed per step (k), at least 1. More is not always faster: every "
        "proposed token is verified. For plain decoding use method: None instead of 0.",
    )
    draft: Draft | None = Field(
        default=None, description="The draft model; needed by, and only for, method DraftModel."
    )
    ngram: NGramLookup | None = Field(
        default=None,
        description="Look-up window; only for method NGram. Defaults to matches of 2 to 4 tokens.",
    )
    extra: Opaque | None = Field(
        default=None,
        description="Further keys of the engine's speculative configuration. Checked against the "
        "keys that the engine version knows; a key that a field here already says is refused.",
    )
