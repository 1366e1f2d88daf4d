"""What is asked: fixed lists of prompts, so that two runs ask the same. Pure.

`copy-heavy` prompts ask for text that stands in the prompt: drafts copied
from the prompt (n-gram speculation) are right most of the time. `free` prompts
are the opposite: the answer's words are new.
"""

from typing import Final

_LINES: Final = (
    "the red fox jumps over the lazy dog",
    "one two three four five six seven eight",
    "alpha beta gamma delta epsilon zeta eta theta",
    "spring summer autumn winter spring summer autumn winter",
    "north east south west north east south west",
    "green bottles standing on the long white wall",
    "for each item in the list print the item",
    "a quick brown bird sings in the old oak tree",
)
_REPEATS: Final = 4


def _copy(line: str) -> str:
    text = "\n".join([line] * _REPEATS)
    return f"Repeat the following text exactly, line by line:\n{text}\n\nNow repeat it:\n{line}\n"


PROMPTS: Final[dict[str, tuple[str, ...]]] = {
    "copy-heavy": tuple(_copy(line) for line in _LINES),
    "free": (
        "Tell me something about the sea.",
        "Why is the sky blue?",
        "Describe a morning in a small town.",
        "What makes a good friend?",
        "How would you explain rain to a child?",
    ),
}
"""Prompts by the name that `--prompts` takes."""
