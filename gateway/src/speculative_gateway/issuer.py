"""An issuer's public keys: from a mounted ConfigMap, or fetched from its address.

What was fetched last stays in use while the issuer is away, also after the
agent's death: it lies in the folder that it shares with Envoy. One task of the
agent fetches; its loop only reads what is there.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable

import aiohttp

from speculative_api import gateway

from . import storage
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


class Issuer:
    """The keys of one issuer at a time."""

    def __init__(self, settings: Settings) -> None:
        self._mounted = settings.key_set_directory
        self._file = settings.directory / "fetched-keys.json"
        self._uri: str | None = None
        """What the route names."""
        self._fetched_uri, self._fetched = self._kept()
        self._failure = ""
        self._due_at = 0.0

    def key_set(self, jwt: gateway.Jwt) -> KeySet:
        """The keys as known now; what is wrong where there are none or the newest is unusable."""
        self._uri = jwt.jwks_uri
        if jwt.jwks_uri is None:
            return self._from_config_map(jwt.jwks_config_map or "")
        if self._fetched_uri == jwt.jwks_uri:
            return KeySet(self._fetched, self._failure)
        return KeySet(problem=self._failure or f"{jwt.jwks_uri} was not fetched yet")

    async def follow(self, session: aiohttp.ClientSession, changed: Callable[[], None]) -> None:
        """Fetches what is due, until cancelled; says when something is new."""
        asked: str | None = None
        while True:
            if self._uri != asked:
                asked, self._due_at, self._failure = self._uri, 0.0, ""
            if asked is not None and time.monotonic() >= self._due_at:
                before = (self._fetched_uri, self._fetched, self._failure)
                await self._fetch(session, asked)
                if before != (self._fetched_uri, self._fetched, self._failure):
                    changed()
            await asyncio.sleep(LOOK_SECONDS)

    async def _fetch(self, session: aiohttp.ClientSession, uri: str) -> None:
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
        self._failure = f"keys of {uri}: {found.problem}" if found.problem else ""
        self._due_at = time.monotonic() + (RETRY_SECONDS if found.problem else FETCH_SECONDS)
        if found.text:
            self._fetched_uri, self._fetched = uri, found.text
            self._keep(uri, found.text)
        else:
            _log.warning("%s", self._failure)

    def _keep(self, uri: str, keys: str) -> None:
        """For a later agent of this pod that can't reach the issuer; this one knows them anyway."""
        try:
            storage.write(self._file, json.dumps({"uri": uri, "keys": keys}) + "\n")
        except OSError as error:
            _log.warning("keys of %s are not kept: %s", uri, error)

    def _from_config_map(self, name: str) -> KeySet:
        if self._mounted is None:
            return KeySet(problem=f"this pod has no ConfigMap {name} mounted: its successor will")
        try:
            found = key_set((self._mounted / KEY_SET_KEY).read_text("utf-8"))
        except (OSError, ValueError) as error:
            return KeySet(problem=f"{KEY_SET_KEY} of ConfigMap {name} can't be read: {error}")
        if found.problem:
            return KeySet(problem=f"{KEY_SET_KEY} of ConfigMap {name}: {found.problem}")
        return found

    def _kept(self) -> tuple[str, str]:
        """What an earlier agent of this pod fetched."""
        try:
            kept = json.loads(self._file.read_text())
            return str(kept["uri"]), key_set(kept["keys"]).text
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""
