"""An API server as seen through trouble: a proxy that misbehaves on demand.

For what the real server can't be made to do: watches that fall silent, 410, 429 and
503, slow answers, tokens that stop being good. Everything else passes through.
"""

import asyncio
import ssl
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web
from tests.cluster.envtest import TOKEN, Server

LONGEST_BODY = 8 * 2**20


class DisturbedApi:
    """`async with`; serves TLS on localhost by the test server's own authority."""

    def __init__(self, server: Server) -> None:
        self.tokens: set[str] = {"first"}
        """Those that are good; others get 401."""
        self.status = 0
        """Answer everything with this HTTP status; 0: let it pass."""
        self.delay_seconds = 0.0
        self.watches_expire_until = 0.0
        """Until then (monotonic) every new watch is told 410."""
        self.refused = 0
        """Requests that were not let through, by any of these."""
        self.port = 0
        self._deaf_since = 0.0
        self._server = server
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def authority(self) -> Path:
        return self._server.folder / "proxy-ca.crt"

    def silence_watches(self) -> None:
        """Those that are open never say anything any more, and do not end."""
        self._deaf_since = time.monotonic()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._server.access.tls or False)
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, auto_decompress=False)
        )
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        stem = self._server.folder / "served"
        tls.load_cert_chain(f"{stem}.crt", f"{stem}.key")
        application = web.Application(client_max_size=LONGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self._handle)
        # Else what is deaf for good outlives a client that gave up.
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "localhost", self.port, ssl_context=tls)
        await site.start()
        self.port = int(runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        status = self.status if token in self.tokens else 401
        if status:
            self.refused += 1
            return web.json_response({"message": "disturbed", "code": status}, status=status)
        await asyncio.sleep(self.delay_seconds)
        is_watch = "watch" in request.query
        if is_watch and time.monotonic() < self.watches_expire_until:
            self.refused += 1
            error = {"kind": "Status", "code": 410, "message": "too old resource version"}
            return web.json_response({"type": "ERROR", "object": error})
        try:
            return await self._forward(request, is_watch=is_watch)
        except (aiohttp.ClientError, ConnectionResetError):
            # Nobody there: a connection that breaks, as without a proxy.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    async def _forward(self, request: web.Request, *, is_watch: bool) -> web.StreamResponse:
        began = time.monotonic()
        headers = {
            name: request.headers[name]
            for name in ("Accept", "Content-Type", "Accept-Encoding")
            if name in request.headers
        } | {"Authorization": f"Bearer {TOKEN}"}
        async with self._session.request(
            request.method,
            self._server.url + request.path_qs,
            headers=headers,
            # None and not empty: a GET with a body has a type that the server refuses.
            data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            kept = ("Content-Type", "Content-Encoding")
            response = web.StreamResponse(
                status=answer.status,
                headers={name: answer.headers[name] for name in kept if name in answer.headers},
            )
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if is_watch and began < self._deaf_since:
                    # For good: only who gives up waiting hears anything again.
                    await asyncio.Event().wait()
                await response.write(chunk)
            await response.write_eof()
            return response
