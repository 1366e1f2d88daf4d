"""Fixtures: running gateways, and fake workers for them.

Async tests of this folder share one event loop per module, so that a module
can share one gateway: starting three processes is what takes the time.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.gateway.backends import Backend, running
from tests.gateway.harness import Gateway, a_gateway, eventually


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One gateway for a whole module; use it through `proxy`."""
    async with a_gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(shared: Gateway) -> Gateway:
    """The module's gateway with an empty route; counters go on from the last test."""
    shared.endpoints()
    await shared.route()
    await shared.until(lambda state: not state.clusters, "clusters of the last test gone")
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """A gateway of the test's own, which it may break; Envoy answers, no route was seen."""
    async with a_gateway(tmp_path_factory.mktemp("gateway")) as found:
        await eventually(found.answer, lambda seen: seen[0] == 503, "Envoy answers")
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def stable() -> AsyncIterator[Backend]:
    """A fake worker of stable."""
    async with running("stable") as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="module")
async def canary() -> AsyncIterator[Backend]:
    """A fake worker of the canary."""
    async with running("canary") as backend:
        yield backend
