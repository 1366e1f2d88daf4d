"""Keeps equal parts of many objects once: children of a thousand resources are much alike.

Without this the stores take half a pod's memory for copies of the same probes,
volumes and label names. Nothing here changes what an object says. Whoever is given
such an object must not change it in place.
"""

from typing import Any, Final

import orjson

MOST: Final = 10_000
"""Texts and parts remembered, of some 300 resources; beyond that it begins anew, and only what
comes later is shared with it. What all have in common is learnt again from the next resource,
while the names of those that are gone would pile up."""
LARGEST: Final = 512
"""Bytes of a part as JSON that is worth remembering: what is larger holds the name of its owner
somewhere, and is shared in its parts."""


class Shared:
    """Remembers the parts of one process's stores."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[int, Any] = {}

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
        if kind is not dict and kind is not list:
            return value
        # Written out it tells 1 from True, which `==` does not, and costs less than a walk.
        said = orjson.dumps(value)
        if len(said) > LARGEST:
            return self._made(value, kind)
        token = hash(said)
        known = self._parts.get(token)
        if known is None or known != value:
            known = self._parts[token] = self._made(value, kind)
        return known

    def _made(self, value: Any, kind: type) -> Any:
        if kind is list:
            return list(map(self._of, value))
        text, part = self._texts.setdefault, self._of
        return {
            # Most values are texts: a call for each takes as long as everything else here.
            text(key, key): text(item, item) if type(item) is str else part(item)
            for key, item in value.items()
        }
