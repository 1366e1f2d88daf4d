"""SpeculativeDeployments on loopback: real API server, operator, Envoys and agents.

Gateway pod n of resource r is 127.0.(10+r).n, worker pod n is 127.0.3.n, with the
ports they have in a pod; so the operator's program asks them where it would in a
cluster. What controllers and kubelets do is played (`played_controllers`).
"""

import asyncio
import os
import socket
import sys
import tempfile
import time
import traceback
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self, cast

import aiohttp
import orjson
from bench.asked import JSON, Asked, of_all
from bench.followed import Followed
from bench.played_controllers import PlayedControllers
from tests.cluster import envtest
from tests.reconcile.test_process_on_server import a_kubeconfig

from speculative_api import labels
from speculative_gateway.configuration import RTDS_FILE
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    SPECULATIVE_DEPLOYMENT,
)

NAMESPACE = "default"
ADMIN_PORT = 19_901
AGENT_PORT = 8081
FILE_LOOK_SECONDS = 0.005
"""Between two looks at whether a file was written, at least."""
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
ENVOY_INSTANCES = 6
"""Of inotify, that an Envoy of one worker has open (1.40, counted in /proc)."""
OTHERS_INSTANCES = 16
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
"""A gateway's files lie in memory, as in its pod: on a disk each write waits for it."""
ROLLOUT = {"steps": [{"weight": 50}, {"pause": {}}], "guard": {"durationSeconds": 0}}

AGENT = """
import asyncio, os
from dataclasses import replace
from speculative_gateway.agent import run
from speculative_gateway.kubernetes import Cluster, FromKubernetes
from speculative_gateway.settings import Settings
from pathlib import Path
settings = Settings.from_environment(os.environ)
cluster = Cluster(os.environ["API_SERVER"], Path(os.environ["TOKEN_FILE"]))
class OnLoopback(FromKubernetes):
    async def watch(self, changed):
        def told(seen):
            endpoints = {
                service: tuple(
                    replace(each, address=each.address.replace("192.0.2.", "127.0.3."))
                    for each in addresses
                )
                for service, addresses in seen.endpoints.items()
            }
            changed(replace(seen, endpoints=endpoints))
        await super().watch(told)
asyncio.run(run(settings, OnLoopback(settings, cluster)))
"""
"""The agent as in a pod, but for where it finds the API server and the workers: an EndpointSlice
may not hold loopback addresses."""


class OnLoopback(Asked):
    """One of them; `bench.abort` asks it."""

    session: aiohttp.ClientSession
    admin_ports: range
    folder: Path
    """Of the folders of its gateways."""

    async def until_weight_zero(self, revision: str, *, every: float) -> float:
        """When the last Envoy gave it nothing, by its own word (loop time)."""
        zeros = (self._zero(port, revision, every) for port in self.admin_ports)
        return max(await asyncio.gather(*zeros))

    async def _zero(self, port: int, revision: str, every: float) -> float:
        url = f"http://127.0.0.1:{port}/runtime"
        # Questions to Envoy are work for its main thread, which has the file to read: none before
        # there is one.
        weights = (
            self.folder / f"{self.name}-gateway-{port - self.admin_ports.start}" / "xds" / RTDS_FILE
        )
        before = os.stat(weights).st_mtime_ns
        while os.stat(weights).st_mtime_ns == before:  # noqa: ASYNC110
            await asyncio.sleep(max(every / 4, FILE_LOOK_SECONDS))
        while True:
            async with self.session.get(url) as answer:
                entries = (await answer.json())["entries"]
            if str(entries.get(f"rev.{revision}", {}).get("final_value", "0")) == "0":
                return asyncio.get_running_loop().time()
            await asyncio.sleep(every)


