"""Pure: the entries of a Secret become API keys, or a reason why not.

A key's value is in `Keys` and in Envoy's route file only: no message, log line
or representation has it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_KEY = re.compile(r"[!-~]{8,1024}")
"""Visible ASCII: what survives the way through a header unchanged."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Usable keys, and what is wrong with the others."""

    by_client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client's name -> key."""
    problem: str = ""


def usable(entries: Mapping[str, bytes]) -> Keys:
    """The keys among a Secret's entries; a final newline is not part of a key.

    Of two clients with one key the first by name has it: Envoy refuses doubles.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for client, content in sorted(entries.items()):
        key = content.decode("latin-1").rstrip("\r\n")
        twin = next((other for other, taken in found.items() if taken == key), None)
        if not _KEY.fullmatch(key):
            problems.append(f"API key {client} is not 8 to 1024 visible ASCII characters")
        elif twin is not None:
            problems.append(f"API key {client} equals {twin}")
        else:
            found[client] = key
    return Keys(found, "; ".join(problems))
