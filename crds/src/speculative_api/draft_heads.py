"""PURE: does a head that was trained for a target fit this one? Called by `preflight`.

Sources: vllm/config/speculative.py, vllm/transformers_utils/configs/speculators
and vllm/v1/spec_decode at 0.32.0.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from speculative_api.engine_request import EngineRequest
from speculative_api.model_facts import ModelFacts

Judged = tuple[Literal["refuse", "warn"], str]

_HEADS: Final = ("Eagle", "Eagle3", "Medusa", "DFlash", "DSpark")
_ALGORITHMS: Final = {
    "eagle": "Eagle",
    "eagle3": "Eagle3",
    "peagle": "Eagle3",
    "dflash": "DFlash",
    "dflash2": "DFlash",
    "dspark": "DSpark",
    "mtp": "MTP",
}
"""What a speculators checkpoint calls its algorithm, and the method that runs it."""
_CLASSES: Final = (
    ("Eagle3", "Eagle3"),
    ("EAGLE3", "Eagle3"),
    ("Eagle", "Eagle"),
    ("Medusa", "Medusa"),
    ("DFlash", "DFlash"),
    ("DSpark", "DSpark"),
)
"""Part of a class name, and the method that it is made for; the first that fits. Heads that are
written as a plain model's class are known by their tensors only."""
_LAYER_LISTS: Final = (
    "eagle_aux_hidden_state_layer_ids",
    "aux_hidden_state_layer_ids",
    "target_layer_ids",
    "dspark_target_layer_ids",
)
_NESTED: Final = ("dflash_config", "eagle_config")


def head_findings(
    request: EngineRequest, target: ModelFacts, draft: ModelFacts | None
) -> Iterator[Judged]:
    """What keeps a head from fitting, by method."""
    if request.method == "MTP":
        yield from _mtp(request, target, draft)
    if draft is None:
        return
    if request.method in _HEADS:
        yield from _width(target, draft)
        yield from _layers(target, draft)
        yield from _embedding(target, draft)
    yield from _kind(request, draft)
    if request.method == "Eagle3":
        yield from _reduced_vocabulary(target, draft)
    if request.method in ("DFlash", "DSpark"):
        yield from _blocks(request, draft)
    if request.method == "Medusa":
        yield from _medusa(request, draft)
    yield from _speculators(request, target, draft)


def _mtp(request: EngineRequest, target: ModelFacts, draft: ModelFacts | None) -> Iterator[Judged]:
    model, tokens = draft or target, request.num_speculative_tokens or 0
    if str(target.config.get("model_type")) == "deepseek_v41":
        yield "refuse", f"{target.source} has DSpark stages and no MTP head; use method DSpark"
        return
    if str(model.config.get("model_type", "")).startswith("gemma4"):
        return  # its assistant is one layer of another name, made for k of any length
    layers = model.mtp_layers
    if not layers:
        said = "no" if layers is None else str(layers)
        yield (
            "refuse",
            f"{model.source} has {said} multi-token layers (num_nextn_predict_layers, "
            "mtp_num_hidden_layers or num_mtp_modules): use another method or a checkpoint with "
            "its head",
        )
    elif tokens > layers and tokens % layers:
        yield (
            "refuse",
            f"speculation.numSpeculativeTokens {tokens} is no multiple of the {layers} multi-token "
            f"layers of {model.source}; use {layers * (tokens // layers)}",
        )
    elif _is_stripped(model):
        yield (
            "refuse",
            f"{model.source} says {layers} multi-token layers and has no tensor of them: they were "
            "left out, as quantising tools do; use a checkpoint that kept them, or another method",
        )


def _is_stripped(model: ModelFacts) -> bool:
    """Names by family: vllm/model_executor/models/*mtp*.py (0.32.0)."""
    after = f"layers.{model.layers}."
    names = model.tensors
    return names is not None and not any(
        "mtp" in name or "nextn" in name or after in name for name in names
    )


