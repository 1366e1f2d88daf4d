"""When a gateway says that it lets somebody in: not before its Envoy does."""

import asyncio
from pathlib import Path

import pytest
from tests.gateway.harness import STABLE
from tests.gateway.played_envoy import an_agent, until

from speculative_api import gateway
from speculative_gateway import storage
from speculative_gateway.configuration import from_files
from speculative_gateway.render import Endpoint
from speculative_gateway.settings import Settings
from speculative_gateway.source import Observation

KEY = b"alices-own-key"
MEMBERS = ("chat", "code")
ENDPOINTS = {f"{name}-a": (Endpoint("192.0.2.1"),) for name in MEMBERS}


def a_route(name: str, **fields: gateway.Auth) -> str:
    backend = gateway.Backend(hash=STABLE, service=f"{name}-a", weight=100)
    route = gateway.Route(
        owner_uid=name, sequence=1, model=name, default=STABLE, backends=(backend,), **fields
    )
    return route.model_dump_json(by_alias=True)


def of_one(keys: dict[str, bytes]) -> Observation:
    auth = gateway.Auth(api_keys_secret="chat-keys")
    return Observation(
        route=a_route("chat", auth=auth), endpoints=ENDPOINTS, secrets={"chat-keys": keys}
    )


def of_two(keys: dict[str, bytes]) -> Observation:
    """`code` lets in everybody."""
    accesses = {"chat": gateway.Access(auth=gateway.Auth(api_keys_secret="chat-keys"))}
    shared = gateway.SharedGateway(
        schema_version=2,
        members=tuple(
            gateway.Member(name=n, owner_uid=n, access=accesses.get(n, gateway.Access()))
            for n in MEMBERS
        ),
    )
    return Observation(
        shared=shared.model_dump_json(by_alias=True),
        routes={name: a_route(name) for name in MEMBERS},
        endpoints=ENDPOINTS,
        secrets={"chat-keys": keys},
    )


def is_written(folder: Path) -> bool:
    """Whether Envoy was told of the key."""
    return KEY.decode() in str(from_files(storage.read(folder / "xds")).routes)


@pytest.mark.asyncio
async def test_keys_that_came_open_the_gateway_once_envoy_uses_them(tmp_path: Path) -> None:
    """Else clients are sent here, and refused, while it is only being told."""
    async with an_agent(Settings(directory=tmp_path)) as (agent, envoy):
        agent.changed(of_one({}))
        await until(lambda: (tmp_path / storage.APPLIED_FILE).exists())
        assert not agent.ready
        envoy.may_answer.clear()
        agent.changed(of_one({"alice": KEY}))
        await until(lambda: is_written(tmp_path))
        assert not agent.ready
        envoy.may_answer.set()
        await until(lambda: agent.ready)
        # and closes at once
        envoy.may_answer.clear()
        agent.changed(of_one({}))
        await until(lambda: not agent.ready)


@pytest.mark.asyncio
async def test_so_does_a_member_of_a_shared_one(tmp_path: Path) -> None:
    async with an_agent(Settings(directory=tmp_path, shared_gateway="edge")) as (agent, envoy):
        agent.changed(of_two({}))
        await until(lambda: agent.ready)
        envoy.shown = await envoy.routes()
        agent.changed(of_two({"alice": KEY}))
        await until(lambda: is_written(tmp_path))
        assert [(await agent.state(name)).ready for name in MEMBERS] == [False, True]
        envoy.shown = None
        async with asyncio.timeout(10):
            while not (await agent.state("chat")).ready:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
