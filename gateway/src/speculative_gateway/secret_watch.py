"""The Secrets with API keys, watched through the API where that was granted.

A mounted Secret changes when the kubelet comes by, a minute or more later. With
the right to read a Secret by name a removed key is refused at once.
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
    """The entries of the Secrets that routes name, as far as they may be read."""

    def __init__(self) -> None:
        self.entries: dict[str, Entries] = {}
        """By Secret; without those that are not granted, or not asked for yet. One that does not
        exist has none."""
        self._names: frozenset[str] = frozenset()
        self._renamed = asyncio.Event()

    def named(self, route: str | None) -> None:
        """Takes the Secrets' names from the text of a route, or of a shared gateway."""
        names = secret_names(route)
        if names != self._names:
            self._names = names
            self.entries = {name: each for name, each in self.entries.items() if name in names}
            self._renamed.set()

    async def run(self, follow: Follow, changed: Callable[[], None]) -> None:
        """Follows the Secrets for ever, others once the route names them."""
        following: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._renamed.clear()
                for name in following.keys() - self._names:
                    following.pop(name).cancel()
                for name in sorted(self._names - following.keys()):
                    following[name] = tasks.create_task(self._follow(name, follow, changed))
                await self._renamed.wait()

    async def _follow(self, name: str, follow: Follow, changed: Callable[[], None]) -> None:
        def store(secret: dict[str, Any] | None) -> None:
            if name in self._names:
                self.entries = {**self.entries, name: entries_of(secret)}
                changed()

        while True:
            try:
                await follow(name, store)
            except Denied:
                if name in self.entries:
                    _log.warning("reading Secret %s is not granted any more", name)
                    self.entries = {each: it for each, it in self.entries.items() if each != name}
                    changed()
                await asyncio.sleep(REFUSED_SECONDS)


def secret_names(route: str | None) -> frozenset[str]:
    """The Secrets that a text names, its members' at a shared gateway; none where it is not JSON
    of such a form.
    """
    try:
        said = json.loads(route or "{}")
        members = [each.get("access") or {} for each in said.get("members", ())]
        auths = [each.get("auth") or {} for each in (said, *members)]
        found = [each.get("apiKeysSecret") for each in auths]
    except (ValueError, AttributeError, TypeError):
        return frozenset()
    return frozenset(name for name in found if name and isinstance(name, str))


def entries_of(secret: dict[str, Any] | None) -> Entries:
    """Its entries, decoded; one that is not base64 is left out, as it can't be a key."""
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        with contextlib.suppress(NotBase64, ValueError):
            found[key] = b64decode(value, validate=True)
    return found
