"""PURE: the simulated model: which token follows, and how tokens are spelt.

The next token is a function of the last four, so that the same prompt has the
same answer on every pod, and an answer can be scored token by token. There are
4096 tokens, each a word of three syllables.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

VOCABULARY: Final = 4096
_MEMORY: Final = 4
_SYLLABLES: Final = (
    *("ba", "de", "fi", "go", "ku", "la", "me", "ni"),
    *("po", "ru", "sa", "te", "vi", "wo", "zu", "xa"),
)
_INDEX: Final = {syllable: index for index, syllable in enumerate(_SYLLABLES)}
LIKELY: Final = -0.1
"""Log-probability of the token that follows."""
UNLIKELY: Final = -8.0
"""That of every other token."""


def next_token(before: Sequence[int]) -> int:
    """The token that follows."""
    memory = ",".join(str(token) for token in before[-_MEMORY:])
    return zlib.crc32(memory.encode()) % VOCABULARY


def word(token: int) -> str:
    """A token's spelling, without the space that follows it."""
    token %= VOCABULARY
    return _SYLLABLES[token >> 8] + _SYLLABLES[token >> 4 & 15] + _SYLLABLES[token & 15]


def text_of(tokens: Sequence[int]) -> str:
    """The text of tokens."""
    return "".join(f"{word(token)} " for token in tokens)


def tokens_of(text: str) -> list[int]:
    """The tokens of a text: one per word, our own words exactly, at least one."""
    return [_token(each) for each in text.split()] or [0]


def _token(each: str) -> int:
    parts = [_INDEX.get(each[start : start + 2]) for start in (0, 2, 4)]
    first, second, third = parts
    if len(each) == 6 and first is not None and second is not None and third is not None:
        return first << 8 | second << 4 | third
    return zlib.crc32(each.encode()) % VOCABULARY


def prompt_logprobs(prompt: Sequence[int], count: int) -> list[dict[str, Any] | None]:
    """How likely each token of a prompt was after those before it, in vLLM's form.

    Each entry has the prompt's own token and, from a `count` of 1 on, the
    likeliest. The first token has none before it.
    """
    found: list[dict[str, Any] | None] = [None]
    for position in range(1, len(prompt)):
        best = next_token(prompt[max(0, position - _MEMORY) : position])
        own = prompt[position]
        entry = {str(own): _logprob(own, is_best=own == best)}
        if count > 0 or count == -1:
            entry.setdefault(str(best), _logprob(best, is_best=True))
        found.append(entry)
    return found


def _logprob(token: int, *, is_best: bool) -> dict[str, Any]:
    return {
        "logprob": LIKELY if is_best else UNLIKELY,
        "rank": 1 if is_best else 2,
        "decoded_token": f"{word(token)} ",
    }
