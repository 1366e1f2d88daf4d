"""Everything kopf is told: start-up, clean-up, login, and a wake-up on parents' events.

No finalizer, daemon, timer, index or change handler (docs/decisions): kopf
hosts, the tasks of `operation` work. The registry is made here, so importing
this module changes nothing.
"""

from typing import Any

import aiohttp
import kopf

from speculative_api.labels import GROUP, PLURAL, VERSION
from speculative_operator.cluster.access import Access
from speculative_operator.leading import Leadership
from speculative_operator.operation import Operation

SERVER_SECONDS = 300
"""kopf's watches end after this, so that none can go quiet for ever (kopf#585)."""


def registry_of(
    operation: Operation, leadership: Leadership, access: Access
) -> kopf.OperatorRegistry:
    """The handlers of one operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.watching.server_timeout = SERVER_SECONDS
        settings.watching.client_timeout = SERVER_SECONDS + 30
        settings.watching.connect_timeout = 15
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

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def wake(namespace: str | None, name: str | None, **_: Any) -> None:
        if namespace and name:
            operation.wake((namespace, name))

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
