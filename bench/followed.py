"""Objects as a watch tells them: asking for them again and again would be the load."""

import asyncio
from contextlib import AsyncExitStack
from typing import Self

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.reflector import Reflector, Store
from speculative_operator.cluster.resources import JSON, Key, Resource


class Followed:
    """Some kinds of one namespace, `async with`; what it knows is there on entering."""

    def __init__(self, client: Client, namespace: str, *kinds: Resource) -> None:
        self._reflectors = {
            kind: Reflector(client, kind, wake=self._changed, namespace=namespace) for kind in kinds
        }
        self._change = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for reflector in self._reflectors.values():
            running = asyncio.create_task(reflector.run())
            self._stack.callback(running.cancel)
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def store(self, kind: Resource) -> Store:
        """What is known of a kind; one's own writes are put there too."""
        return self._reflectors[kind].store

    def all(self, kind: Resource) -> list[JSON]:
        """Every object of a kind."""
        store = self.store(kind)
        owners = store.keys()
        return [thing for key in owners for thing in store.of(key).values()]

    def next_change(self) -> asyncio.Event:
        """Set once something has changed after this call."""
        return self._change

    def _changed(self, _key: Key, _by_a_person: bool) -> None:
        self._change.set()
        self._change = asyncio.Event()
