"""What the worker asks its own engine over HTTP: health, metrics, warm-up requests."""

import asyncio
import time
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from speculative_api.engine_metrics import Reading, reading

_SHORT = aiohttp.ClientTimeout(total=5)
_WARMUP = aiohttp.ClientTimeout(total=None, sock_read=600)
_CACHE_SECONDS: Final = 1.0
_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class EngineSilent(Exception):
    """The engine did not answer, or not with what was asked for."""


class EngineClient:
    """One connection pool to the engine; use as a context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Not verified: this is our own child on loopback, and what it was given was checked
        # the way a gateway will (`certificate`).
        connector = aiohttp.TCPConnector(ssl=False)
        self._session = aiohttp.ClientSession(timeout=_SHORT, connector=connector)
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
        await self._session.close()

    async def is_healthy(self) -> bool:
        """Whether `/health` answers 200."""
        try:
            async with self._session.get(f"{self._url}/health") as answer:
                return answer.status == 200
        except _ERRORS:
            return False

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
        try:
            async with self._session.post(
                f"{self._url}/v1/completions", json=request, timeout=_WARMUP
            ) as answer:
                return answer.status, await answer.text()
        except _ERRORS as error:
            raise EngineSilent(f"{type(error).__name__}: {error}") from error

    async def _fresh(self) -> Reading:
        try:
            async with self._session.get(f"{self._url}/metrics") as answer:
                if answer.status != 200:
                    raise EngineSilent(f"/metrics answered {answer.status}")
                return reading(await answer.text())
        except _ERRORS as error:
            raise EngineSilent(f"{type(error).__name__}: {error}") from error
