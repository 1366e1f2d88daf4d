"""A SpeculativeDeployment on loopback: real API server, operator, Envoys and agents.

Gateway pod n is 127.0.2.n, worker pod n is 127.0.3.n, with the ports they have in
a pod; so the operator's program asks them where it would in a cluster. What
controllers and kubelets do is done here, at once.
"""

import asyncio
import contextlib
import itertools
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web
from bench.asked import JSON, POLL_SECONDS, Asked
from tests.cluster import envtest
from tests.reconcile.test_process_on_server import a_kubeconfig

from speculative_api import labels
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import (
    DEPLOYMENT,
    POD,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)
from speculative_operator.errors import ApiError

NAMESPACE, NAME = "default", "chat"
SLICE = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
ADMIN_PORT = 19_901
FOLLOW_SECONDS = 0.02
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


class Loopback(Asked):
    """The whole, as an async context; what `bench.abort` asks of a world."""

    def __init__(self, folder: Path, gateways: int) -> None:
        super().__init__(NAMESPACE, NAME)
        self._folder, self._gateways = folder, gateways
        self._stack = AsyncExitStack()
        self._workers = itertools.count(1)
        self._served: set[str] = set()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _begin(self) -> None:
        server = self._stack.enter_context(envtest.running(self._folder))
        self.client = await self._stack.enter_async_context(Client(server.access))
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        (self._folder / "token").write_text(envtest.TOKEN)
        await self.client.create(SPECULATIVE_DEPLOYMENT, _resource(k=4, replicas=self._gateways))
        follower = asyncio.create_task(self._follow())
        self._stack.callback(follower.cancel)
        for number in range(1, self._gateways + 1):
            await self._start_gateway(number, server.url)
        await self._start(
            "operator",
            ["-m", "speculative_operator"],
            KUBECONFIG=str(a_kubeconfig(server.url, self._folder, "one")),
            IDENTITY="one",
            HTTP_PORT="18082",
            FOREIGN_LEASE_SECONDS="0",
        )
        await self.until(self.is_serving)
        await self.edit({"spec": _resource(k=6, replicas=self._gateways)["spec"]})

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self, name: str, arguments: list[str], **environment: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, env=os.environ | environment, stdout=log, stderr=log
            )
        self._stack.push_async_callback(_end, process)

    async def _start_gateway(self, number: int, url: str) -> None:
        environment = {
            "GATEWAY_DIRECTORY": str(self._folder / f"gateway-{number}"),
            "ADMIN_PORT": str(ADMIN_PORT + number),
            "WAITING_PORT": str(ADMIN_PORT + 100 + number),
            "LISTEN_ADDRESS": f"127.0.2.{number}",
            "POD_NAME": f"{NAME}-gateway-{number}",
            "CONCURRENCY": "1",
            "NAMESPACE": NAMESPACE,
            "SD_NAME": NAME,
            "ROUTE_CONFIGMAP": f"{NAME}-route",
            "DRAIN_SECONDS": "11",
            "DRAIN_MINIMUM_SECONDS": "0",
            "API_SERVER": url,
            "TOKEN_FILE": str(self._folder / "token"),
        }
        supervise = ["-m", "speculative_gateway", "supervise"]
        await self._start(f"envoy-{number}", supervise, **environment)
        await self._start(f"agent-{number}", ["-c", AGENT], **environment)

    # What controllers and kubelets would do.

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                await self._once()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _once(self) -> None:
        deployments = await self._listed(DEPLOYMENT)
        pods = await self._listed(POD)
        for deployment in deployments:
            await self._scale(deployment, [p for p in pods if _of(p) == _of(deployment)])
        wanted = {_of(deployment) for deployment in deployments}
        for pod in pods:
            if _of(pod) not in wanted:
                await self._delete(pod)
        for service in await self._listed(SERVICE):
            if labels.REVISION in service["metadata"]["labels"]:
                await self._endpoints(service)

    async def _scale(self, deployment: JSON, pods: list[JSON]) -> None:
        replicas = deployment["spec"]["replicas"]
        for pod in pods[replicas:]:
            await self._delete(pod)
        for index in range(len(pods), replicas):
            await self._start_pod(deployment, index)

    async def _start_pod(self, deployment: JSON, index: int) -> None:
        shown = deployment["spec"]["template"]["metadata"]["labels"]
        if shown[labels.COMPONENT] == labels.COMPONENT_GATEWAY:
            address = f"127.0.2.{index + 1}"
        else:
            address = f"127.0.3.{next(self._workers) % 200 + 1}"
            await self._serve(address)
        name = f"{deployment['metadata']['name']}-{next(_names)}"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": shown},
            "spec": {
                "containers": [{"name": "main", "image": "image"}],
                "automountServiceAccountToken": False,
            },
        }
        await self.client.create(POD, body)
        status = {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self._merge(POD, name, {"status": status}, "status")

    async def _serve(self, address: str) -> None:
        """A worker that is ready and counts nothing."""
        if address in self._served:
            return
        self._served.add(address)

        async def answer(request: web.Request) -> web.Response:
            now = asyncio.get_running_loop().time()
            return web.json_response(
                {"ready": True, "engineStartedAt": 1.0, "sampledAt": now, "method": "NGram"}
            )

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        for port in (labels.ENGINE_PORT, labels.WORKER_PORT):
            await web.TCPSite(runner, address, port).start()
        self._stack.push_async_callback(runner.cleanup)

    async def _endpoints(self, service: JSON) -> None:
        metadata = service["metadata"]
        revision = metadata["labels"][labels.REVISION]
        pods = [
            pod
            for pod in await self._listed(POD)
            if pod["metadata"]["labels"].get(labels.REVISION) == revision
        ]
        addresses = [p["status"]["podIP"] for p in pods if p.get("status", {}).get("podIP")]
        body = {
            "apiVersion": SLICE.api_version,
            "kind": SLICE.kind,
            "metadata": {
                "name": metadata["name"],
                "namespace": NAMESPACE,
                "labels": {
                    **metadata["labels"],
                    "kubernetes.io/service-name": metadata["name"],
                },
                "ownerReferences": [],
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": labels.ENGINE_PORT}],
            "endpoints": [
                {
                    "addresses": [address.replace("127.0.3.", "192.0.2.")],
                    "conditions": {"ready": True},
                }
                for address in addresses
            ],
        }
        await self.client.apply(SLICE, body)

    async def _listed(self, resource: Resource) -> list[JSON]:
        selector = f"{labels.NAME}={NAME}"
        return (await self.client.list_all(resource, NAMESPACE, selector=selector))[0]

    async def _delete(self, pod: JSON) -> None:
        path = POD.path(NAMESPACE, pod["metadata"]["name"])
        await self.client.request("end", POD, "DELETE", path, query={"gracePeriodSeconds": "0"})

    async def _merge(self, resource: Resource, name: str, patch: JSON, suffix: str = "") -> None:
        path = resource.path(NAMESPACE, name, suffix)
        await self.client.request(
            "edit", resource, "PATCH", path, body=patch, content_type=MERGE_PATCH
        )

    # What a measurement asks.

    async def until_weight_zero(self, revision: str) -> float:
        """When the last Envoy gave it nothing, by its own word (loop time)."""
        return max(
            await asyncio.gather(
                *(self._zero(number, revision) for number in range(1, self._gateways + 1))
            )
        )

    async def _zero(self, number: int, revision: str) -> float:
        url = f"http://127.0.0.1:{ADMIN_PORT + number}/runtime"
        while True:
            async with self._session.get(url) as answer:
                entries = (await answer.json())["entries"]
            if str(entries.get(f"rev.{revision}", {}).get("final_value", "0")) == "0":
                return asyncio.get_running_loop().time()
            await asyncio.sleep(POLL_SECONDS)


_names = itertools.count()


def _of(thing: JSON) -> str:
    """What a pod and its Deployment have in common."""
    own = thing["metadata"]["labels"]
    return f"{own[labels.COMPONENT]}/{own.get(labels.REVISION, '')}"


def _resource(*, k: int, replicas: int) -> JSON:
    return {
        "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
        "kind": SPECULATIVE_DEPLOYMENT.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "target": {"model": "file:///models/target"},
            "speculation": {"method": "NGram", "numSpeculativeTokens": k},
            "gateway": {"replicas": replicas},
            "rollout": ROLLOUT,
        },
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.kill()
            await process.wait()
