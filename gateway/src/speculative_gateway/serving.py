"""The agent's HTTP: /state, /wake, /readyz, /livez and /metrics; all read only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from speculative_api import gateway

from .errors import EnvoyUnreachable
from .settings import Settings


class Reported(Protocol):
    """What is served; the agent."""

    @property
    def ready(self) -> bool:
        """A route is in use."""

    @property
    def alive(self) -> bool:
        """The loop turns."""

    async def woken(self, request: web.Request) -> web.Response:
        """Answers when somebody asks something of a worker."""

    async def state(self, member: str) -> gateway.GatewayState:
        """What Envoy uses, for one member of a shared gateway if one is named.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """

    async def metrics(self) -> str:
        """The same for Prometheus.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """


def application(reported: Reported) -> web.Application:
    """The five paths."""

    async def state(request: web.Request) -> web.Response:
        try:
            found = await reported.state(request.query.get("member", ""))
        except EnvoyUnreachable as error:
            return web.json_response({"error": str(error)}, status=503)
        return web.json_response(text=found.model_dump_json(by_alias=True))

    async def scrape(request: web.Request) -> web.Response:
        try:
            text = await reported.metrics()
        except EnvoyUnreachable as error:
            return web.Response(text=f"{error}\n", status=503)
        return web.Response(text=text, headers={"content-type": "text/plain; version=0.0.4"})

    async def readyz(request: web.Request) -> web.Response:
        return _verdict(reported.ready, "no route is in use yet, or the pod is stopping")

    async def livez(request: web.Request) -> web.Response:
        return _verdict(reported.alive, "the loop stands still")

    served = web.Application()
    served.router.add_get("/state", state)
    served.router.add_get("/wake", reported.woken)
    served.router.add_get("/metrics", scrape)
    served.router.add_get("/readyz", readyz)
    served.router.add_get("/livez", livez)
    return served


def _verdict(good: bool, otherwise: str) -> web.Response:
    return web.Response(text="ok\n" if good else f"{otherwise}\n", status=200 if good else 503)


@asynccontextmanager
async def serving(reported: Reported, settings: Settings) -> AsyncIterator[None]:
    """Serves while the block runs.

    Raises:
        OSError: the port is taken.
    """
    runner = web.AppRunner(application(reported), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.listen_address, settings.agent_port).start()
        yield
    finally:
        await runner.cleanup()
