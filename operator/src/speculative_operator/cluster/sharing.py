"""Keeps equal parts of many objects once: children of a thousand resources are much alike.

Without this the stores take half a pod's memory for copies of the same probes,
volumes and label names. Nothing here changes what an object says. Whoever is given
such an object must not change it in place.
"""

from typing import Any, Final

MOST: Final = 50_000
"""Parts remembered; beyond that it begins anew, and only what comes later is shared with it."""


class Shared:
    """Remembers the parts of one process's stores."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[tuple[Any, ...], Any] = {}

    @property
    def remembered(self) -> int:
        """How many texts and parts are known."""
        return len(self._texts) + len(self._parts)

    def of(self, value: Any) -> Any:
        """An equal value, made of parts that are shared where they were seen before."""
        if self.remembered > MOST:
            self._texts.clear()
            self._parts.clear()
        return self._of(value)

    def _of(self, value: Any) -> Any:
        # Runs for every part of every object that is stored: asks for types once.
        kind = type(value)
        if kind is str:
            return self._texts.setdefault(value, value)
        if kind is dict:
            text, part = self._texts.setdefault, self._of
            made = {text(key, key): part(item) for key, item in value.items()}
            return self._parts.setdefault((kind, *made, *map(_token, made.values())), made)
        if kind is list:
            items = list(map(self._of, value))
            return self._parts.setdefault((kind, *map(_token, items)), items)
        return value


_BY_IDENTITY: Final = frozenset({str, dict, list})


def _token(item: Any) -> Any:
    """Equal for equal items: texts and parts by identity, which holds as long as they are known."""
    kind = type(item)
    return id(item) if kind in _BY_IDENTITY else (kind, item)
