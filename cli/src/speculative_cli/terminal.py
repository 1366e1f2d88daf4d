"""What may go to a terminal, and how: control characters, colours, ASCII, size.

Messages carry the last words of engines and of whoever may edit a status: none
of them is to move somebody's cursor. Called by whoever prints.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_PAINT: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_CODES: Final = {"bad": "31", "good": "32", "doubtful": "33"}
_ASCII: Final = str.maketrans(
    {"├": "|", "└": "`", "─": "-", "│": "|", "█": "#", "░": ".", "…": "~"}
)


@dataclass(frozen=True, slots=True)
class Style:
    """How text is shown."""

    color: bool = False
    ascii: bool = False

    def paint(self, text: str, how: str) -> str:
        """The text in the colour of `bad`, `good` or `doubtful`, where there are colours."""
        return f"\x1b[{_CODES[how]}m{text}\x1b[0m" if self.color else text

    def drawn(self, text: str) -> str:
        """The text with lines and bars of characters that the terminal has."""
        return text.translate(_ASCII) if self.ascii else text


def style_of(stream: Any, environment: Mapping[str, str]) -> Style:
    """Colours only on a terminal that wants them (https://no-color.org)."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Style(color=stream.isatty() and wanted, ascii=encoding not in ("utf8", "utf16"))


def printable(text: str) -> str:
    """The text without characters that steer a terminal; line breaks and tabs stay."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def show(text: str) -> None:
    """Prints text for people: whatever the terminal can't encode becomes a question mark."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


def say(text: str) -> None:
    """Prints text that others may have had a hand in: nothing in it steers the terminal."""
    show(printable(text))


def redraw(text: str) -> None:
    """Prints over the whole screen, cut to its size so that nothing scrolls."""
    size = shutil.get_terminal_size()
    lines = text.splitlines()
    hidden = len(lines) - (size.lines - 1)
    if hidden > 0:
        lines = [*lines[: max(0, size.lines - 2)], f"({hidden + 1} more lines)"]
    # Each line is cleared as it is written: clearing the screen first would flicker.
    body = "".join(f"{_cut(line, size.columns)}\x1b[K\n" for line in lines)
    sys.stdout.write(f"\x1b[H{body}\x1b[J")
    sys.stdout.flush()


def _cut(line: str, columns: int) -> str:
    parts = _PAINT.split(line)
    # Every second one is a colour, which takes no room.
    if sum(map(len, parts[::2])) <= columns:
        return line
    room, kept = columns - 1, []
    for number, part in enumerate(parts):
        kept.append(part if number % 2 else part[: max(0, room)])
        room -= 0 if number % 2 else len(part)
    return "".join(kept) + "…"


def here() -> Style:
    """The style of standard output."""
    return style_of(sys.stdout, os.environ)
