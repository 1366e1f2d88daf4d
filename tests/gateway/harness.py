"""A whole gateway on loopback: supervisor, real Envoy, agent over two files."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from tests.gateway.backends import Backend
from tests.ports import free_port

from speculative_api import gateway

PATIENCE_SECONDS = 60.0
STABLE, CANARY, NATIVE = "a" * 10, "b" * 10, "c" * 10
T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], until: Callable[[T], bool], what: str) -> T:
    """Looks until the condition holds; fails, with the last look, when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        seen = await look()
        if until(seen):
            return seen
        assert time.monotonic() < deadline, f"never: {what}; last seen {seen!r}"
        await asyncio.sleep(0.02)


def backend(revision: str, weight: int = 0) -> gateway.Backend:
    """A route's backend whose Service is called as the revision."""
    return gateway.Backend(hash=revision, service=revision, weight=weight)


@asynccontextmanager
async def a_gateway(folder: Path, **settings: Any) -> AsyncIterator["Gateway"]:
    """A running one, with settings of `Gateway`, and a session to ask it with."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        found = Gateway(folder, session, **settings)
        try:
            await found.start()
            yield found
        finally:
            await found.stop()


@dataclass
class Gateway:
    """One gateway; `folder` is the test's own."""

    folder: Path
    session: aiohttp.ClientSession
    port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    agent_port: int = field(default_factory=free_port)
    waiting_port: int = field(default_factory=free_port)
    drain_seconds: int = 13
    """The whole grace; the supervisor leaves 10 seconds of it to Envoy."""
    drain_minimum_seconds: float = 0
    headers_seconds: float = 30
    request_seconds: float = 300
    trusted_proxy_hops: int = 0
    tls: str = ""
    """Lowest version; empty: plain HTTP."""
    authorities: tuple[str, ...] = ()
    """Secrets that vouch for engines, mounted in the folder `authorities`."""
    secrets: tuple[str, ...] = ()
    """Several with API keys, mounted in the folder `keys`; none: it is a lone one."""
    key_sets: tuple[str, ...] = ()
    """Likewise of ConfigMaps with an issuer's keys, in the folder `key-set`."""
    shared_gateway: str = ""
    """Its name where it has members; see `share` and `ask_member`."""
    supervisor: asyncio.subprocess.Process | None = None
    agent: asyncio.subprocess.Process | None = None
    sequence: int = 0
    _started: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def wanted(self) -> Path:
        """Folder of the agent's source."""
        return self.folder / "wanted"

    @property
    def xds(self) -> Path:
        """Folder of Envoy's dynamic files."""
        return self.folder / "run" / "xds"

    async def start(self) -> None:
        """Starts both commands."""
        self.wanted.mkdir(exist_ok=True)
        self.supervisor = await self._spawn("supervise")
        await self.start_agent()

    async def start_agent(self) -> None:
        """Starts an agent, the first or the next."""
        self.agent = await self._spawn("agent", "--from-directory", str(self.wanted))

    async def start_keeper(self) -> None:
        """Starts what keeps an agent running, as in a pod."""
        self.agent = await self._spawn("keep", "--from-directory", str(self.wanted))

    def agent_child(self) -> int:
        """The agent that the keeper runs now; 0 while there is none."""
        assert self.agent is not None
        children = Path(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children").read_text()
        return int(children.split()[0]) if children.split() else 0

    async def _spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "GATEWAY_DIRECTORY": str(self.folder / "run"),
            "GATEWAY_PORT": str(self.port),
            "ADMIN_PORT": str(self.admin_port),
            "AGENT_PORT": str(self.agent_port),
            "WAITING_PORT": str(self.waiting_port),
            "LISTEN_ADDRESS": "127.0.0.1",
            "POD_NAME": "gateway-0",
            "SHARED_GATEWAY": self.shared_gateway,
            "CONCURRENCY": "1",
            "REQUEST_HEADERS_SECONDS": str(self.headers_seconds),
            "REQUEST_SECONDS": str(self.request_seconds),
            "TRUSTED_PROXY_HOPS": str(self.trusted_proxy_hops),
            "API_KEYS_DIRECTORY": str(self.folder / "keys"),
            "API_KEYS_NAMES": ",".join(self.secrets),
            "KEY_SET_DIRECTORY": str(self.folder / "key-set"),
            "KEY_SET_NAMES": ",".join(self.key_sets),
            "TLS_DIRECTORY": str(self.folder / "tls") if self.tls else "",
            "TLS_MINIMUM": self.tls,
            "AUTHORITIES": ",".join(self.authorities),
            "AUTHORITIES_DIRECTORY": str(self.folder / "authorities"),
            "DRAIN_SECONDS": str(self.drain_seconds),
            "DRAIN_MINIMUM_SECONDS": str(self.drain_minimum_seconds),
        }
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "speculative_gateway", *arguments),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    async def stop(self) -> None:
        """Ends everything that was started, Envoy last."""
        for process in self._started:
            if process.returncode is None and process is not self.supervisor:
                process.kill()
                await process.wait()
        if self.supervisor is not None and self.supervisor.returncode is None:
            self.supervisor.terminate()
            try:
                await asyncio.wait_for(self.supervisor.wait(), 3)
            except TimeoutError:
                # A test left a stream open: end Envoy, if it has not ended by now, and the drain.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.envoy_pid(), signal.SIGKILL)
                await asyncio.wait_for(self.supervisor.wait(), 10)

    def envoy_pid(self) -> int:
        """The running Envoy, as its supervisor noted it."""
        found: int = json.loads((self.folder / "run" / "envoy.json").read_text())["pid"]
        return found

    def log(self, name: str) -> str:
        """What a command has logged."""
        return (self.folder / f"{name}.log").read_text()

    def write(self, name: str, content: object) -> None:
        """Puts one of the source's files in place."""
        temporary = self.wanted / f".{name}"
        temporary.write_text(content if isinstance(content, str) else json.dumps(content))
        temporary.replace(self.wanted / name)

    def keys(self, **clients: str) -> None:
        """Swaps the mounted Secret with the API keys."""
        self.mount("keys", clients)

    def mount(self, name: str, entries: Mapping[str, str]) -> None:
        """Swaps a mounted Secret as the kubelet does: a new folder, then its link."""
        folder = self.folder / name
        version = folder / f"..{len(list(folder.glob('..*'))) if folder.exists() else 0}"
        version.mkdir(parents=True)
        for entry, content in entries.items():
            (version / entry).write_text(content)
            if not (folder / entry).is_symlink():
                (folder / entry).symlink_to(f"..data/{entry}")
        (folder / "..new").symlink_to(version.name)
        (folder / "..new").replace(folder / "..data")

    def endpoints(self, **revisions: list[Backend]) -> None:
        """Says which fake workers are ready, by revision."""
        self.write(
            "endpoints.json",
            {
                revision: [
                    {
                        "address": "127.0.0.1",
                        "port": each.port,
                        "healthPort": each.probe_port or each.port,
                    }
                    for each in backends
                ]
                for revision, backends in revisions.items()
            },
        )

    def ask(self, *backends: gateway.Backend, **fields: Any) -> gateway.Route:
        """Writes the next route."""
        self.sequence += 1
        values = {"owner_uid": "uid", "sequence": self.sequence, "model": "m", **fields}
        if backends:
            values.setdefault("default", backends[0].hash)
        route = gateway.Route(backends=backends, **values)
        self.write(gateway.ROUTE_KEY, route.model_dump_json(by_alias=True))
        return route

    async def route(self, *backends: gateway.Backend, **fields: Any) -> gateway.GatewayState:
        """Writes the next route and waits until the agent has seen it in Envoy."""
        route = self.ask(*backends, **fields)
        return await self.until(
            lambda state: state.ready and state.sequence == route.sequence,
            f"sequence {route.sequence} in use",
        )

    def share(
        self,
        *members: str,
        hosts: Mapping[str, str] | None = None,
        accesses: Mapping[str, gateway.Access] | None = None,
        **fields: Any,
    ) -> None:
        """Says who is at the gateway; the owner of a member's route has its name.

        Args:
            accesses: of members that don't let in everybody, where they differ.
        """
        named = (hosts or {}).items()
        own = accesses or {}
        shared = gateway.SharedGateway(
            schema_version=2 if own else 1,
            members=tuple(
                gateway.Member(
                    name=each,
                    owner_uid=each,
                    hosts=tuple(h for h, whose in named if whose == each),
                    access=own.get(each, gateway.Access()) if own else None,
                )
                for each in members
            ),
            **fields,
        )
        self.write(gateway.SHARED_KEY, shared.model_dump_json(by_alias=True))

    async def member(
        self, name: str, *backends: gateway.Backend, **fields: Any
    ) -> gateway.GatewayState:
        """Writes a member's next route and waits until the agent has seen it in Envoy."""
        self.sequence += 1
        values = {"owner_uid": name, "sequence": self.sequence, "model": name, **fields}
        if backends:
            values.setdefault("default", backends[0].hash)
        route = gateway.Route(backends=backends, **values)
        self.write(f"{name}-member.json", route.model_dump_json(by_alias=True))
        return await self.until(
            lambda state: state.ready and state.sequence == route.sequence,
            f"sequence {route.sequence} of {name} in use",
            member=name,
        )

    async def state(self, member: str = "") -> gateway.GatewayState | None:
        """The agent's answer; None where it or Envoy is away."""
        url = f"http://127.0.0.1:{self.agent_port}/state"
        try:
            async with self.session.get(url, params={"member": member} if member else {}) as answer:
                text = await answer.text()
                return gateway.GatewayState.model_validate_json(text) if answer.ok else None
        except aiohttp.ClientError:
            return None

    async def until(
        self, condition: Callable[[gateway.GatewayState], bool], what: str, *, member: str = ""
    ) -> gateway.GatewayState:
        """Waits for a state."""
        found = await eventually(
            lambda: self.state(member), lambda state: state is not None and condition(state), what
        )
        assert found is not None
        await self.until_all_threads_follow()
        return found

    async def until_all_threads_follow(self) -> None:
        """Waits until the thread that answers uses what Envoy says that it uses.

        Its main thread says so, and has handed it on by then; the one other thread (see
        `CONCURRENCY`) takes it before it ends a connection that begins now.
        """
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write_eof()
                await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
            finally:
                writer.close()

    async def status_of(self, path: str) -> int:
        """Status of one of the agent's paths; 0 where it does not answer."""
        try:
            async with self.session.get(f"http://127.0.0.1:{self.agent_port}{path}") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    def post(self, *, stream: bool = False, **headers: str) -> Any:
        """A chat completion through Envoy, to be used with `async with`."""
        return self.session.post(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json={"stream": stream},
            headers={key.replace("_", "-"): value for key, value in headers.items()},
        )

    async def answer_stream(self) -> bytes:
        """The whole of one stream."""
        async with self.post(stream=True) as answer:
            return bytes(await answer.read())

    async def answer(self) -> tuple[int, str]:
        """Status and serving revision of one plain request; status 0 if none connects."""
        try:
            async with self.post() as answer:
                await answer.read()
                return answer.status, answer.headers.get("x-speculative-revision", "")
        except aiohttp.ClientError:
            return 0, ""


def cluster(state: gateway.GatewayState, revision: str) -> gateway.ClusterState:
    """One revision's part of the state."""
    return next(each for each in state.clusters if each.hash == revision)
