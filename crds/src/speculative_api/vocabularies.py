"""PURE: do two tokenizers give the same numbers to the same tokens? Called by `preflight`."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from speculative_api.model_facts import ModelFacts

LARGEST_DIFFERENCE: Final = 0.001
"""Share of tokens that may differ with a warning only: a few reserved ones often do."""

Judged = tuple[Literal["refuse", "warn"], str]


def vocabulary_findings(target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    """Sizes, tokens and special tokens of a separate draft against its target's."""
    sizes = (target.vocabulary_size, draft.vocabulary_size)
    differ = None not in sizes and sizes[0] != sizes[1]
    if target.vocabulary is not None and draft.vocabulary is not None and _same_kind(target, draft):
        yield from _tokens(target, draft, target.vocabulary, draft.vocabulary, sizes)
    elif differ:
        yield "refuse", f"vocab_size is {sizes[1]} in the draft and {sizes[0]} in the target"
    else:
        yield (
            "warn",
            "tokens are not compared: there is no tokenizer.json, vocab.json or other file of one "
            "kind in both; vocab_size is equal",
        )
    if not (target.special_tokens and draft.special_tokens):
        yield from _special_numbers(target, draft)
    for name, ours in target.special_tokens.items():
        theirs = draft.special_tokens.get(name)
        if theirs is not None and theirs != ours:
            yield (
                "warn",
                f"{name} is {theirs!r} in the draft and {ours!r} in the target: the draft knows "
                "other ends and beginnings; expect fewer tokens to be accepted there",
            )


def _same_kind(target: ModelFacts, draft: ModelFacts) -> bool:
    """Converters move the numbers of sentencepiece's and tekken's pieces: only like is compared."""
    kinds = {target.vocabulary_file, draft.vocabulary_file}
    return len(kinds) == 1 or kinds == {"tokenizer.json", "vocab.json"}


def _special_numbers(target: ModelFacts, draft: ModelFacts) -> Iterator[Judged]:
    """Beginnings and ends as config.json numbers them; several ends are common."""
    for name in ("bos_token_id", "eos_token_id"):
        ours, theirs = _ids(target, name), _ids(draft, name)
        if ours and theirs and not ours & theirs:
            yield (
                "warn",
                f"{name} is {min(theirs)} in the draft's config.json and {min(ours)} in the "
                "target's: the draft was trained with other beginnings and ends; expect fewer "
                "tokens to be accepted there",
            )


def _ids(model: ModelFacts, name: str) -> set[int]:
    found = model.text_config.get(name, model.config.get(name))
    return {
        each for each in (found if isinstance(found, list) else [found]) if isinstance(each, int)
    }


def _tokens(
    target: ModelFacts,
    draft: ModelFacts,
    ours: Mapping[str, int],
    theirs: Mapping[str, int],
    sizes: tuple[int | None, int | None],
) -> Iterator[Judged]:
    counted = (
        f"the draft has {len(theirs)} tokens, the target {len(ours)} "
        f"(vocab_size {sizes[1]} and {sizes[0]})"
    )
    differ = None not in sizes and sizes[0] != sizes[1]
    found = _differences(ours, theirs)
    if found:
        first = _sentence(found[0], ours, theirs)
        share = len(found) / max(len(ours), len(theirs), 1)
        if share > LARGEST_DIFFERENCE or differ:
            remedy = "choose a draft with the target's tokenizer"
            yield "refuse", f"{first}; {counted}, {len(found)} differ; {remedy}"
            return
        yield "warn", f"{first}; {counted}, {len(found)} differ: these are never accepted"
    elif differ:
        yield (
            "refuse",
            f"both tokenizers hold the same {len(ours)} tokens, but vocab_size is {sizes[1]} in "
            f"the draft and {sizes[0]} in the target: only the padding differs, and the engine "
            "compares strictly; set speculation.extra.use_heterogeneous_vocab: true or choose "
            "another draft",
        )


def _differences(ours: Mapping[str, int], theirs: Mapping[str, int]) -> list[int]:
    """Ids at which the two disagree, lowest first."""
    if ours == theirs:
        return []
    of_target = {number: token for token, number in ours.items()}
    of_draft = {number: token for token, number in theirs.items()}
    ids = of_target.keys() | of_draft.keys()
    return sorted(number for number in ids if of_target.get(number) != of_draft.get(number))


def _sentence(number: int, ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    of_draft = next((token for token, at in theirs.items() if at == number), None)
    of_target = next((token for token, at in ours.items() if at == number), None)
    return f"token {number} is {_word(of_draft)} in the draft and {_word(of_target)} in the target"


def _word(token: str | None) -> str:
    return "absent" if token is None else repr(token[:64])
