"""Two real gateways behind a Service, replaced one after the other under 50 open streams.

The Service is the test's: new requests go to gateways that were ready when they were
last asked, as endpoints follow a pod's readiness some moments late.
"""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.backends import Backend, running
from tests.gateway.harness import STABLE, Gateway, backend, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

STREAMS = 50
LOOK_SECONDS = 0.3
"""Between looks of the Service at its gateways: so late it may be."""
DRAIN_MINIMUM_SECONDS = 3.0
"""A gateway that stops serves at least so long, ten times as long as the Service is late."""


@dataclass
class Service:
    """Gateways by readiness, and what came of every request."""

    folder: Path
    session: aiohttp.ClientSession
    worker: Backend
    gateways: list[Gateway] = field(default_factory=list)
    ready: list[Gateway] = field(default_factory=list)
    sent: int = 0
    failures: list[str] = field(default_factory=list)
    _turn: itertools.count = field(default_factory=itertools.count)

    async def add(self) -> Gateway:
        """Starts one more pod and waits until it is in the Service."""
        folder = self.folder / str(len(self.gateways))
        folder.mkdir()
        gateway = Gateway(
            folder,
            self.session,
            drain_seconds=120,
            drain_minimum_seconds=DRAIN_MINIMUM_SECONDS,
        )
        self.gateways.append(gateway)
        await gateway.start()
        gateway.endpoints(**{STABLE: [self.worker]})
        await gateway.route(backend(STABLE, 100), drain_seconds=60)

        async def in_service() -> bool:
            return gateway in self.ready

        await eventually(in_service, bool, "the gateway is in the Service")
        return gateway

    async def follow(self) -> None:
        """Looks at readiness for ever."""
        while True:
            found = [await each.status_of("/readyz") == 200 for each in self.gateways]
            self.ready = [g for g, good in zip(self.gateways, found, strict=False) if good]
            await asyncio.sleep(LOOK_SECONDS)

    def next(self) -> Gateway:
        """The gateway of the next request."""
        return self.ready[next(self._turn) % len(self.ready)]

    async def stream(self, opened: asyncio.Event) -> None:
        """A stream from its first event to its last; `opened` is set in between."""
        self.sent += 1
        try:
            async with self.next().post(stream=True) as answer:
                await answer.content.readline()
                opened.set()
                rest = await answer.read()
            if answer.status != 200 or not rest.endswith(b"data: [DONE]\n\n"):
                self.failures.append(f"stream {answer.status}: {rest[-40:]!r}")
        except aiohttp.ClientError as error:
            self.failures.append(f"stream: {error!r}")
        finally:
            opened.set()

    async def requests(self) -> None:
        """Short requests, one after the other, for ever."""
        while True:
            self.sent += 1
            status, _ = await self.next().answer()
            if status != 200:
                self.failures.append(f"request {status}")
            await asyncio.sleep(0.01)


@asynccontextmanager
async def a_service(folder: Path) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        # A connection for each request: which kept-alive one a client uses is not the
        # Service's choice, and a request on one that closes is the client's to repeat.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        worker = await stack.enter_async_context(running("worker"))
        service = Service(folder, session, worker)
        following = asyncio.ensure_future(service.follow())
        try:
            yield service
        finally:
            following.cancel()
            for gateway in service.gateways:
                await gateway.stop()


async def replaced(service: Service, old: Gateway) -> int:
    """One step of a rolling update: a new pod first, then the old one's end; its exit status."""
    await service.add()
    assert old.supervisor is not None
    assert old.agent is not None
    # Kubernetes stops both containers at once.
    for process in (old.agent, old.supervisor):
        process.send_signal(signal.SIGTERM)

    async def gone() -> bool:
        return old not in service.ready

    await eventually(gone, bool, "the Service has noticed")
    # It is away for new requests only: the streams decide when it ends.
    assert old.supervisor.returncode is None
    service.worker.release()
    await asyncio.wait_for(old.supervisor.wait(), 60)
    service.worker.hold()
    assert old.supervisor.returncode is not None
    return old.supervisor.returncode


async def test_a_rolling_update_of_two_gateways_loses_nothing(tmp_path: Path) -> None:
    async with a_service(tmp_path) as service:
        first, second = await service.add(), await service.add()
        working = asyncio.ensure_future(service.requests())
        served = []
        for old in (first, second):
            service.worker.hold()
            opened = [asyncio.Event() for _ in range(STREAMS)]
            streams = [asyncio.ensure_future(service.stream(each)) for each in opened]
            await asyncio.gather(*(each.wait() for each in opened))
            assert service.worker.open_streams == STREAMS
            assert await replaced(service, old) == 0
            await asyncio.gather(*streams)
            served.append(service.worker.requests)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert service.failures == []
    # Every request was generated once: counted here and at the worker. The last short one may
    # have been cancelled before it was sent.
    assert service.sent - 1 <= service.worker.requests <= service.sent
    assert served[0] > STREAMS
