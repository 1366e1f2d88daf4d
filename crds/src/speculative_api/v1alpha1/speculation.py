"""How tokens are drafted and verified."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from speculative_api.base import Model, configuration, rule
from speculative_api.engine_tables import all_aliases
from speculative_api.v1alpha1.adaptive import Adaptive
from speculative_api.v1alpha1.common import ModelSource, Opaque

_NEED_A_DRAFT: Final = "['DraftModel', 'Eagle', 'Eagle3', 'Medusa', 'MLPSpeculator', 'DFlash']"
_MAY_HAVE_ONE: Final = "['MTP', 'DSpark']"
_LOOK_UP: Final = "['NGram', 'NGramGPU']"


class Method(StrEnum):
    """How tokens are drafted."""

    NONE = "None"
    DRAFT_MODEL = "DraftModel"
    NGRAM = "NGram"
    NGRAM_GPU = "NGramGPU"
    SUFFIX = "Suffix"
    EAGLE = "Eagle"
    EAGLE3 = "Eagle3"
    MTP = "MTP"
    MEDUSA = "Medusa"
    MLP_SPECULATOR = "MLPSpeculator"
    DFLASH = "DFlash"
    DSPARK = "DSpark"
    CUSTOM = "Custom"


def _method(value: Any) -> Any:
    """A family's name of MTP as MTP, so that both hash and compare alike."""
    return all_aliases().get(value, value) if isinstance(value, str) else value


MethodName = Annotated[
    Method,
    BeforeValidator(_method),
    WithJsonSchema(
        {"type": "string", "enum": [*(method.value for method in Method), *sorted(all_aliases())]}
    ),
]


class Draft(Model):
    """What proposes tokens; it shares the target's GPUs."""

    model: ModelSource = Field(
        description="Where the draft comes from; same forms as target.model: a smaller model, "
        "whose vocabulary must equal the target's token by token, or the head that an Eagle, "
        "Medusa and the like were trained as."
    )
    tensor_parallel_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="GPUs that share each layer of the draft: 1 or the target's. Default 1.",
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
            f"!(self.method in {_NEED_A_DRAFT}) || has(self.draft)",
            "this method needs a draft: add speculation.draft.model",
            ".draft",
        ),
        rule(
            f"self.method in {_NEED_A_DRAFT} || self.method in {_MAY_HAVE_ONE} || "
            "self.method.endsWith('_mtp') || !has(self.draft)",
            "this method takes no draft: remove speculation.draft or set method: DraftModel",
            ".draft",
        ),
        rule(
            f"self.method in {_LOOK_UP} || !has(self.ngram)",
            "ngram belongs to methods NGram and NGramGPU: remove speculation.ngram or set one of "
            "them",
            ".ngram",
        ),
        rule(
            "(self.method == 'Custom') == has(self.customClass)",
            "method Custom and customClass go together: give the class that drafts, or choose "
            "another method",
            ".customClass",
        ),
        rule(
            "self.method == 'None' || has(self.numSpeculativeTokens)",
            "numSpeculativeTokens is needed unless method is None: 3 to 5 is a good start",
            ".numSpeculativeTokens",
        ),
        rule(
            "self.method != 'None' || (!has(self.numSpeculativeTokens) && !has(self.extra) && "
            "!has(self.allowLossy))",
            "method None drafts nothing: remove numSpeculativeTokens, extra and allowLossy, or "
            "choose a method",
            ".method",
        ),
        rule(
            "self.method != 'None' || !has(self.adaptive) || self.adaptive.mode == 'Off'",
            "method None drafts nothing: remove speculation.adaptive, or choose a method",
            ".adaptive",
        ),
    )
    method: MethodName = Field(
        description="How tokens are drafted: DraftModel (a smaller model), NGram (copied from the "
        "text so far; NGramGPU does it on the GPU), Suffix (copied from earlier answers as well), "
        "Eagle, Eagle3, Medusa, MLPSpeculator, DFlash (a head trained for the target), MTP and "
        "DSpark (a head in the target's own checkpoint), Custom (a class of yours), or None "
        "(plain decoding). Which of them there are depends on engine.version. A name that ends "
        "in _mtp is a family's name of MTP and means the same."
    )
    num_speculative_tokens: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Tokens proposed per step (k), at least 1. More is not always faster: every "
        "proposed token is verified. For plain decoding use method: None instead of 0.",
    )
    draft: Draft | None = Field(
        default=None,
        description="What drafts. Needed by DraftModel, Eagle, Eagle3, Medusa, MLPSpeculator and "
        "DFlash; for MTP and DSpark only where the head is a checkpoint of its own.",
    )
    ngram: NGramLookup | None = Field(
        default=None,
        description="Look-up window; only for methods NGram and NGramGPU. Defaults to matches of 2 "
        "to 4 tokens.",
    )
    custom_class: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$",
        description="The class that drafts, package.module.Class; it has to be in the image. Only "
        "for method Custom, which the engine calls experimental.",
    )
    allow_lossy: Literal["OutputMayDifferFromTarget"] | None = Field(
        default=None,
        description="Says in words that users may get other text than the target's: only then "
        "are acceptance settings in extra that change the output let through.",
    )
    adaptive: Adaptive | None = Field(
        default=None,
        description="Lets the draft length change, down to 0. Absent: it is always "
        "numSpeculativeTokens.",
    )
    extra: Opaque | None = Field(
        default=None,
        description="Further keys of the engine's speculative configuration. Checked against the "
        "keys that the engine version knows; a key that a field here already says is refused.",
    )
