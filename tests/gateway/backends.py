"""Fake workers for the gateway's tests: an engine that streams on command, and its probe.

A stream sends its first event at once and each further one when the test
releases it, so that tests wait for conditions and never for time.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

EVENTS = 3
"""Events of one stream, the final [DONE] not counted."""


@dataclass
class Backend:
    """One fake worker; `port` answers the API and the probe."""

    name: str
    port: int = 0
    probe_port: int = 0
    """Where the probe is answered too, in plain HTTP; 0: on `port` only."""
    requests: int = 0
    """Generations that began, whatever became of them."""
    begun: int = 0
    """Requests to other paths whose header has come."""
    open_streams: int = 0
    ready: bool = True
    status: int = 200
    """Of plain answers."""
    fails_formats: int = 0
    """Of so many requests for a format one is answered 500; 0: none."""
    formats: int = 0
    """Requests for a format."""
    reset_requests: bool = False
    """Reset the connection as soon as a request was read."""
    reset_streams: bool = False
    """Reset the connection when a held stream is released."""
    usage: dict[str, object] | None = None
    """What answers say they took; streams say it in an event of its own."""
    lane_seen: list[str] = field(default_factory=list)
    headers_seen: list[dict[str, str]] = field(default_factory=list)
    """Of every generation, names in lower case."""
    kill: Callable[[], None] = lambda: None
    """Takes it away at once: no listener, every connection reset."""
    events: int = EVENTS
    speaks_openai: bool = False
    """Answer as the API's own clients want it."""
    _steps: asyncio.Semaphore | None = None
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _answering: asyncio.Event = field(default_factory=asyncio.Event)

    def step_by_step(self, events: int) -> None:
        """From now on streams have so many events and wait for `step` before each further one."""
        self.events, self._steps = events, asyncio.Semaphore(0)

    def step(self) -> None:
        """Lets a stream go on by one event."""
        assert self._steps is not None
        self._steps.release()

    def hold(self) -> None:
        """From now on streams stop after their first event."""
        self._released.clear()

    def hold_headers(self) -> None:
        """From now on requests wait for any answer at all."""
        self._answering.clear()

    def release(self) -> None:
        """Lets every held stream and request go on to its end."""
        self._released.set()
        self._answering.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/chat/completions`, streamed if the body says so."""
        body = await request.json()
        self.requests += 1
        self.headers_seen.append({k.lower(): v for k, v in request.headers.items()})
        self.lane_seen.append(request.headers.get("x-speculative-lane", ""))
        if "json" in str(body.get("response_format")):
            self.formats += 1
            if self.fails_formats and self.formats % self.fails_formats == 0:
                return web.json_response({"error": "grammar"}, status=500)
        await self._answering.wait()
        if self.reset_requests:
            _reset(request)
            raise ConnectionResetError
        if not body.get("stream"):
            said = {"backend": self.name} | ({"usage": self.usage} if self.usage else {})
            body = said | self._choice("message", self.name)
            return web.json_response(body, status=self.status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self.open_streams += 1
        try:
            for number in range(self.events):
                if number:
                    await (self._steps.acquire() if self._steps else self._released.wait())
                    if self.reset_streams:
                        _reset(request)
                        raise ConnectionResetError
                said = {"backend": self.name, "event": number}
                event = json.dumps(said | self._choice("delta", str(number)))
                await response.write(f"data: {event}\n\n".encode())
            if self.usage:
                last = json.dumps({"choices": [], "usage": self.usage})
                await response.write(f"data: {last}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        finally:
            self.open_streams -= 1
        return response

    async def other(self, request: web.Request) -> web.Response:
        """Any other path under `/v1/`: says what arrived."""
        self.begun += 1
        body = (await request.read()).decode()
        self.requests += 1
        arrived = {"method": request.method, "path": request.path_qs, "body": body}
        return web.json_response({"backend": self.name, **arrived})

    def _choice(self, name: str, content: str) -> dict[str, object]:
        """What the API's own clients look for."""
        if not self.speaks_openai:
            return {}
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, name: message, "finish_reason": None}
        kind = "chat.completion.chunk" if name == "delta" else "chat.completion"
        return {"id": "x", "object": kind, "created": 0, "model": "m", "choices": [choice]}

    async def probe(self, request: web.Request) -> web.Response:
        """`GET /readyz`."""
        return web.Response(status=200 if self.ready else 503)


def _reset(request: web.Request) -> None:
    assert request.transport is not None
    connection: socket.socket = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()


@asynccontextmanager
async def running(name: str, *, encryption: ssl.SSLContext | None = None) -> AsyncIterator[Backend]:
    """A fake worker on a free port of 127.0.0.1; streams are not held at first.

    With `encryption` that port speaks TLS, and another one answers the probe.
    """
    backend = Backend(name)
    backend.release()
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/v1/chat/completions", backend.answer)
    application.router.add_route("*", "/v1/{path:.*}", backend.other)
    application.router.add_get("/readyz", backend.probe)
    # As an engine does: a client that leaves ends its generation.
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=encryption)
    await site.start()
    backend.port = runner.addresses[0][1]
    if encryption is not None:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        backend.probe_port = runner.addresses[1][1]

    def kill() -> None:
        assert site._server is not None
        assert runner.server is not None
        site._server.close()
        for connection in list(runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    backend.kill = kill
    try:
        yield backend
    finally:
        backend.release()
        await runner.cleanup()
