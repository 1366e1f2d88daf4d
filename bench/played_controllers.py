"""What controllers and kubelets would do for real gateways on loopback, at once.

Deployments get pods that are ready, Services of revisions their EndpointSlices. A worker
is 127.0.3.n and is served by whoever has the world; in a slice it stands as 192.0.2.n,
since a slice may not hold loopback addresses.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Awaitable, Callable

from bench.followed import Followed
from bench.ready_pods import a_ready_pod

from speculative_api import labels
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import DEPLOYMENT, JSON, POD, SERVICE, Resource
from speculative_operator.errors import ApiError, NotFound

SLICE = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
WORKERS, SHOWN = "127.0.3.", "192.0.2."
"""Where workers are, and what a slice says."""
AGAIN_SECONDS = 0.1
"""After an error of the API server."""
_names = itertools.count()


class PlayedControllers:
    """Follows the objects of one namespace for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        serve: Callable[[str], Awaitable[None]],
        gateway_address: Callable[[str, int], str],
    ) -> None:
        """`serve` makes a worker answer at an address; a gateway's is given by its resource's
        name and its number."""
        self._client, self._namespace = client, namespace
        self._serve, self._gateway_address = serve, gateway_address
        self._objects = Followed(client, namespace, DEPLOYMENT, POD, SERVICE)
        self._workers = itertools.count(1)
        self._told: dict[str, JSON] = {}
        """EndpointSlices as they were written last: again they would be work for the API server."""

    async def run(self) -> None:
        """Until it is cancelled."""
        told = ""
        async with self._objects:
            while True:
                change = self._objects.next_change()
                try:
                    await self._once()
                except ApiError as error:
                    if told != (told := type(error).__name__):
                        # A server that is away for a minute is one line, not hundreds.
                        print(f"following: {error}", file=sys.stderr)
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    told = ""
                    await change.wait()

    async def _once(self) -> None:
        deployments, pods = self._objects.all(DEPLOYMENT), self._objects.all(POD)
        for deployment in deployments:
            await self._scale(deployment, [p for p in pods if _of(p) == _of(deployment)])
        wanted = {_of(deployment) for deployment in deployments}
        for pod in pods:
            if _of(pod) not in wanted:
                await self._delete(pod)
        pods = self._objects.all(POD)
        for service in self._objects.all(SERVICE):
            if labels.REVISION in service["metadata"]["labels"]:
                await self._endpoints(service, pods)

    async def _scale(self, deployment: JSON, pods: list[JSON]) -> None:
        replicas = deployment["spec"]["replicas"]
        for pod in pods[replicas:]:
            await self._delete(pod)
        for index in range(len(pods), replicas):
            await self._start_pod(deployment, index)

    async def _start_pod(self, deployment: JSON, index: int) -> None:
        shown = deployment["spec"]["template"]["metadata"]["labels"]
        if shown[labels.COMPONENT] == labels.COMPONENT_GATEWAY:
            address = self._gateway_address(shown[labels.NAME], index)
        else:
            address = f"{WORKERS}{next(self._workers) % 200 + 1}"
            await self._serve(address)
        name = f"{deployment['metadata']['name']}-{next(_names)}"
        pod = await a_ready_pod(self._client, self._namespace, name, address, shown)
        self._objects.store(POD).put(pod)

    async def _endpoints(self, service: JSON, pods: list[JSON]) -> None:
        metadata = service["metadata"]
        revision = metadata["labels"][labels.REVISION]
        addresses = [
            pod["status"]["podIP"]
            for pod in pods
            if pod["metadata"]["labels"].get(labels.REVISION) == revision
            and pod.get("status", {}).get("podIP")
        ]
        body = {
            "apiVersion": SLICE.api_version,
            "kind": SLICE.kind,
            "metadata": {
                "name": metadata["name"],
                "namespace": self._namespace,
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
                    "addresses": [address.replace(WORKERS, SHOWN)],
                    "conditions": {"ready": True},
                }
                for address in addresses
            ],
        }
        name = metadata["name"]
        if self._told.get(name) != body:
            await self._client.apply(SLICE, body)
            self._told[name] = body

    async def _delete(self, pod: JSON) -> None:
        path = POD.path(self._namespace, pod["metadata"]["name"])
        # It may have gone before its end was told.
        with contextlib.suppress(NotFound):
            await self._client.request(
                "end", POD, "DELETE", path, query={"gracePeriodSeconds": "0"}
            )
        self._objects.store(POD).drop(pod)


def _of(thing: JSON) -> str:
    """What a pod and its Deployment have in common."""
    own = thing["metadata"]["labels"]
    return f"{own[labels.NAME]}/{own[labels.COMPONENT]}/{own.get(labels.REVISION, '')}"
