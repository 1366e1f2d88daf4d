"""Pods that are only answers: what controllers, kubelets, workers and agents would do.

Each Deployment gets its pods at once, ready, each with a loopback address of its
own where its worker's digest or its agent's state is served: as many requests each
second as there are answers to count, all alike, so that nothing is ever decided.
"""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from aiohttp import web
from bench.ready_pods import a_ready_pod

from speculative_api import labels
from speculative_api.gateway import ROUTE_KEY, ClusterState, GatewayState, Route
from speculative_api.worker import Digest, Latency
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.queue import Queue
from speculative_operator.cluster.reflector import Reflector
from speculative_operator.cluster.resources import CONFIG_MAP, DEPLOYMENT, JSON, POD, Key
from speculative_operator.desired import names

REQUESTS_PER_SECOND = 2.0
"""At each worker."""
BOUNDS = tuple(round(0.01 * 1.6**step, 4) for step in range(20))
"""Of histograms, in seconds: as many as vLLM's."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class _Pod:
    name: str
    key: Key
    address: str
    revision: str
    since: float


class PlayedPods:
    """`async with`; follows the Deployments of one namespace until it is left."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        queue = Queue(self._follow, workers=4)
        self._queue = queue
        self._deployments, self._routes = (
            Reflector(client, kind, wake=queue.wake, namespace=namespace)
            for kind in (DEPLOYMENT, CONFIG_MAP)
        )
        self._pods: dict[str, list[_Pod]] = {}
        """By Deployment."""
        self._by_address: dict[str, _Pod] = {}
        self._stack = AsyncExitStack()
        self._runners: dict[str, web.AppRunner] = {}

    async def __aenter__(self) -> Self:
        for component, answer in (
            (labels.COMPONENT_WORKER, self._digest),
            (labels.COMPONENT_GATEWAY, self._state),
        ):
            application = web.Application()
            application.router.add_get("/{path:.*}", answer)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            self._stack.push_async_callback(runner.cleanup)
            self._runners[component] = runner
        loop = asyncio.get_running_loop()
        for work in (self._deployments.run(), self._routes.run(), self._queue.run()):
            self._stack.callback(loop.create_task(work).cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _follow(self, key: Key) -> None:
        for name, deployment in dict(self._deployments.store.of(key)).items():
            pods = self._pods.setdefault(name, [])
            while len(pods) < deployment["spec"]["replicas"]:
                pods.append(await self._start(key, deployment))
            while len(pods) > deployment["spec"]["replicas"]:
                await self._end(pods.pop())
        gone = [n for n, pods in self._pods.items() if pods and pods[0].key == key]
        for name in set(gone) - set(self._deployments.store.of(key)):
            for pod in self._pods.pop(name):
                await self._end(pod)

    async def _start(self, key: Key, deployment: JSON) -> _Pod:
        shown = deployment["spec"]["template"]["metadata"]["labels"]
        number = next(_numbers)
        address = f"127.{31 + number // 60_000}.{number // 240 % 250}.{number % 240 + 1}"
        name = f"{deployment['metadata']['name']}-{number}"
        pod = _Pod(name, key, address, shown.get(labels.REVISION, ""), time.time())
        self._by_address[address] = pod
        component = shown[labels.COMPONENT]
        port = labels.AGENT_PORT if component == labels.COMPONENT_GATEWAY else labels.WORKER_PORT
        await web.TCPSite(self._runners[component], address, port).start()
        await a_ready_pod(self._client, key[0], name, address, shown)
        return pod

    async def _end(self, pod: _Pod) -> None:
        path = POD.path(pod.key[0], pod.name)
        await self._client.request("end", POD, "DELETE", path, query={"gracePeriodSeconds": "0"})

    def _asked(self, request: web.Request) -> _Pod:
        if request.transport is None:
            raise web.HTTPServiceUnavailable
        return self._by_address[request.transport.get_extra_info("sockname")[0]]

    async def _digest(self, request: web.Request) -> web.Response:
        pod, now = self._asked(request), time.time()
        requests = int(REQUESTS_PER_SECOND * (now - pod.since))
        counts = tuple(min(requests, requests * step // 12) for step in range(1, 21))
        latency = Latency(source="vllm:x", bounds_seconds=BOUNDS, counts=counts, count=requests)
        digest = Digest(
            pod=pod.name,
            revision=pod.revision,
            ready=True,
            engine_started_at=pod.since,
            sampled_at=now,
            method="NGram",
            num_speculative_tokens=4,
            requests_finished=requests,
            generated_tokens=120 * requests,
            draft_tokens=160 * requests,
            accepted_tokens=60 * requests,
            running=4,
            waiting=0,
            ttft=latency,
            itl=latency,
            e2e=latency,
        )
        return _json(digest.model_dump_json(by_alias=True))

    async def _state(self, request: web.Request) -> web.Response:
        pod, now = self._asked(request), time.time()
        stored = self._routes.store.of(pod.key).get(names.route(pod.key[1]))
        if stored is None:
            return web.Response(status=503)
        route = Route.model_validate_json(stored["data"][ROUTE_KEY])
        answered = int(REQUESTS_PER_SECOND * (now - pod.since))
        backends = [*route.backends, *([route.native] if route.native else [])]
        clusters = tuple(
            ClusterState(
                hash=backend.hash,
                weight=backend.weight,
                endpoints=1,
                # Who gets no more ends what it has, as fast as it can.
                active=int(backend.weight > 0),
                responses={"2xx": answered},
            )
            for backend in backends
        )
        state = GatewayState(
            pod=pod.name,
            envoy_started_at=pod.since,
            sampled_at=now,
            owner_uid=route.owner_uid,
            sequence=route.sequence,
            ready=True,
            clusters=clusters,
        )
        return _json(state.model_dump_json(by_alias=True))


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