def _width(target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    """A head reads the target's hidden states, so both are equally wide."""
    said, ours = draft.number("target_hidden_size"), target.hidden_size
    theirs = said if said is not None else _inner(draft).get("hidden_size", draft.hidden_size)
    if ours is not None and isinstance(theirs, int) and theirs != ours:
        yield (
            "refuse",
            f"the head {draft.source} reads hidden states of width {theirs}, {target.source} has "
            f"{ours}: it was trained for another target; choose the head of this one",
        )


def _layers(target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    count = target.layers
    for name in _LAYER_LISTS:
        ids = _value(draft, name)
        if count is None or not isinstance(ids, list):
            continue
        wrong = [
            number for number in ids if not isinstance(number, int) or not 0 <= number <= count
        ]
        if wrong:
            yield (
                "refuse",
                f"the head {draft.source} reads layer {wrong[0]} ({name}), {target.source} has "
                f"{count} layers: it was trained for another target",
            )


def _embedding(target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    """A head with an embedding of its own is asked for every token of the target."""
    shapes = draft.weights.shapes.items()
    rows = next((s[0] for n, s in shapes if n.endswith("embed_tokens.weight") and s), None)
    last = max((target.vocabulary or {}).values(), default=None)
    if rows is not None and last is not None and last >= rows:
        yield (
            "refuse",
            f"the head {draft.source} has an embedding of {rows} tokens, {target.source} has "
            f"tokens up to number {last}: one of those would end the engine; choose the head of "
            "this target",
        )


def _kind(request: EngineRequest, draft: ModelFacts) -> Iterator[Judged]:
    """Whether these are the weights of what `method` says: vLLM believes the method."""
    made_for = next(
        (m for word, m in _CLASSES if any(word in c for c in draft.architectures)), None
    )
    alike = {"Eagle3", "Eagle"} if made_for == "Eagle" else {made_for}
    if made_for is not None and request.method not in alike | {"Custom"}:
        yield (
            "refuse",
            f"{draft.source} is a {draft.architectures[0]}, speculation.method is "
            f"{request.method}; set it to {made_for} or choose another draft",
        )
        return
    names = draft.tensors
    if names is None:
        return
    if request.method in ("Eagle", "Eagle3") and not any(
        "fc." in n or "eh_proj" in n for n in names
    ):
        yield (
            "refuse",
            f"{draft.source} has no tensor fc, by which a head reads its target: it is a whole "
            "model; set speculation.method to DraftModel or choose a head",
        )
    if request.method == "DraftModel" and any(n in names for n in ("fc.weight", "d2t")):
        yield (
            "refuse",
            f"{draft.source} has the tensor fc or d2t of a head, which can't draft by itself; set "
            "speculation.method to Eagle or Eagle3",
        )


def _reduced_vocabulary(target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    ours, theirs = target.vocabulary_size, draft.number("draft_vocab_size")
    if ours is None or theirs is None or theirs == ours:
        return
    if theirs > ours:
        yield (
            "refuse",
            f"draft_vocab_size is {theirs} in {draft.source}, the target has {ours} tokens: it was "
            "trained for another target",
        )
    elif draft.tensors is not None and not any(n.endswith("d2t") for n in draft.tensors):
        yield (
            "refuse",
            f"{draft.source} drafts {theirs} of the target's {ours} tokens and has no tensor d2t "
            "that says which; its checkpoint is incomplete",
        )
    else:
        shapes = draft.weights.shapes.items()
        rows = next((s[0] for n, s in shapes if n.endswith("d2t") and s), theirs)
        if rows != theirs:
            yield (
                "refuse",
                f"draft_vocab_size is {theirs} in {draft.source}, its tensor d2t maps {rows} "
                "tokens: config.json and weights are of two versions",
            )


def _blocks(request: EngineRequest, draft: ModelFacts) -> Iterator[Judged]:
    if request.method == "DFlash" and not isinstance(_value(draft, "mask_token_id"), int):
        yield "refuse", f"{draft.source} says no mask_token_id, which DFlash drafts with"
    block, tokens = _value(draft, "block_size"), request.num_speculative_tokens
    if request.method == "DSpark" and isinstance(block, int) and tokens != block:
        yield (
            "warn",
            f"speculation.numSpeculativeTokens is {tokens}, {draft.source} was trained for blocks "
            f"of {block}: use {block}",
        )


def _medusa(request: EngineRequest, draft: ModelFacts) -> Iterator[Judged]:
    heads, tokens = draft.number("num_heads", "medusa_num_heads"), request.num_speculative_tokens
    if heads is not None and tokens is not None and tokens > heads:
        yield (
            "refuse",
            f"speculation.numSpeculativeTokens {tokens} is more than the {heads} heads of "
            f"{draft.source}; use at most {heads}",
        )


def _speculators(request: EngineRequest, target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    said = draft.config.get("speculators_config")
    said = said if isinstance(said, dict) else {}
    algorithm = said.get("algorithm", draft.config.get("speculators_model_type"))
    if algorithm is None:
        return
    method = _ALGORITHMS.get(str(algorithm))
    if method is None and request.method != "Custom":
        yield (
            "warn",
            f"{draft.source} was made for {str(algorithm)[:64]!r} (speculators "
            f"{str(draft.config.get('speculators_version', 'of no version'))[:32]}), which is not "
            f"known here; known are {', '.join(_ALGORITHMS)}",
        )
    elif method is not None and method != request.method:
        yield (
            "refuse",
            f"{draft.source} was made for {algorithm}, speculation.method is {request.method}; "
            f"set it to {method}",
        )
    verifier = said.get("verifier")
    if not isinstance(verifier, dict):
        return
    classes = verifier.get("architectures")
    if (
        isinstance(classes, list)
        and target.architectures
        and target.architectures[0] not in classes
    ):
        yield (
            "refuse",
            f"{draft.source} was made for {', '.join(map(str, classes))}, {target.source} is "
            f"{target.architectures[0]}; choose the head of this target",
        )
    name = verifier.get("name_or_path")
    if isinstance(name, str) and name and not _same_model(name, target.source):
        yield (
            "warn",
            f"{draft.source} was made for {name}, the target is {target.source}: a fine-tuned or "
            "quantised target has fewer tokens accepted",
        )


def _same_model(name: str, source: str) -> bool:
    plain = source.partition("://")[2].partition("@")[0].rstrip("/")
    return name == plain or name.rsplit("/", 1)[-1].lower() == plain.rsplit("/", 1)[-1].lower()


def _inner(draft: ModelFacts) -> dict[str, Any]:
    """Where a speculators checkpoint keeps the layer's own configuration."""
    found = draft.config.get("transformer_layer_config")
    return found if isinstance(found, dict) else {}


def _value(draft: ModelFacts, name: str) -> Any:
    for place in (*(draft.config.get(key) for key in _NESTED), draft.config, _inner(draft)):
        if isinstance(place, dict) and place.get(name) is not None:
            return place[name]
    return None
