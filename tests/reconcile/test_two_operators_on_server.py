"""Two operators as processes: who takes over when, and that never both write.

The API server's audit log is the witness: every write is by whoever wrote the
Lease last. One of them reaches the server through a link that can be cut.
"""

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cluster.envtest import Server
from tests.ports import free_port
from tests.reconcile.test_process_on_server import a_resource, an_operator, get, until

from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import LEASE, SPECULATIVE_DEPLOYMENT

pytestmark = pytest.mark.cluster

EXPIRY_SECONDS = 5.0 * 5 / 6
"""What a hand-over without a release takes at least: the Lease's duration after its last renewal.
How long each takes is measured by `make bench-takeover`, since busy machines add to it."""


class Link:
    """A TCP relay to the API server; cut, it swallows what comes and later resets it."""

    def __init__(self, server: Server) -> None:
        at = urlsplit(server.url)
        self._host, self._port = at.hostname, at.port
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, back}
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._open.wait()
                target.write(data)
                await target.drain()
        finally:
            target.close()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._open.set()


@asynccontextmanager
async def a_link(server: Server) -> AsyncIterator[Link]:
    link = Link(server)
    listener = await asyncio.start_server(link.handle, "127.0.0.1", 0)
    link.url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        link.mend()
        listener.close()


class Witness:
    """What the audit log says, and somebody who keeps the operators busy."""

    def __init__(self, server: Server, client: Client) -> None:
        self._server, self._client = server, client
        self._began = len(server.audited())

    async def edit_for_ever(self, name: str) -> None:
        """Every edit asks for a write of the worker Deployment."""
        path = SPECULATIVE_DEPLOYMENT.path("default", name)
        for number in itertools.count():
            body = {"spec": {"replicas": number % 5 + 1}}
            await self._client.request(
                "edit", SPECULATIVE_DEPLOYMENT, "PATCH", path, body=body, content_type=MERGE_PATCH
            )
            await asyncio.sleep(0.05)

    def writes(self) -> list[dict[str, Any]]:
        """Successful writes of the operators."""
        return [
            event
            for event in self._server.audited()[self._began :]
            if event["user"]["username"] in ("a", "b") and event["responseStatus"]["code"] < 300
        ]

    def work(self, who: str, since: float) -> list[float]:
        """Unix times at which `who` wrote an object."""
        return [
            at
            for event in self.writes()
            if event["user"]["username"] == who
            and event["objectRef"]["resource"] != "leases"
            and (at := moment(event["requestReceivedTimestamp"])) > since
        ]

    async def until_works(self, who: str, since: float) -> float:
        """Seconds from `since` until the first write of `who` after it."""

        async def answer() -> object:
            return self.work(who, since)

        await until(answer)
        return self.work(who, since)[0] - since


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def unfenced(writes: list[dict[str, Any]]) -> list[str]:
    """Writes by somebody who was not the last to write the Lease."""
    found, holder = [], ""
    for event in writes:
        who, place = event["user"]["username"], event["objectRef"]
        if place["resource"] == "leases":
            holder = who
        elif who != holder:
            found.append(f"{event['verb']} {place['resource']}/{place.get('name')} by {who}")
    return found


async def test_never_both_write_whatever_happens_to_the_one_that_works(
    api_server: Server, tmp_path: Path
) -> None:
    ports = {"a": free_port(), "b": free_port()}
    async with (
        Client(api_server.access) as client,
        a_link(api_server) as link,
        an_operator(api_server, tmp_path, port=ports["a"], identity="a", url=link.url) as a,
    ):
        witness = Witness(api_server, client)
        await a_resource(client, "contended")
        began = time.time()
        await witness.until_works("a", began)
        async with an_operator(api_server, tmp_path, port=ports["b"], identity="b") as b:
            await until(lambda: is_warm(ports["b"]))
            editing = asyncio.create_task(witness.edit_for_ever("contended"))
            try:
                # Stopped in the middle of its work, and woken while the other one works.
                at = time.time()
                a.send_signal(signal.SIGSTOP)
                stopped = await witness.until_works("b", at)
                a.send_signal(signal.SIGCONT)
                await until(lambda: is_warm(ports["a"]))
                # Killed.
                at = time.time()
                b.kill()
                killed = await witness.until_works("a", at)
            finally:
                editing.cancel()
        async with an_operator(api_server, tmp_path, port=ports["b"], identity="b") as b:
            await until(lambda: is_warm(ports["b"]))
            editing = asyncio.create_task(witness.edit_for_ever("contended"))
            try:
                # Cut off, and connected again while the other one works.
                at = time.time()
                link.cut()
                cut = await witness.until_works("b", at)
                link.mend()
                await until(lambda: is_warm(ports["a"]))
                # Asked to leave.
                at = time.time()
                b.terminate()
                terminated = await witness.until_works("a", at)
            finally:
                editing.cancel()
            assert await asyncio.wait_for(b.wait(), 10) == 0
        assert unfenced(witness.writes()) == []
        print(f"{stopped=:.2f} {killed=:.2f} {cut=:.2f} {terminated=:.2f}")
        assert terminated < EXPIRY_SECONDS
        a.terminate()
        assert await asyncio.wait_for(a.wait(), 10) == 0
        lease = await client.get(LEASE, "kube-public", "speculative-operator")
        assert not lease["spec"].get("holderIdentity")


async def is_warm(port: int) -> bool:
    """Ready and not leading: a standby whose caches are filled."""
    ready = (await get(port, "/readyz"))[0] == 200
    return ready and "leading 0.0" in (await get(port, "/metrics"))[1]
