"""Lets a stopping worker's streams end by themselves.

The caller has made the worker not ready. In order: go on accepting while
endpoints follow; then wait until the engine has neither running nor waiting
requests, or the drain time is over. The caller ends the engine.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from speculative_worker.log import log

LOOK_SECONDS: Final = 0.5
_IDLE_LOOKS: Final = 2
"""Idle twice in a row: a request can be between the HTTP server and the engine's queue."""


async def drain(
    open_requests: Callable[[], Awaitable[int | None]],
    *,
    follow_seconds: float,
    drain_seconds: float,
    is_hopeless: Callable[[], bool],
    look_seconds: float = LOOK_SECONDS,
) -> bool:
    """Waits for the engine to be idle; true when it was.

    `open_requests` is None while the engine does not say, which is not idle.
    `is_hopeless` ends the wait early: a stalled engine finishes nothing.
    """
    await asyncio.sleep(follow_seconds)
    log("drain-waiting", drain_seconds=drain_seconds)
    deadline = time.monotonic() + drain_seconds
    idle_looks = 0
    while not is_hopeless():
        idle_looks = idle_looks + 1 if await open_requests() == 0 else 0
        if idle_looks >= _IDLE_LOOKS:
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(look_seconds)
    return False
