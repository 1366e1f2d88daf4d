"""Lets a stopping worker's streams end by themselves.

In order: not ready at once; go on accepting while endpoints follow; then wait
until the engine has neither running nor waiting requests, or the drain time
is over. The caller ends the engine.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.log import log

_LOOK_SECONDS: Final = 0.5
_IDLE_LOOKS: Final = 2
"""Idle twice in a row: a request can be between the HTTP server and the engine's queue."""


async def drain(
    client: EngineClient,
    *,
    follow_seconds: float,
    drain_seconds: float,
    is_hopeless: Callable[[], bool],
) -> bool:
    """Waits for the engine to be idle; true when it was.

    `is_hopeless` ends the wait early: a stalled engine finishes nothing.
    """
    await asyncio.sleep(follow_seconds)
    log("drain-waiting", drain_seconds=drain_seconds)
    deadline = time.monotonic() + drain_seconds
    idle_looks = 0
    while not is_hopeless():
        idle_looks = idle_looks + 1 if await _is_idle(client) else 0
        if idle_looks >= _IDLE_LOOKS:
            return True
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
    return False


async def _is_idle(client: EngineClient) -> bool:
    try:
        reading = await client.fresh_sample()
    except EngineSilent:
        return False
    return (reading.running or 0) + (reading.waiting or 0) == 0 and reading.running is not None
