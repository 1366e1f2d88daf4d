"""Everything kopf is told: start-up, clean-up and login.

No finalizer, daemon, timer, index, event or change handler (docs/decisions): kopf
hosts, the tasks of `operation` work. A handler of events would be a second watch of
every resource, and a pass more after each of our own writes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from speculative_operator.cluster.access import Access
from speculative_operator.leading import Leadership
from speculative_operator.operation import Operation


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """For what is imported inside, this package is not installed, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("kubernetes"):
    # kopf would load all of it, to know its objects when it sees them: half of our start.
    import kopf


async def host(
    operation: Operation, leadership: Leadership, access: Access, *, identity: str
) -> None:
    """Runs kopf until a signal ends it."""
    await kopf.operator(
        registry=registry_of(operation, leadership, access),
        # By itself it asks for the user's name, which a container need not have.
        identity=identity,  # type: ignore[arg-type]
        standalone=True,
        clusterwide=True,
    )


def registry_of(
    operation: Operation, leadership: Leadership, access: Access
) -> kopf.OperatorRegistry:
    """The handlers of one operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        await operation.start()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # First of all, so that a standby need not wait for the rest of our end.
        await leadership.resign()
        await operation.stop()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        # A session of kopf's own: it closes the session on a 401 and asks again.
        connector = aiohttp.TCPConnector(ssl=access.tls or True)
        session = aiohttp.ClientSession(connector=connector, middlewares=(_authorized(access),))
        return kopf.AiohttpSession(aiohttp_session=session, server=access.server)

    return registry


def _authorized(access: Access) -> aiohttp.ClientMiddlewareType:
    """Puts the present token into every request, since projected tokens rotate."""

    async def middleware(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        authorization = await access.authorization()
        if authorization:
            request.headers["Authorization"] = authorization
        return await handler(request)

    return middleware
