"""The world of the fault soak: `bench.loopback` behind a proxy that misbehaves.

Workers are played here; the operator is started again whenever it ended, with a
clock and a service account that a fault may change.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from bench.disturbed_api import DisturbedApi
from bench.faults import small_disk, unmount
from bench.loopback import AGENT, NAMESPACE, Loopback, gateway_address
from tests.cluster import envtest
from tests.ports import free_port
from tests.reconcile.simulation import Simulation

from speculative_api import labels
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import JSON, SPECULATIVE_DEPLOYMENT

LOGS = Path("build/soak-faults-logs")
ASKS_PER_SECOND = 10
GATEWAYS = 2
OPERATOR = """
import os, pathlib, runpy, sys, time, datetime as module
import speculative_operator.__main__
from speculative_operator.cluster import access
access.SERVICE_ACCOUNT = pathlib.Path(os.environ["SERVICE_ACCOUNT"])
def off():
    return float(pathlib.Path(os.environ["CLOCK"]).read_text() or 0)
real = time.time
time.time = lambda: real() + off()
class Shifted(module.datetime):
    @classmethod
    def now(cls, tz=None):
        return module.datetime.now(tz) + module.timedelta(seconds=off())
ours = [found for name, found in sys.modules.items() if name.startswith("speculative_operator")]
for found in ours:
    if getattr(found, "datetime", None) is module.datetime:
        found.datetime = Shifted
sys.exit(speculative_operator.__main__.main())
"""
"""The program as in a pod, but for the place of its service account and a clock that can be set."""


def a_spec(*, k: int = 4, replicas: int = 2) -> JSON:
    """What the person wants."""
    return {
        "replicas": replicas,
        "target": {"model": "file:///models/target"},
        "speculation": {"method": "NGram", "numSpeculativeTokens": k},
        "gateway": {"replicas": GATEWAYS},
        "rollout": {
            "steps": [{"weight": 50}, {"pause": {"durationSeconds": 5}}],
            "analysis": {"periodSeconds": 1},
            "guard": {"durationSeconds": 0},
        },
    }


@dataclass
class Asking:
    """What became of the client's requests."""

    answered: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False


