"""The operator's own HTTP endpoints: /livez, /readyz, /metrics.

Outside kopf, whose probe endpoint exists only while kopf runs, so that a
standby answers too (docs/decisions).
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from speculative_operator.telemetry import Telemetry

Question = Callable[[], str]
"""What is wrong, in a few words; empty when nothing is."""


@asynccontextmanager
async def serving(
    *, port: int, telemetry: Telemetry, alive: Question, ready: Question
) -> AsyncIterator[None]:
    """Serves on all addresses until the block ends."""

    def answer(question: Question) -> web.Response:
        wrong = question()
        return web.Response(text=wrong or "ok", status=503 if wrong else 200)

    async def livez(_: web.Request) -> web.Response:
        return answer(alive)

    async def readyz(_: web.Request) -> web.Response:
        return answer(ready)

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=telemetry.exposition(), headers=headers)

    application = web.Application()
    application.router.add_get("/livez", livez)
    application.router.add_get("/readyz", readyz)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
