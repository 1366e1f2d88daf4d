"""The Secret with the API keys, watched through the API where that was granted.

A mounted Secret changes when the kubelet comes by, a minute or more later. With
the right to read this one Secret by name a removed key is refused at once.
Without it (403) nothing is known here and the agent reads the mount.
"""

import asyncio
import contextlib
import json
import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from .errors import GatewayError

_log = logging.getLogger("speculative_gateway.secret_watch")

REFUSED_SECONDS = 60.0
"""Until the right is tried again."""

Entries = Mapping[str, bytes]


class Denied(GatewayError):
    """The API server does not let us read it."""


class Follow(Protocol):
    """Lists and watches one Secret until something breaks."""

    def __call__(
        self, name: str, store: Callable[[dict[str, Any] | None], None]
    ) -> Awaitable[None]:
        """Calls `store` with each version, None where there is none.

        Raises:
            Denied: reading it is not granted.
        """


class SecretWatch:
    """The entries of the Secret that the route names, as far as they may be read."""

    def __init__(self) -> None:
        self.entries: Entries | None = None
        """None: not granted, or not asked yet; empty: there is no such Secret."""
        self._name = ""
        self._renamed = asyncio.Event()

    def named(self, route: str | None) -> None:
        """Takes the Secret's name from the route's text."""
        name = secret_name(route)
        if name != self._name:
            self._name, self.entries = name, None
            self._renamed.set()

    async def run(self, follow: Follow, changed: Callable[[], None]) -> None:
        """Follows the Secret for ever, another one once the route names it."""
        while True:
            self._renamed.clear()
            following = asyncio.ensure_future(self._follow(self._name, follow, changed))
            try:
                await self._renamed.wait()
            finally:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following

    async def _follow(self, name: str, follow: Follow, changed: Callable[[], None]) -> None:
        def store(secret: dict[str, Any] | None) -> None:
            if self._name == name:
                self.entries = entries_of(secret)
                changed()

        while name:
            try:
                await follow(name, store)
            except Denied:
                if self._name == name and self.entries is not None:
                    _log.warning("reading Secret %s is not granted any more", name)
                    self.entries = None
                    changed()
                await asyncio.sleep(REFUSED_SECONDS)


def secret_name(route: str | None) -> str:
    """The Secret that a route's text names; empty where there is none."""
    try:
        name = json.loads(route or "{}").get("auth", {}).get("apiKeysSecret", "")
    except (ValueError, AttributeError):
        return ""
    return name if isinstance(name, str) else ""


def entries_of(secret: dict[str, Any] | None) -> Entries:
    """Its entries, decoded; one that is not base64 is left out, as it can't be a key."""
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        with contextlib.suppress(NotBase64, ValueError):
            found[key] = b64decode(value, validate=True)
    return found
