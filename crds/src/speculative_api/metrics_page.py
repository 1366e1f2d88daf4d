"""PURE: series by name, from a page in Prometheus' text format.

Comes in: a page, however hostile, and the names somebody wants. Goes out: the
wanted series that say a finite number. Called by `engine_metrics`. Most lines of an engine's
page are nobody's, and the labels of the others are the same at every look, so
a line costs little until its name is a wanted one, and labels are read once.
"""

import functools
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_LABELS: Final = re.compile(r'(?:[^"}]|"(?:[^"\\]|\\.)*")*', re.DOTALL)
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_KEPT_LABELS: Final = 2048
_KEPT_LENGTH: Final = 512
"""Longer ones are read anew each time: what is kept stays small, whatever engines say."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its labels, unescaped, and a finite value."""

    labels: Mapping[str, str]
    value: float


def series_by_name(page: str, wanted: Collection[str]) -> dict[str, list[Series]]:
    """The wanted series in the page's order; lines that can't be read count as absent."""
    found: dict[str, list[Series]] = {}
    # Not splitlines: a label may hold what Python takes for an end of line besides.
    for line in page.split("\n"):
        if line.startswith("#"):
            continue
        name, brace, rest = line.partition("{")
        name = name.strip()
        if not brace:
            name, _, rest = name.replace("\t", " ").partition(" ")
        if name in wanted and (series := _series(rest, labelled=bool(brace))):
            found.setdefault(name, []).append(series)
    return found


def _series(rest: str, *, labelled: bool) -> Series | None:
    """What stands behind the name; a time stamp behind the value is left out."""
    labels: Mapping[str, str] | None = _NO_LABELS
    if labelled:
        text, brace, rest = rest.rpartition("}")
        labels = _labels(text) if brace else None
    words = rest.split()
    if labels is None or not 1 <= len(words) <= 2:
        return None
    try:
        value = float(words[0])
    except ValueError:
        return None
    return Series(labels, value) if math.isfinite(value) else None


_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def _labels(text: str) -> Mapping[str, str] | None:
    return _kept_labels(text) if len(text) <= _KEPT_LENGTH else _read_labels(text)


def _read_labels(text: str) -> Mapping[str, str] | None:
    """None where a quotation mark or a brace stands where none may."""
    if not _LABELS.fullmatch(text):
        return None
    found = {name: _unescaped(value) for name, value in _LABEL.findall(text)}
    return MappingProxyType(found)


_kept_labels = functools.lru_cache(maxsize=_KEPT_LABELS)(_read_labels)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda mark: "\n" if mark[1] == "n" else mark[1], text)
