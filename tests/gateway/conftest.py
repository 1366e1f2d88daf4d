"""Fixtures: a running gateway, and fake workers for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.backends import Backend, running
from tests.gateway.harness import Gateway


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Gateway]:
    """Supervisor, Envoy and agent on loopback, without a route yet."""
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        gateway = Gateway(tmp_path, session)
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()


@pytest.fixture
async def stable() -> AsyncIterator[Backend]:
    """A fake worker of stable."""
    async with running("stable") as backend:
        yield backend


@pytest.fixture
async def canary() -> AsyncIterator[Backend]:
    """A fake worker of the canary."""
    async with running("canary") as backend:
        yield backend
