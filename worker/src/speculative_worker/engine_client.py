"""What the worker asks its own engine over HTTP: health, metrics, warm-up requests."""

import asyncio
import functools
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode, urlsplit

from speculative_api.engine_metrics import LOAD_SERIES, SERIES, Load, Reading, reading
from speculative_worker.http_client import HttpClient, HttpError
from speculative_worker.log import log

if TYPE_CHECKING:
    from ssl import SSLContext

_PAGE: Final = "/metrics"
_SHORT_SECONDS: Final = 5.0
_COMPLETION_SECONDS: Final = 600.0
_CACHE_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 1.5
"""A look waits no longer for the engine: whoever asks the worker (the operator for 2 s) is to
hear at least what it knows itself, of an engine that hangs above all."""
OLD_SECONDS: Final = 10.0
"""Until then an engine that is slow to answer is spoken for by what it said before."""


class EngineSilent(Exception):
    """The engine did not answer, or not with what was asked for."""


class EngineClient:
    """Asks one engine; use as a context manager."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        encryption = _unverified() if where.scheme == "https" else None
        self._http = HttpClient(where.hostname or "", where.port or 0, encryption=encryption)
        self._asking: asyncio.Task[None] | None = None
        self._silence: EngineSilent | None = None
        self._read_at = float("-inf")
        self._sampled_at = 0.0
        self._reading: Reading | None = None
        self._takes_names = True
        """Until it was seen to answer them with nothing, and without them with something."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._http.close()

    async def is_healthy(self) -> bool:
        """Whether `/health` answers 200."""
        try:
            status, _ = await self._http.get("/health", seconds=_SHORT_SECONDS)
        except HttpError:
            return False
        return status == 200

    async def sample(self) -> tuple[Reading, float]:
        """The engine's metrics and the Unix time they were read at: at most 1 s old, of a slow
        engine 10.

        Raises `EngineSilent`.
        """
        if self._reading is None or self._age() > _CACHE_SECONDS:
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask())
            asking = self._asking
            await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
            if asking.done():
                asking.result()
                if self._silence is not None:
                    raise self._silence
        if self._reading is None or self._age() > OLD_SECONDS:
            raise EngineSilent(f"no metrics within {ANSWER_SECONDS:g} s")
        return self._reading, self._sampled_at

    def _age(self) -> float:
        return time.monotonic() - self._read_at

    async def _ask(self) -> None:
        try:
            self._reading, self._silence = await self._fresh(SERIES), None
            self._read_at = time.monotonic()
            self._sampled_at = time.time()
        except EngineSilent as error:
            self._silence = error  # not raised: those who asked may have gone
        finally:
            self._asking = None

    async def fresh_sample(self) -> Reading:
        """The engine's metrics now. Raises `EngineSilent`."""
        return await self._fresh(SERIES)

    async def load(self) -> Mapping[str, Load]:
        """Work of each engine now: a small page, for who looks often. Raises `EngineSilent`."""
        return (await self._fresh(LOAD_SERIES)).loads

    async def complete(self, request: dict[str, Any]) -> tuple[int, str]:
        """One completion request: status and body. Raises `EngineSilent`."""
        content = json.dumps(request).encode()
        try:
            status, body = await self._http.post(
                "/v1/completions", content, seconds=_COMPLETION_SECONDS
            )
        except HttpError as error:
            raise EngineSilent(str(error)) from error
        return status, body.decode(errors="replace")

    async def _fresh(self, series: frozenset[str]) -> Reading:
        if self._takes_names:
            # Rendering its whole page costs an engine several times as much.
            status, page = await self._get(_asked(series))
            if status == 200 and (found := reading(page)).loads:
                return found
        status, page = await self._get(_PAGE)
        if status != 200:
            raise EngineSilent(f"{_PAGE} answered {status}")
        found = reading(page)
        if found.loads and self._takes_names:
            self._takes_names = False
            log("metrics-whole", because="the engine does not answer names of series")
        return found

    async def _get(self, path: str) -> tuple[int, str]:
        try:
            status, body = await self._http.get(path, seconds=_SHORT_SECONDS)
        except HttpError as error:
            raise EngineSilent(str(error)) from error
        return status, body.decode(errors="replace")


@functools.cache
def _asked(series: frozenset[str]) -> str:
    """The path of a page of these series alone.

    Not the path without the slash: there another server answers first, which takes no names
    (vllm/entrypoints/serve/instrumentator/metrics.py, 0.18 to 0.32; prometheus_client/asgi.py).
    """
    return f"{_PAGE}/?" + urlencode([("name[]", name) for name in sorted(series)])


def _unverified() -> "SSLContext":
    """Not verified: this is our own child on loopback, and what it was given was checked the way
    a gateway will (`certificate`)."""
    # Imported here: without TLS there is no need of it.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
