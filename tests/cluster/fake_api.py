"""A scripted API server: lists what it is given and can misbehave on watches and writes.

Only what a real server can't be made to do on demand: silent watches, cut
streams, 410, 503. Everything else is tested against a real one.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from speculative_operator.cluster.access import Access
from speculative_operator.cluster.client import Client

JSON = dict[str, Any]


class FakeApi:
    """Objects by path, watches as queues of events; `mode` decides how a watch behaves."""

    def __init__(self) -> None:
        self.objects: dict[str, JSON] = {}
        self.version = 1
        self.mode = "live"
        """live, silent (accepts one and says nothing), mute (all of them), gone (410 event), ends
        (closes at once), forbidden."""
        self.refuse = 0
        """Answer the next so many requests with 503; -1: all."""
        self.hang = False
        self.page = b""
        """What every question is answered with, and 200: a proxy's page, or half of an answer."""
        self.requests: list[tuple[str, str]] = []
        self._history: list[JSON] = []
        """Every event, for watches that begin before it."""
        self._watchers: set[asyncio.Queue[JSON | None]] = set()
        self.url = ""

    def put(self, path: str, thing: JSON, *, announce: bool = True) -> JSON:
        """Creates or changes an object, as somebody else would."""
        self.version += 1
        kind = "MODIFIED" if path in self.objects else "ADDED"
        uid = self.objects.get(path, {}).get("metadata", {}).get("uid", f"uid-{self.version}")
        stored = json.loads(json.dumps(thing))
        stored["metadata"] |= {"resourceVersion": str(self.version)}
        stored["metadata"].setdefault("uid", uid)
        self.objects[path] = stored
        self._history.append({"type": kind, "object": stored})
        if announce:
            self.announce(kind, stored)
        return stored

    def remove(self, path: str, *, announce: bool = True) -> None:
        """Deletes an object, as somebody else would."""
        self.version += 1
        # What was told of it stays as it was told.
        gone = json.loads(json.dumps(self.objects.pop(path)))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._history.append({"type": "DELETED", "object": gone})
        if announce:
            self.announce("DELETED", gone)

    def announce(self, kind: str, thing: JSON) -> None:
        """Sends an event on every open watch."""
        for queue in self._watchers:
            queue.put_nowait({"type": kind, "object": thing})

    def cut(self) -> None:
        """Breaks every open watch without an end."""
        for queue in self._watchers:
            queue.put_nowait(None)

    @property
    def watching(self) -> int:
        """Open watches."""
        return len(self._watchers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        if self.hang:
            await asyncio.Event().wait()
        if self.refuse:
            self.refuse -= 1 if self.refuse > 0 else 0
            return web.json_response({"message": "not now", "code": 503}, status=503)
        if self.page:
            return web.Response(body=self.page + b"\n")
        if request.query.get("watch"):
            return await self._watch(request)
        path = request.path
        if request.method == "GET":
            return self._get(path)
        if request.method == "DELETE":
            self.remove(path)
            return web.json_response({})
        return self._write(request.method, path, await request.json())

    def _get(self, path: str) -> web.Response:
        if path in self.objects:
            return web.json_response(self.objects[path])
        if path.rsplit("/", 1)[-1] not in ("speculativedeployments", "configmaps", "leases"):
            return web.json_response({"message": "not found"}, status=404)
        items = [thing for at, thing in self.objects.items() if at.startswith(path + "/")]
        if not items and "/namespaces/" not in path:
            plural = path.rsplit("/", 1)[-1]
            items = [t for at, t in self.objects.items() if f"/{plural}/" in at]
        metadata = {"resourceVersion": str(self.version)}
        return web.json_response({"metadata": metadata, "items": items})

    def _write(self, method: str, path: str, body: JSON) -> web.Response:
        at = path if method != "POST" else f"{path}/{body['metadata']['name']}"
        known = self.objects.get(at)
        if method == "POST" and known is not None:
            return web.json_response({"message": "exists"}, status=409)
        asked = body["metadata"].get("resourceVersion")
        if known is not None and asked and asked != known["metadata"]["resourceVersion"]:
            return web.json_response({"message": "changed"}, status=409)
        return web.json_response(self.put(at, body), status=201 if known is None else 200)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if self.mode == "forbidden":
            return web.json_response({"message": "may not watch", "code": 403}, status=403)
        response = web.StreamResponse()
        await response.prepare(request)
        if self.mode == "ends":
            return response
        if self.mode == "gone":
            self.mode = "live"
            event = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
            await response.write(json.dumps(event).encode() + b"\n")
            return response
        queue: asyncio.Queue[JSON | None] = asyncio.Queue()
        if self.mode in ("silent", "mute"):
            self.mode = "live" if self.mode == "silent" else "mute"
            await asyncio.Event().wait()
        for event in self._history:
            if int(event["object"]["metadata"]["resourceVersion"]) > int(
                request.query["resourceVersion"]
            ):
                queue.put_nowait(event)
        self._watchers.add(queue)
        try:
            while (event_ := await queue.get()) is not None:
                await response.write(json.dumps(event_).encode() + b"\n")
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._watchers.discard(queue)
        return response


@asynccontextmanager
async def a_fake_api() -> AsyncIterator[FakeApi]:
    """A running fake on a free loopback port."""
    fake = FakeApi()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_client(fake: FakeApi, **settings: Any) -> AsyncIterator[Client]:
    """A client of the fake."""
    async with Client(Access(fake.url), **settings) as client:
        yield client
