"""What reaches a terminal: colours on wish, nothing that steers it, never more than fits."""

import io
import os
from typing import Any

import pytest

from speculative_cli import terminal


class Stream(io.StringIO):
    def __init__(self, *, tty: bool, encoding: str) -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    def isatty(self) -> bool:
        return self._tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


@pytest.mark.parametrize(
    ("tty", "environment", "color"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_only_on_a_terminal_that_wants_them(
    tty: bool, environment: dict[str, str], color: bool
) -> None:
    stream = Stream(tty=tty, encoding="utf-8")
    assert terminal.style_of(stream, environment) == terminal.Style(color=color)


@pytest.mark.parametrize(("encoding", "ascii_"), [("UTF-8", False), ("ISO-8859-1", True)])
def test_lines_and_bars_need_their_characters(encoding: str, ascii_: bool) -> None:
    style = terminal.style_of(Stream(tty=False, encoding=encoding), {})
    assert style.ascii == ascii_
    assert style.drawn("└─ ██░ …").isascii() == ascii_


def test_what_can_not_be_encoded_does_not_end_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    terminal.show("größer …")
    assert raw.getvalue() == b"gr??er ?\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[31mbad\x1b[0m and long", "\x1b[31mbad\x1b[0m an…"),
        ("long and \x1b[31mbad\x1b[0m", "long a\x1b[31m\x1b[0m…"),
        ("\x1b[31mfits in\x1b[0m", "\x1b[31mfits in\x1b[0m"),
    ],
    ids=["a colour before the end", "a colour beyond it", "no wider than the screen"],
)
def test_colours_take_no_room(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, line: str, shown: str
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((7, 6)))
    terminal.redraw(line)
    assert capsys.readouterr().out == f"\x1b[H{shown}\x1b[K\n\x1b[J"


def test_a_redraw_fits_the_screen(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 6)))
    terminal.redraw("\n".join(["x" * 50, "short", *("more" for _ in range(20))]))
    out = capsys.readouterr().out
    assert out.startswith("\x1b[H")
    lines = out.removeprefix("\x1b[H").split("\x1b[K\n")
    assert lines == ["x" * 19 + "…", "short", "more", "more", "(18 more lines)", "\x1b[J"]
