"""A SpeculativeDeployment with simulated workers on the local cluster (`make cluster-up images`).

The operator is a process of its own, as in the end-to-end tests; gateways and
workers are pods. Weights are what the agents read back from their Envoys.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Self

import aiohttp
from bench.asked import POLL_SECONDS, Asked
from e2e.conftest import prepare
from e2e.dsl import a_trial
from e2e.kubectl import kubeconfig

from speculative_api import labels
from speculative_operator.cluster.access import access
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import POD

ROLLOUT = {"steps": [{"weight": 50}, {"pause": {}}], "guard": {"durationSeconds": 0}}


class OnCluster(Asked):
    """The whole, as an async context; what `bench.abort` asks of a world."""

    def __init__(self, gateways: int) -> None:
        super().__init__()
        self._gateways = gateways
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _begin(self) -> None:
        prepare()
        trial = self._stack.enter_context(a_trial("abort"))
        self.namespace, self.name = trial.namespace, trial.name
        proofs = await access(kubeconfig=str(kubeconfig()))
        self.client = await self._stack.enter_async_context(Client(proofs))
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        spec = {"rollout": ROLLOUT, "gateway": {"replicas": self._gateways}}
        await asyncio.to_thread(trial.apply, k=4, **spec)
        await self.until(self.is_serving)
        await asyncio.to_thread(trial.apply, k=6, **spec)

    async def until_weight_zero(self, revision: str) -> float:
        """When the last agent had read back that its Envoy gives it nothing (loop time)."""
        selector = f"{labels.NAME}={self.name},{labels.COMPONENT}={labels.COMPONENT_GATEWAY}"
        pods, _ = await self.client.list_all(POD, self.namespace, selector=selector)
        addresses = [pod["status"]["podIP"] for pod in pods]
        return max(await asyncio.gather(*(self._zero(each, revision) for each in addresses)))

    async def _zero(self, address: str, revision: str) -> float:
        url = f"http://{address}:{labels.AGENT_PORT}/state"
        while True:
            async with self._session.get(url) as answer:
                clusters = (await answer.json()).get("clusters", ())
            if not any(each["weight"] for each in clusters if each["hash"] == revision):
                return asyncio.get_running_loop().time()
            await asyncio.sleep(POLL_SECONDS)
