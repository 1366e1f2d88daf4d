"""PURE: what the scheduler says about its draft length, as the digest's `adaptive` reads it."""

from typing import Any

from .controller import Choice


class State:
    """Remembers since when the length is 0."""

    def __init__(self) -> None:
        self._zero_since: float | None = None

    def shown(self, choice: Choice, *, obeyed: bool, now: float) -> dict[str, Any]:
        """The state now; `now` in seconds of a steady clock."""
        if choice.k:
            self._zero_since = None
        elif self._zero_since is None:
            self._zero_since = now
        return {
            "tokens": choice.k,
            "gainPercent": round(100 * (choice.gain - 1)),
            "zeroSeconds": round(now - self._zero_since) if self._zero_since is not None else 0,
            "obeyed": obeyed,
        }
