"""Asks workers for their digest and gateway agents for their state, over HTTP.

Answers are hostile until parsed: at most 64 KiB, in a time limit, by pydantic.
A failure is never an exception for the pass: no answer is simply an old answer.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
from pydantic import ValidationError

from speculative_api.gateway import GatewayState
from speculative_api.labels import AGENT_PORT, WORKER_PORT
from speculative_api.worker import Digest
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.source import Target

log = logging.getLogger(__name__)

LARGEST_ANSWER: Final = 64 * 1024
"""Bytes; a state with 32 revisions has about 6 KiB."""
SHORTEST_INTERVAL: Final = 0.3
"""Seconds between two questions to the same pod, however many passes ask."""
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


class Scraper:
    """The `Source` of production; `async with` closes its connections."""

    def __init__(
        self,
        *,
        timeout_seconds: float = 2.0,
        worker_port: int = WORKER_PORT,
        agent_port: int = AGENT_PORT,
        on_failure: Callable[[str], None] = lambda role: None,
    ) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._places = {
            "worker": (worker_port, "/digest"),
            "gateway": (agent_port, "/state"),
        }
        self._on_failure = on_failure
        self._memory: dict[str, _Memory] = {}
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
            if now - memory.asked >= SHORTEST_INTERVAL:
                memory.asked = now
                due.append(self._ask_one(target, memory))
        await asyncio.gather(*due)
        for uid in [u for u, m in self._memory.items() if now - m.asked > FORGOTTEN_AFTER]:
            del self._memory[uid]

    async def _ask_one(self, target: Target, memory: _Memory) -> None:
        port, path = self._places[target.role]
        host = f"[{target.address}]" if ":" in target.address else target.address
        try:
            text = await self._text(f"http://{host}:{port}{path}")
            if target.role == "worker":
                memory.digest = Digest.model_validate_json(text)
            else:
                memory.state = GatewayState.model_validate_json(text)
        except (aiohttp.ClientError, TimeoutError, OSError, NotReadable, ValidationError) as error:
            self._on_failure(target.role)
            why = type(error).__name__
            log.debug("event=no-answer role=%s address=%s why=%s", target.role, host, why)
            return
        memory.answered = asyncio.get_running_loop().time()

    async def _text(self, url: str) -> bytes:
        if self._session is None:
            raise NotReadable("the scraper is not open")
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise NotReadable(f"{url}: {response.status}")
            found = b""
            async for chunk in response.content.iter_chunked(8192):
                found += chunk
                if len(found) > LARGEST_ANSWER:
                    raise NotReadable(f"{url}: more than {LARGEST_ANSWER} bytes")
            return found

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
