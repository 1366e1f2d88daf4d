"""What the worker asks its own engine over HTTP: health, metrics, warm-up requests."""

import asyncio
import json
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from speculative_api.engine_metrics import Reading, reading
from speculative_worker.http_client import HttpClient, HttpError

if TYPE_CHECKING:
    from ssl import SSLContext

_SHORT_SECONDS: Final = 5.0
_COMPLETION_SECONDS: Final = 600.0
_CACHE_SECONDS: Final = 1.0


class EngineSilent(Exception):
    """The engine did not answer, or not with what was asked for."""


class EngineClient:
    """Asks one engine; use as a context manager."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        encryption = _unverified() if where.scheme == "https" else None
        self._http = HttpClient(where.hostname or "", where.port or 0, encryption=encryption)
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")
        self._sampled_at = 0.0
        self._reading: Reading | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()

    async def is_healthy(self) -> bool:
        """Whether `/health` answers 200."""
        try:
            status, _ = await self._http.get("/health", seconds=_SHORT_SECONDS)
        except HttpError:
            return False
        return status == 200

    async def sample(self) -> tuple[Reading, float]:
        """The engine's metrics and the Unix time they were read at, at most 1 s old.

        Raises `EngineSilent`.
        """
        async with self._lock:
            if self._reading is None or time.monotonic() - self._read_at > _CACHE_SECONDS:
                self._reading = await self._fresh()
                self._read_at = time.monotonic()
                self._sampled_at = time.time()
            return self._reading, self._sampled_at

    async def fresh_sample(self) -> Reading:
        """The engine's metrics now. Raises `EngineSilent`."""
        return await self._fresh()

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

    async def _fresh(self) -> Reading:
        try:
            status, body = await self._http.get("/metrics", seconds=_SHORT_SECONDS)
        except HttpError as error:
            raise EngineSilent(str(error)) from error
        if status != 200:
            raise EngineSilent(f"/metrics answered {status}")
        return reading(body.decode(errors="replace"))


def _unverified() -> "SSLContext":
    """Not verified: this is our own child on loopback, and what it was given was checked the way
    a gateway will (`certificate`)."""
    # Imported here: without TLS there is no need of it.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
