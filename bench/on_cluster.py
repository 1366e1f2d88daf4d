"""SpeculativeDeployments with simulated workers on the local cluster (`make cluster-up images`).

The operator is a process of its own, as in the end-to-end tests; gateways and
workers are pods. Weights are what the agents read back from their Envoys.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import aiohttp
from bench.asked import Asked, of_all
from bench.followed import Followed
from e2e.conftest import prepare
from e2e.dsl import a_trial
from e2e.kubectl import kubeconfig

from speculative_api import labels
from speculative_operator.cluster.access import access
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import CONFIG_MAP, POD, SPECULATIVE_DEPLOYMENT

ROLLOUT = {"steps": [{"weight": 50}, {"pause": {}}], "guard": {"durationSeconds": 0}}


class OnCluster(Asked):
    """One of them; `bench.abort` asks it."""

    session: aiohttp.ClientSession

    async def until_weight_zero(self, revision: str, *, every: float) -> float:
        """When the last agent had read back that its Envoy gives it nothing (loop time)."""
        selector = f"{labels.NAME}={self.name},{labels.COMPONENT}={labels.COMPONENT_GATEWAY}"
        pods, _ = await self.client.list_all(POD, self.namespace, selector=selector)
        addresses = [pod["status"]["podIP"] for pod in pods]
        zeros = (self._zero(each, revision, every) for each in addresses)
        return max(await asyncio.gather(*zeros))

    async def _zero(self, address: str, revision: str, every: float) -> float:
        url = f"http://{address}:{labels.AGENT_PORT}/state"
        while True:
            async with self.session.get(url) as answer:
                clusters = (await answer.json()).get("clusters", ())
            if not any(each["weight"] for each in clusters if each["hash"] == revision):
                return asyncio.get_running_loop().time()
            await asyncio.sleep(every)


@asynccontextmanager
async def on_cluster(gateways: int, rollouts: int) -> AsyncIterator[list[OnCluster]]:
    """So many resources with a canary each, in a namespace of their own."""
    prepare()
    spec = {"rollout": ROLLOUT, "gateway": {"replicas": gateways}}
    async with AsyncExitStack() as stack:
        trial = stack.enter_context(a_trial("abort"))
        trials = [replace(trial, name=f"chat-{number}") for number in range(rollouts)]
        proofs = await access(kubeconfig=str(kubeconfig()))
        client = await stack.enter_async_context(Client(proofs))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        seen = Followed(client, trial.namespace, SPECULATIVE_DEPLOYMENT, CONFIG_MAP)
        await stack.enter_async_context(seen)
        members = []
        for each in trials:
            member = OnCluster(trial.namespace, each.name)
            member.client, member.session, member.seen = client, session, seen
            members.append(member)
            await asyncio.to_thread(each.apply, k=4, **spec)
        await of_all("serving", members, Asked.is_serving)
        for each in trials:
            await asyncio.to_thread(each.apply, k=6, **spec)
        yield members
