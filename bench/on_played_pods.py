"""SpeculativeDeployments whose gateways and workers are only answers (`bench.played_pods`).

A real API server and the operator's program, and no Envoy beside them: what the
operator needs by itself, as where each gateway has a machine.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bench.asked import JSON, Asked, of_all
from bench.followed import Followed
from bench.played_pods import PlayedPods
from bench.scale_world import a_parent, a_server, an_operator

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import CONFIG_MAP, SPECULATIVE_DEPLOYMENT

NAMESPACE = "operated"
PORT = 18_083
ROLLOUT: JSON = {"steps": [{"weight": 50}, {"pause": {}}], "guard": {"durationSeconds": 0}}


class OnPlayedPods(Asked):
    """One of them; `bench.abort` asks it."""

    async def until_weight_zero(self, revision: str, *, every: float) -> float | None:
        """None: there is no Envoy to ask."""
        del revision, every
        return None


@asynccontextmanager
async def on_played_pods(gateways: int, rollouts: int) -> AsyncIterator[list[OnPlayedPods]]:
    """So many resources with a canary each."""
    async with AsyncExitStack() as stack:
        server, folder = stack.enter_context(a_server())
        client = await stack.enter_async_context(Client(server.access))
        await stack.enter_async_context(an_operator(server, folder, PORT))
        await stack.enter_async_context(PlayedPods(client, NAMESPACE))
        seen = Followed(client, NAMESPACE, SPECULATIVE_DEPLOYMENT, CONFIG_MAP)
        await stack.enter_async_context(seen)
        members = [OnPlayedPods(NAMESPACE, f"chat-{number}") for number in range(rollouts)]
        for member in members:
            member.client, member.seen = client, seen
            body = a_parent(
                NAMESPACE, member.name, rollout=ROLLOUT, gateway={"replicas": gateways}, lanes={}
            )
            await client.create(SPECULATIVE_DEPLOYMENT, body)
        await of_all("serving", members, Asked.is_serving)
        for member in members:
            await member.edit({"spec": {"speculation": {"numSpeculativeTokens": 6}}})
        yield members
