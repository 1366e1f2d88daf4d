"""The agent's end of requests that find no worker: it remembers, holds, or answers 503.

Envoy sends them here over loopback (`waiting`). No body is read: Envoy keeps it
and sends it again to a worker. `Holding` also knows when somebody last asked
something at all, which `/state` tells and `/wake` waits for. At a shared gateway
each member has one of its own, so that who asks one resource wakes no other.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from speculative_api import gateway, labels

from .admin import Host
from .errors import EnvoyUnreachable
from .fallback import ways
from .settings import Settings

_log = logging.getLogger("speculative_gateway.holding")

LOOK_SECONDS = 0.2
"""Between looks at Envoy's endpoints while requests wait."""
MOST_HELD = 100
"""Requests held at once in a pod: Envoy keeps up to a MiB of each. More are answered 503."""
MOST_LISTENERS = 16
"""Questions on `/wake` open at once; there are one or two operators."""
LONGEST_WAKE_SECONDS = 60.0
SOONEST_RETRY_SECONDS = 5
"""Told when pods take longer than the last time."""

Hosts = Mapping[str, tuple[Host, ...]]
Clusters = tuple[gateway.ClusterState, ...]


class _Pod:
    """What the requests of all resources have together: Envoy's endpoints, and room."""

    def __init__(self, hosts: Callable[[], Awaitable[Hosts]]) -> None:
        self._hosts = hosts
        self._looked: tuple[float, Hosts] = (float("-inf"), {})
        self._looking = asyncio.Lock()
        self.held = 0

    async def seen(self) -> Hosts:
        """Envoy's endpoints, read once for all that wait."""
        async with self._looking:
            if time.monotonic() - self._looked[0] >= LOOK_SECONDS:
                with suppress(EnvoyUnreachable):
                    self._looked = (time.monotonic(), await self._hosts())
            return self._looked[1]


class Holding:
    """Requests without a worker, of one resource."""

    def __init__(self, pod: _Pod) -> None:
        self._pod = pod
        self._since = time.time()
        self._requested_at: float | None = None
        self._route: gateway.Route | None = None
        self._waking_since: float | None = None
        """Monotonic: the first request of this wake."""
        self._counted: tuple[float, int] | None = None
        """Start of an Envoy's life, and answers in it when last looked."""
        self._came = asyncio.Event()
        self._listeners = 0

    def follow(self, route: gateway.Route | None) -> None:
        """Takes the route in use."""
        self._route = route

    def serves(self, revision: str) -> bool:
        """Whether requests for this revision are this resource's."""
        return self._route is not None and revision in ways(self._route)

    def note(self, started_at: float, clusters: Clusters) -> None:
        """Takes a reading: answers since the last one, or requests in flight, are activity."""
        count = sum(sum(each.responses.values()) + each.shed for each in clusters)
        before, self._counted = self._counted, (started_at, count)
        new = before is not None and before[0] == started_at and before[1] != count
        if new or any(each.active for each in clusters):
            self._requested()
        if any(each.endpoints for each in clusters):
            self._waking_since = None

    @property
    def activity(self) -> gateway.Activity:
        """When somebody last asked something."""
        return gateway.Activity(since=self._since, requested_at=self._requested_at)

    def _requested(self) -> None:
        self._requested_at = time.time()
        came, self._came = self._came, asyncio.Event()
        came.set()

    async def woken(self, request: web.Request) -> web.Response:
        """`GET /wake?seen=…`: the activity, as soon as it is newer than what the asker has seen;
        204 after a while. So a wake needs no polling.
        """
        if self._listeners >= MOST_LISTENERS:
            return web.Response(status=429, text="too many wait for a wake\n")
        seen = request.query.get("seen", "")
        self._listeners += 1
        try:
            async with asyncio.timeout(LONGEST_WAKE_SECONDS):
                while seen == _text(self._requested_at):
                    await self._came.wait()
        except TimeoutError:
            return web.Response(status=204)
        finally:
            self._listeners -= 1
        return web.json_response(text=self.activity.model_dump_json(by_alias=True))

    async def taken(self, request: web.Request) -> web.Response:
        """One request without a worker."""
        self._requested()
        now = time.monotonic()
        if self._waking_since is None:
            self._waking_since = now
            _log.info("a request found no worker")
        wanted = self._route.waiting if self._route is not None else None
        revision = request.headers.get(labels.REVISION_HEADER, "")
        if wanted is not None and wanted.hold_seconds and self._pod.held < MOST_HELD:
            self._pod.held += 1
            try:
                if await self._worker_comes(revision, now + wanted.hold_seconds):
                    # To a client only where the body was too long for Envoy to keep.
                    return _refused(1, {labels.WORKER_THERE_HEADER: "1"})
            finally:
                self._pod.held -= 1
        return self._refusal(wanted or gateway.Waiting())

    async def _worker_comes(self, revision: str, deadline: float) -> bool:
        """Waits until Envoy would send this revision's requests to a worker."""
        while time.monotonic() < deadline:
            clusters = ways(self._route).get(revision, ()) if self._route is not None else ()
            hosts = await self._pod.seen()
            if any(host.healthy for cluster in clusters for host in hosts.get(cluster, ())):
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    def _refusal(self, wanted: gateway.Waiting) -> web.Response:
        passed = time.monotonic() - (self._waking_since or time.monotonic())
        left = max(SOONEST_RETRY_SECONDS, round(wanted.retry_after_seconds - passed))
        return _refused(left, {})


