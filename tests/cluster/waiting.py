"""Waiting for a condition, with a limit: tests never sleep for a fixed time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, seconds: float = 5.0) -> None:
    """Returns when the condition holds; AssertionError after the limit."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + seconds
    while not condition():
        assert loop.time() < limit, "the condition did not hold in time"
        await asyncio.sleep(0.005)
