"""An issuer's public keys: from a mounted ConfigMap, or fetched from its address.

What was fetched last stays in use while the issuer is away, also after the
agent's death: it lies in the folder that it shares with Envoy. Tasks of the
agent fetch; its loop only reads what is there.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection

import aiohttp

from speculative_api import gateway

from . import storage
from .mounts import Mounts
from .settings import Settings
from .tokens import LONGEST_BYTES, KeySet, key_set

_log = logging.getLogger("speculative_gateway.issuer")

FETCH_SECONDS = 300.0
"""Between fetches: how long a key that the issuer has withdrawn is still believed."""
RETRY_SECONDS = 5.0
TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 0.2
KEY_SET_KEY = "jwks.json"
"""The entry of the ConfigMap."""


class Issuers:
    """The keys of the issuers that are asked for."""

    def __init__(self, settings: Settings) -> None:
        self.mounts = Mounts(
            settings.key_set_directory,
            settings.key_set_names,
            is_anyones=not settings.shared_gateway,
        )
        self._file = settings.directory / "fetched-keys.json"
        self._uris: frozenset[str] = frozenset()
        """What routes name."""
        self._fetched = self._kept()
        """Keys by where they were fetched."""
        self._failures: dict[str, str] = {}

    def asked(self, issuers: Collection[gateway.Jwt]) -> None:
        """Takes all that are asked for: no other is fetched."""
        self._uris = frozenset(each.jwks_uri for each in issuers if each.jwks_uri is not None)
        self.mounts.asked({each.jwks_config_map or "" for each in issuers if not each.jwks_uri})

    def are_here(self, jwt: gateway.Jwt) -> bool:
        """Whether this pod has a place to read its keys from: an address that was tried, with
        whatever came of it, or a mount."""
        uri = jwt.jwks_uri
        if uri is None:
            return self.mounts.of(jwt.jwks_config_map or "") is not None
        return uri in self._fetched or uri in self._failures

    def key_set(self, jwt: gateway.Jwt) -> KeySet:
        """The keys as known now; what is wrong where there are none or the newest is unusable."""
        uri = jwt.jwks_uri
        if uri is None:
            return self._from_config_map(jwt.jwks_config_map or "")
        failure = self._failures.get(uri, "")
        if text := self._fetched.get(uri):
            return KeySet(text, failure)
        return KeySet(problem=failure or f"{uri} was not fetched yet")

    async def follow(self, session: aiohttp.ClientSession, changed: Callable[[], None]) -> None:
        """Fetches what is due, until cancelled; says when something is new.

        Each issuer by itself: one that hangs is nobody else's matter.
        """
        following: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                for uri in following.keys() - self._uris:
                    following.pop(uri).cancel()
                    self._forget(uri)
                for uri in sorted(self._uris - following.keys()):
                    following[uri] = tasks.create_task(self._follow(session, uri, changed))
                await asyncio.sleep(LOOK_SECONDS)

    async def _follow(
        self, session: aiohttp.ClientSession, uri: str, changed: Callable[[], None]
    ) -> None:
        while True:
            before = (self._fetched.get(uri), self._failures.get(uri))
            found = await self._fetch(session, uri)
            if before != (self._fetched.get(uri), self._failures.get(uri)):
                changed()
            await asyncio.sleep(RETRY_SECONDS if found.problem else FETCH_SECONDS)

    async def _fetch(self, session: aiohttp.ClientSession, uri: str) -> KeySet:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with session.get(uri, timeout=timeout, allow_redirects=False) as answer:
                content = await answer.content.read(LONGEST_BYTES + 1)
                while len(content) <= LONGEST_BYTES and (more := await answer.content.read(65_536)):
                    content += more
            found = (
                key_set(content.decode("utf-8", "replace"))
                if answer.status == 200
                else KeySet(problem=f"status {answer.status}")
            )
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            found = KeySet(problem=repr(error))
        self._failures[uri] = f"keys of {uri}: {found.problem}" if found.problem else ""
        if found.text:
            self._fetched[uri] = found.text
            self._keep()
        else:
            _log.warning("%s", self._failures[uri])
        return found

    def _forget(self, uri: str) -> None:
        self._failures.pop(uri, None)
        if self._fetched.pop(uri, None) is not None:
            self._keep()

    def _keep(self) -> None:
        """For a later agent of this pod that can't reach an issuer; this one knows them anyway."""
        try:
            storage.write(self._file, json.dumps(self._fetched) + "\n")
        except OSError as error:
            _log.warning("issuers' keys are not kept: %s", error)

    def _from_config_map(self, name: str) -> KeySet:
        folder = self.mounts.of(name)
        if folder is None:
            return KeySet(problem=f"this pod has no ConfigMap {name} mounted: its successor will")
        try:
            found = key_set((folder / KEY_SET_KEY).read_text("utf-8"))
        except (OSError, ValueError) as error:
            return KeySet(problem=f"{KEY_SET_KEY} of ConfigMap {name} can't be read: {error}")
        if found.problem:
            return KeySet(problem=f"{KEY_SET_KEY} of ConfigMap {name}: {found.problem}")
        return found

    def _kept(self) -> dict[str, str]:
        """What an earlier agent of this pod fetched."""
        try:
            kept = json.loads(self._file.read_text())
            found = {str(uri): key_set(text).text for uri, text in kept.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        return {uri: text for uri, text in found.items() if text}