class Holdings:
    """Those of all resources of one gateway pod, by member; under an empty name what is known
    of the pod as a whole, which is all there is where it belongs to one resource."""

    def __init__(self, hosts: Callable[[], Awaitable[Hosts]]) -> None:
        self._pod = _Pod(hosts)
        self._by_member = {"": Holding(self._pod)}

    def follow(self, routes: Mapping[str, gateway.Route]) -> None:
        """Takes the routes in use, with the revisions as Envoy knows them."""
        for gone in self._by_member.keys() - routes.keys() - {""}:
            del self._by_member[gone]
        for member, route in routes.items():
            self._by_member.setdefault(member, Holding(self._pod)).follow(route)

    def note(self, started_at: float, member: str, clusters: Clusters) -> None:
        """Takes a reading of a member's clusters."""
        if (found := self._by_member.get(member)) is not None:
            found.note(started_at, clusters)

    def activity(self, member: str) -> gateway.Activity | None:
        """When somebody last asked something of this member; None: it is not known here."""
        found = self._by_member.get(member)
        return found.activity if found is not None else None

    async def woken(self, request: web.Request) -> web.Response:
        """`GET /wake?seen=…&member=…`: see `Holding.woken`."""
        found = self._by_member.get(request.query.get("member", ""))
        if found is None:
            return web.Response(status=404, text="there is no such member here\n")
        return await found.woken(request)

    async def taken(self, request: web.Request) -> web.Response:
        """One request without a worker; Envoy says for which revision."""
        revision = request.headers.get(labels.REVISION_HEADER, "")
        found = (each for each in self._by_member.values() if each.serves(revision))
        return await next(found, self._by_member[""]).taken(request)


def _refused(retry_after_seconds: int, headers: dict[str, str]) -> web.Response:
    message = (
        "No worker is ready. Those that were released while nobody asked are being started: "
        "try again after the seconds in Retry-After."
    )
    error = {"message": message, "type": "service_unavailable_error", "code": "starting"}
    told = {"Retry-After": str(retry_after_seconds), **headers}
    return web.json_response({"error": error}, status=503, headers=told)


def _text(moment: float | None) -> str:
    """As in JSON, so that what was read there can be sent back."""
    return "" if moment is None else repr(moment)


@asynccontextmanager
async def taking(holdings: Holdings, settings: Settings) -> AsyncIterator[None]:
    """Takes requests while the block runs.

    Raises:
        OSError: the port is taken.
    """
    application = web.Application(client_max_size=1)
    application.router.add_route("*", "/{path:.*}", holdings.taken)
    # A client that left frees its place.
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", settings.waiting_port).start()
        yield
    finally:
        await runner.cleanup()
