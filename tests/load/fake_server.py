"""An OpenAI-like server on loopback whose next answers a test chooses."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeServer:
    """Answers `good` unless `script` says otherwise; see `_stream` for the words."""

    script: deque[str] = field(default_factory=deque)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    lanes: list[str | None] = field(default_factory=list)
    revision: str = "6f9d00aa11"
    usage: int = 6
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    active: int = 0
    most_active: int = 0
    url: str = ""

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "smollm2"}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self._chat(request)
        finally:
            self.active -= 1

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.lanes.append(request.headers.get("x-speculative-lane"))
        behaviour = self.script.popleft() if self.script else "good"
        headers = {"x-speculative-revision": self.revision}
        self.seen.set()
        if behaviour == "redirect":
            raise web.HTTPTemporaryRedirect("/v1/models")
        if behaviour.isdigit():
            return web.Response(status=int(behaviour), text="no", headers=headers)
        if not body["stream"]:
            return web.json_response(_whole(behaviour, self.usage), headers=headers)
        return await self._stream(request, behaviour, headers)

    async def _stream(
        self, request: web.Request, behaviour: str, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await response.prepare(request)
        await _send(response, _piece("Hel"))
        if behaviour == "hang":
            await self.release.wait()
        if behaviour == "garbage":
            await response.write(b"data: {not json\n\n")
        if behaviour == "error":
            await _send(response, {"error": {"message": "engine died"}})
        if behaviour == "reset":
            assert request.transport is not None
            request.transport.abort()
            return response
        await _send(response, _piece("lo"))
        if behaviour != "no finish":
            await _send(response, _piece("", finish="length"))
        if behaviour != "no usage":
            usage = {"choices": [], "usage": {"completion_tokens": self.usage}}
            await _send(response, usage)
        if behaviour != "no done":
            await response.write(b"data: [DONE]\n\n")
        return response


def _piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


def _whole(behaviour: str, usage: int) -> dict[str, Any]:
    finish = None if behaviour == "no finish" else "length"
    choice = {"message": {"content": "Hello"}, "finish_reason": finish}
    return {"choices": [choice], "usage": {"completion_tokens": usage}}


async def _send(response: web.StreamResponse, data: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(data)}\n\n".encode())


@asynccontextmanager
async def serving() -> AsyncIterator[FakeServer]:
    server = FakeServer()
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.chat)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        server.release.set()
        await runner.cleanup()
