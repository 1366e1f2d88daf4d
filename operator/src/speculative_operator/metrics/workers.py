"""Asks workers for their digest and gateway agents for their state, over HTTP.

A pod where nobody serves a digest is asked for its engine's own metrics.
Answers are hostile until parsed: bounded, in a time limit, by pydantic.
A failure is never an exception for the pass: no answer is simply an old answer.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self

import aiohttp
from pydantic import ValidationError

from speculative_api.gateway import GatewayState
from speculative_api.labels import AGENT_PORT, ENGINE_PORT, WORKER_PORT
from speculative_api.worker import Digest
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.plain import LARGEST_PAGE, digest_of
from speculative_operator.metrics.source import Target

log = logging.getLogger(__name__)

LARGEST_ANSWER: Final = 64 * 1024
"""Bytes; a state with 32 revisions has about 6 KiB."""
SHORTEST_INTERVAL: Final = {"worker": 0.3, "gateway": 0.02}
"""Seconds between two questions to the same pod, however many passes ask. A gateway's agent keeps
its answer by itself, and is waited for when a revision is taken out."""
DIGEST_AGE: Final = 60.0
"""Seconds after which a worker's last answer no longer counts."""
FORGOTTEN_AFTER: Final = 600.0
"""Seconds after which a pod that nobody asked about is forgotten."""
AT_ONCE: Final = 64
"""Connections open at the same time."""


@dataclass(slots=True)
class _Memory:
    first_asked: float
    asked: float
    answered: float | None = None
    digest: Digest | None = None
    state: GatewayState | None = None
    served_by: Literal["worker", "engine"] | None = None
    """Who answers for a worker pod. It stays so: the two name different start times, so that a
    change in between would look like a restart."""


class _NobodyThere(NotReadable):
    """Nothing serves what was asked for: the port is closed, or the path unknown."""


class Scraper:
    """The `Source` of production; `async with` closes its connections."""

    def __init__(
        self,
        *,
        timeout_seconds: float = 2.0,
        worker_port: int = WORKER_PORT,
        agent_port: int = AGENT_PORT,
        engine_port: int = ENGINE_PORT,
        on_failure: Callable[[str], None] = lambda role: None,
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._worker_port, self._agent_port = worker_port, agent_port
        self._engine_port = engine_port
        self._on_failure = on_failure
        self._memory: dict[str, _Memory] = {}
        self._swept = float("-inf")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=AT_ONCE)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, targets: Iterable[Target]) -> None:
        """Asks all of them at once; a pod that does not answer keeps its last answer."""
        now = asyncio.get_running_loop().time()
        due = []
        for target in targets:
            memory = self._memory.setdefault(target.uid, _Memory(now, float("-inf")))
            if now - memory.asked >= SHORTEST_INTERVAL[target.role]:
                memory.asked = now
                due.append(self._ask_one(target, memory))
        await asyncio.gather(*due)
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Looks for pods that nobody asks any more, a few times until they are due and no more."""
        if now - self._swept < FORGOTTEN_AFTER / 10:
            return
        self._swept = now
        for uid in [u for u, m in self._memory.items() if now - m.asked > FORGOTTEN_AFTER]:
            del self._memory[uid]

    async def _ask_one(self, target: Target, memory: _Memory) -> None:
        host = f"[{target.address}]" if ":" in target.address else target.address
        try:
            if target.role == "worker":
                memory.digest = await self._digest(host, target, memory)
            else:
                asked = f"?member={target.member}" if target.member else ""
                text = await self._text(f"http://{host}:{self._agent_port}/state{asked}")
                memory.state = GatewayState.model_validate_json(text)
        except (aiohttp.ClientError, TimeoutError, OSError, NotReadable, ValidationError) as error:
            self._on_failure(target.role)
            why = type(error).__name__
            log.debug("event=no-answer role=%s address=%s why=%s", target.role, host, why)
            return
        memory.answered = asyncio.get_running_loop().time()

    async def _digest(self, host: str, target: Target, memory: _Memory) -> Digest:
        """The worker's digest; where nobody serves one, that of the engine's own metrics."""
        if memory.served_by != "engine":
            try:
                text = await self._text(f"http://{host}:{self._worker_port}/digest")
                digest = Digest.model_validate_json(text)
            except _NobodyThere:
                if memory.served_by == "worker":
                    raise
            else:
                memory.served_by = "worker"
                return digest
        memory.served_by = None
        url = f"http://{host}:{self._engine_port}/metrics"
        digest = digest_of(await self._text(url, largest=LARGEST_PAGE), target, at=time.time())
        memory.served_by = "engine"
        return digest

    async def _text(self, url: str, *, largest: int = LARGEST_ANSWER) -> bytes:
        if self._session is None:
            raise NotReadable("the scraper is not open")
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status == 404:
                    raise _NobodyThere(url)
                if response.status != 200:
                    raise NotReadable(f"{url}: {response.status}")
                found = b""
                async for chunk in response.content.iter_chunked(8192):
                    found += chunk
                    if len(found) > largest:
                        raise NotReadable(f"{url}: more than {largest} bytes")
                return found
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, ConnectionRefusedError):
                raise _NobodyThere(url) from error
            raise

    def digest(self, uid: str) -> Digest | None:
        """The worker's last answer, if it is not too old to mean anything."""
        memory = self._memory.get(uid)
        return memory.digest if memory and self.silent_seconds(uid) < DIGEST_AGE else None

    def state(self, uid: str) -> GatewayState | None:
        """The gateway agent's last answer, whatever its age."""
        memory = self._memory.get(uid)
        return memory.state if memory else None

    def silent_seconds(self, uid: str) -> float:
        """Since the last answer, or since the pod was first asked; 0 for an unknown pod."""
        memory = self._memory.get(uid)
        if memory is None:
            return 0.0
        since = memory.first_asked if memory.answered is None else memory.answered
        return asyncio.get_running_loop().time() - since
