"""Hears at once that somebody asks a resource whose pods are released.

One question per gateway pod stays open, which its agent answers when a request
comes, or after a minute: no polling, and agents need no rights. Only released
resources have any; none of this is needed for correctness, since passes read
the same from `/state`, only later.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import aiohttp
from pydantic import ValidationError

from speculative_api.gateway import Activity
from speculative_api.labels import AGENT_PORT
from speculative_operator.snapshot import GatewayPod

Key = tuple[str, str]
"""Namespace and name of a resource."""

log = logging.getLogger(__name__)

LONGEST_SECONDS: Final = 75.0
"""An agent answers after 60 s at the latest."""
PAUSE_SECONDS: Final = 1.0
"""Between two answers that came at once."""
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Between attempts at an agent that does not answer."""
LARGEST_ANSWER: Final = 4096


@dataclass(frozen=True, slots=True)
class _Door:
    key: Key
    uid: str
    address: str
    shared: bool = False


class Doorbell:
    """Listens at the gateways of released resources; `wake` gets the key of one that is asked."""

    def __init__(
        self,
        wake: Callable[[Key], None],
        *,
        port: int = AGENT_PORT,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._wake = wake
        self._port = port
        self._pause_seconds = pause_seconds
        self._session: aiohttp.ClientSession | None = None
        self._listening: dict[Key, dict[_Door, asyncio.Task[None]]] = {}

    def listen(self, key: Key, gateways: Iterable[GatewayPod], *, shared: bool = False) -> None:
        """Listens at these and no others; none: the resource is not released.

        Args:
            shared: whether the gateway has other members, whose requests do not count.
        """
        wanted = {_Door(key, g.uid, g.address, shared): g for g in gateways if g.address}
        present = self._listening.get(key, {})
        for door in present.keys() - wanted.keys():
            present.pop(door).cancel()
        for door, gateway in wanted.items():
            if door not in present:
                present[door] = asyncio.get_running_loop().create_task(
                    self._at(door, _seen(gateway)), name=f"doorbell {door.address}"
                )
        if present:
            self._listening[key] = present
        else:
            self._listening.pop(key, None)

    async def close(self) -> None:
        """Ends every question."""
        tasks = [task for doors in self._listening.values() for task in doors.values()]
        self._listening.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _at(self, door: _Door, seen: float | None) -> None:
        pause = self._pause_seconds
        while True:
            try:
                heard = await self._heard(door, seen)
                pause = self._pause_seconds
            except (aiohttp.ClientError, TimeoutError, OSError, ValidationError) as error:
                why = type(error).__name__
                log.debug("event=no-doorbell address=%s why=%s", door.address, why)
                pause, heard = min(2 * pause, LONGEST_PAUSE_SECONDS), seen
            if heard != seen:
                seen = heard
                self._wake(door.key)
            await asyncio.sleep(pause)

    async def _heard(self, door: _Door, seen: float | None) -> float | None:
        """When somebody last asked; what was seen before, where nobody did."""
        if self._session is None:
            # As many as there are released resources; none of them does anything.
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=LONGEST_SECONDS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        host = f"[{door.address}]" if ":" in door.address else door.address
        url = f"http://{host}:{self._port}/wake"
        params = {"seen": "" if seen is None else repr(seen)}
        if door.shared:
            params["member"] = door.key[1]
        async with self._session.get(url, params=params, allow_redirects=False) as answer:
            if answer.status == 204:
                return seen
            answer.raise_for_status()
            text = b""
            async for chunk in answer.content.iter_chunked(LARGEST_ANSWER):
                text += chunk
                if len(text) > LARGEST_ANSWER:
                    raise aiohttp.ClientPayloadError(f"more than {LARGEST_ANSWER} bytes")
            return Activity.model_validate_json(text).requested_at


def _seen(gateway: GatewayPod) -> float | None:
    state = gateway.state
    return state.activity.requested_at if state is not None and state.activity else None