class Loopback:
    """The whole, as an async context; its `members` are what is asked."""

    def __init__(self, folder: Path, gateways: int, rollouts: int) -> None:
        self._folder, self._gateways = folder, gateways
        self._gateway_folder = folder
        self._started: dict[str, asyncio.subprocess.Process] = {}
        self.members = [OnLoopback(NAMESPACE, f"chat-{number}") for number in range(rollouts)]
        self._stack = AsyncExitStack()
        self._served: set[str] = set()
        self.client: Client

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._leave()
            raise
        return self

    async def _begin(self) -> None:
        self._require_addresses()
        self._require_watches()
        server = self._stack.enter_context(envtest.running(self._folder))
        self.client = await self._stack.enter_async_context(Client(server.access))
        (self._folder / "token").write_text(envtest.TOKEN)
        if MEMORY.is_dir():  # noqa: ASYNC240 - once, at the beginning
            memory = tempfile.TemporaryDirectory(prefix="loopback-", dir=MEMORY)
            self._gateway_folder = Path(self._stack.enter_context(memory))
        await self._introduce()
        for index, member in enumerate(self.members):
            body = _resource(member.name, k=4, replicas=self._gateways)
            await self.client.create(SPECULATIVE_DEPLOYMENT, body)
            for number in range(self._gateways):
                await self._start_gateway(index, number, server.url)
        self._play()
        await self._start(
            "operator",
            ["-m", "speculative_operator"],
            KUBECONFIG=str(a_kubeconfig(server.url, self._folder, "one")),
            IDENTITY="one",
            HTTP_PORT="18082",
            FOREIGN_LEASE_SECONDS="0",
        )
        await of_all("serving", self.members, Asked.is_serving)
        for member in self.members:
            spec = _resource(member.name, k=6, replicas=self._gateways)["spec"]
            await member.edit({"spec": spec})

    def _play(self) -> None:
        """Begins to do what controllers and kubelets would."""
        played = PlayedControllers(
            self.client, NAMESPACE, serve=self._serve, gateway_address=gateway_address
        )
        playing = asyncio.create_task(played.run())
        playing.add_done_callback(_loudly)
        self._stack.callback(playing.cancel)

    def _require_watches(self) -> None:
        """RuntimeError: Envoys would end at their start, and only their logs would say why."""
        if not INOTIFY.exists():
            return
        needed = ENVOY_INSTANCES * self._gateways * len(self.members)
        if (most := int(INOTIFY.read_text())) < needed + OTHERS_INSTANCES:
            raise RuntimeError(
                f"{INOTIFY} says {most}, and {needed // ENVOY_INSTANCES} Envoys take {needed}: "
                f"sysctl fs.inotify.max_user_instances={2 * needed}, or fewer --gateways"
            )

    def _require_addresses(self) -> None:
        """RuntimeError: another world of these has them; nothing here would become ready."""
        for member in self.members:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((gateway_address(member.name, 0), AGENT_PORT))
                except OSError as error:
                    taken = f"{gateway_address(member.name, 0)}:{AGENT_PORT}"
                    raise RuntimeError(
                        f"{taken} cannot be had ({error.strerror}): end the other benchmark first"
                    ) from error

    async def _introduce(self) -> None:
        """Gives the members what they ask with."""
        session = await self._stack.enter_async_context(aiohttp.ClientSession())
        seen = Followed(self.client, NAMESPACE, SPECULATIVE_DEPLOYMENT, CONFIG_MAP)
        await self._stack.enter_async_context(seen)
        for index, member in enumerate(self.members):
            first = ADMIN_PORT + index * self._gateways
            member.client, member.session, member.seen = self.client, session, seen
            member.folder = self._gateway_folder
            member.admin_ports = range(first, first + self._gateways)

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        # All at once: each Envoy lets its connections end for some seconds.
        for process in self._started.values():
            if process.returncode is None:
                process.terminate()
        await self._stack.aclose()

    async def _start(self, name: str, arguments: list[str], **environment: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, env=os.environ | environment, stdout=log, stderr=log
            )
        self._started[name] = process
        self._stack.push_async_callback(_end, process)

    def ended(self) -> list[str]:
        """Programs that ended by themselves: in a pod the kubelet would hide it by a restart."""
        return [name for name, each in self._started.items() if each.returncode is not None]

    async def _start_gateway(self, index: int, number: int, url: str) -> None:
        member = self.members[index]
        pod = f"{member.name}-gateway-{number}"
        environment = {
            "GATEWAY_DIRECTORY": str(self._gateway_folder / pod),
            "ADMIN_PORT": str(member.admin_ports[number]),
            "WAITING_PORT": str(member.admin_ports[number] + 1000),
            "LISTEN_ADDRESS": gateway_address(member.name, number),
            "POD_NAME": pod,
            "CONCURRENCY": "1",
            "NAMESPACE": NAMESPACE,
            "SD_NAME": member.name,
            "ROUTE_CONFIGMAP": f"{member.name}-route",
            "DRAIN_SECONDS": "11",
            "DRAIN_MINIMUM_SECONDS": "0",
            "API_SERVER": url,
            "TOKEN_FILE": str(self._folder / "token"),
        }
        supervise = ["-m", "speculative_gateway", "supervise"]
        await self._start(f"envoy-{pod}", supervise, **environment)
        await self._start(f"agent-{pod}", ["-c", AGENT], **environment)

    async def _serve(self, address: str) -> None:
        """A worker that is ready and counts nothing."""
        if address in self._served:
            return
        self._served.add(address)
        loop = asyncio.get_running_loop()
        for port in (labels.ENGINE_PORT, labels.WORKER_PORT):
            server = await loop.create_server(Worker, address, port)
            self._stack.callback(server.close)


class Worker(asyncio.Protocol):
    """Answers every question with a digest; each Envoy asks each worker once a second, and a
    server that does more than that takes a quarter of a core from what is measured."""

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        *asked, self._rest = (self._rest + data).split(b"\r\n\r\n")
        digest = {"ready": True, "engineStartedAt": 1.0, "method": "NGram"}
        body = orjson.dumps(digest | {"sampledAt": time.time()})
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        for _ in asked:
            self._transport.write(head.encode() + b"\r\n\r\n" + body)


def gateway_address(name: str, number: int) -> str:
    """Of gateway pod `number` (from 0) of a member."""
    return f"127.0.{10 + int(name.rpartition('-')[2])}.{number + 1}"


def _resource(name: str, *, k: int, replicas: int) -> JSON:
    return {
        "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
        "kind": SPECULATIVE_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "target": {"model": "file:///models/target"},
            "speculation": {"method": "NGram", "numSpeculativeTokens": k},
            "gateway": {"replicas": replicas},
            "rollout": ROLLOUT,
        },
    }


def _loudly(follower: asyncio.Task[None]) -> None:
    """Without it nothing would ever become ready, and nobody would know why."""
    if not follower.cancelled() and (error := follower.exception()):
        traceback.print_exception(error)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Waits for one that was asked to end, and kills it when it has not after 15 s."""
    try:
        await asyncio.wait_for(process.wait(), 15)
    except TimeoutError:
        process.kill()
        await process.wait()