class SoakWorld(Loopback):
    """`Loopback` behind a proxy that misbehaves, with an operator that is started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GATEWAYS, rollouts=1)
        self.member = self.members[0]
        self.token, self.clock = folder / "account" / "token", folder / "clock"
        self.disk: Path | None = None
        self.server: envtest.Server
        self.api: DisturbedApi
        self.asking = Asking()
        self.operator_starts = 0
        self._operator: asyncio.subprocess.Process | None = None
        self._counts: dict[str, int] = {}

    async def _begin(self) -> None:
        self._require_addresses()
        self.server = self._stack.enter_context(envtest.running(self._folder))
        self.client = await self._stack.enter_async_context(
            Client(self.server.access, timeout_seconds=5)
        )
        self.api = await self._stack.enter_async_context(DisturbedApi(self.server))
        await self._introduce()
        self.token.parent.mkdir()
        self.token.write_text("first")
        (self.token.parent / "ca.crt").write_bytes(self.api.authority.read_bytes())
        self.clock.write_text("0")
        first = self._folder / f"{self.member.name}-gateway-0"
        if small_disk(first):
            self.disk = first
            self._stack.callback(unmount, first)
        body = {
            "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
            "kind": SPECULATIVE_DEPLOYMENT.kind,
            "metadata": {"name": self.member.name, "namespace": NAMESPACE},
            "spec": a_spec(),
        }
        await self.client.create(SPECULATIVE_DEPLOYMENT, body)
        self._play()
        keeping = asyncio.create_task(self._keep_operator())
        self._stack.callback(keeping.cancel)
        for number in range(GATEWAYS):
            await self._start_gateway(0, number, self.api.url)
        await self.member.until(self.member.is_serving)
        # Ready is a gateway that uses the route; its Envoy may still be looking at endpoints.
        await self.member.until(self._all_answer)

    async def _start(self, name: str, arguments: list[str], **environment: str) -> None:
        if "TOKEN_FILE" in environment:
            environment |= {
                "TOKEN_FILE": str(self.token),
                "AUTHORITY": str(self.token.parent / "ca.crt"),
            }
        arguments = [a.replace(_UNVERIFIED, _VERIFIED) if a == AGENT else a for a in arguments]
        await super()._start(name, arguments, **environment)

    async def _keep_operator(self) -> None:
        """What a kubelet does: whenever it ended, it is started again."""
        environment = os.environ | {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self.api.port),
            "SERVICE_ACCOUNT": str(self.token.parent),
            "CLOCK": str(self.clock),
            "IDENTITY": "one",
            "HTTP_PORT": str(free_port()),
        }
        environment.pop("KUBECONFIG", None)
        with (self._folder / "operator.log").open("ab") as log:
            while True:
                self._operator = process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", OPERATOR, env=environment, stdout=log, stderr=log
                )
                self.operator_starts += 1
                try:
                    await process.wait()
                finally:
                    if process.returncode is None:
                        process.kill()
                await asyncio.sleep(1.0)

    def kill_operator(self) -> None:
        """SIGKILL, as the kernel does when memory is short; it is started again."""
        if self._operator is not None and self._operator.returncode is None:
            self._operator.kill()

    async def _serve(self, address: str) -> None:
        """A worker that answers and counts."""
        if address in self._served:
            return
        self._served.add(address)
        self._counts[address] = 0
        began = time.time()

        async def complete(_: web.Request) -> web.Response:
            self._counts[address] += 1
            return web.json_response({"choices": [{"text": "a b c"}], "usage": {}})

        async def digest(_: web.Request) -> web.Response:
            count = self._counts[address]
            return web.json_response(
                {
                    "ready": True,
                    "engineStartedAt": began,
                    "sampledAt": time.time(),
                    "method": "NGram",
                    "requestsFinished": count,
                    "generatedTokens": 30 * count,
                    "acceptedTokens": 20 * count,
                    "draftTokens": 40 * count,
                    "drafts": 10 * count,
                }
            )

        application = web.Application()
        application.router.add_post("/v1/completions", complete)
        application.router.add_get("/{path:.*}", digest)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        for port in (labels.ENGINE_PORT, labels.WORKER_PORT):
            await web.TCPSite(runner, address, port).start()
        self._stack.push_async_callback(runner.cleanup)

    def _url(self, gateway: int) -> str:
        host = f"{gateway_address(self.member.name, gateway)}:{labels.GATEWAY_PORT}"
        return f"http://{host}/v1/completions"

    async def _all_answer(self) -> bool:
        return not [why for n in range(GATEWAYS) if (why := await self._failure(self._url(n)))]

    async def _failure(self, url: str) -> str:
        """Why one request was not answered; empty if it was."""
        body = {"model": self.member.name, "prompt": "a", "max_tokens": 3}
        try:
            async with self.member.session.post(
                url, json=body, timeout=aiohttp.ClientTimeout(total=30)
            ) as answer:
                text = await answer.text()
                return "" if answer.status == 200 else f"{answer.status} {text[:200]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__} {error}"

    async def ask(self) -> None:
        """Requests to both gateways in turn, until told to stop; none is tried twice."""
        number = 0
        while not self.asking.stopped:
            number += 1
            url, began = self._url(number % GATEWAYS), time.monotonic()
            why = await self._failure(url)
            if why:
                self.asking.failed.append({"at": began, "url": url, "why": why})
            else:
                self.asking.answered += 1
            await asyncio.sleep(1 / ASKS_PER_SECOND)

    async def complete(self) -> bool:
        """Whether the present spec is stable and nothing is on its way."""
        live = await self.client.get(SPECULATIVE_DEPLOYMENT, NAMESPACE, self.member.name)
        status, spec = live.get("status", {}), live["spec"]
        stable = status.get("stable") or {}
        seen = status.get("observedGeneration") == live["metadata"]["generation"]
        quiet = not (status.get("canary") or status.get("retiring") or status.get("guard"))
        whole = stable.get("readyReplicas") == spec["replicas"] == stable.get("replicas")
        return bool(seen and quiet and whole)

    async def until_complete(self, seconds: float) -> None:
        """Waits; TimeoutError says what status was."""
        try:
            async with asyncio.timeout(seconds):
                await self.member.until(self.complete)
        except TimeoutError:
            print(json.dumps(self.member.status(), indent=1), file=sys.stderr)
            raise

    async def picture(self) -> JSON:
        """The end state, once it stands still: status is written before what follows from it."""
        found, before = await self._picture(), None
        while found != before:
            # Longer than until the next look at a gateway that complains.
            await asyncio.sleep(10.0)
            found, before = await self._picture(), found
        return found

    async def _picture(self) -> JSON:
        """Without what differs from run to run."""
        found = await Simulation(self.client, self.member.name).picture()
        for thing in found.values():
            route = thing.get("data", {}).get("route.json")
            if route:
                # Rises with every write of the route, and a crash may need one more.
                thing["data"]["route.json"] = {**json.loads(route), "sequence": None}
        status = self.member.status()
        found["status"] = {
            "stable": {k: status["stable"][k] for k in ("hash", "revision", "replicas")},
            "failed": status.get("failedRevisions"),
            "conditions": {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]},
        }
        return found

    async def __aexit__(self, *_: object) -> None:
        keep_logs(self._folder)
        await super().__aexit__()


def keep_logs(folder: Path) -> None:
    """Of every process of this world, for whoever asks why."""
    kept = LOGS / folder.name
    kept.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        (kept / log.name).write_bytes(log.read_bytes())


_UNVERIFIED = 'Cluster(os.environ["API_SERVER"], Path(os.environ["TOKEN_FILE"]))'
_VERIFIED = _UNVERIFIED[:-1] + ', Path(os.environ["AUTHORITY"]))'
