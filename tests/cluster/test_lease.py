"""Two operators: one works; a holder that can't renew ends before another takes over."""

import asyncio
from contextlib import suppress
from typing import Any

from tests.cluster.fake_api import a_client, a_fake_api
from tests.cluster.waiting import until

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.lease import Lease

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/operator"


def a_lease(client: Client, identity: str, **settings: Any) -> Lease:
    values = {"duration": 1.0} | settings
    return Lease(client, namespace="ops", name="operator", identity=identity, **values)


async def test_second_waits_until_the_first_releases() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        first, second = a_lease(client, "a"), a_lease(client, "b")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        holding = asyncio.create_task(first.hold())
        count = len(fake.requests)
        await until(lambda: len(fake.requests) > count + 8)
        assert not waiting.done()
        holding.cancel()
        with suppress(asyncio.CancelledError):
            await holding
        await first.release()
        await asyncio.wait_for(waiting, 0.6)
        assert fake.objects[PATH]["spec"]["holderIdentity"] == "b"
        assert fake.objects[PATH]["spec"]["leaseTransitions"] == 3


async def test_dead_holder_is_replaced_after_one_duration_without_change() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        await a_lease(client, "dead").acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait_for(a_lease(client, "b").acquire(), 3)
        assert 0.9 <= loop.time() - began < 2.0


async def test_holder_behind_a_hung_server_ends_before_its_lease_does() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lost: list[float] = []
        loop = asyncio.get_running_loop()
        lease = a_lease(client, "a", on_lost=lambda: lost.append(loop.time()))
        await lease.acquire()
        began = loop.time()
        fake.hang = True
        await asyncio.wait_for(lease.hold(), 3)
        assert lost
        assert lost[0] - began < 0.95
        assert not lease.held


async def test_holder_survives_a_short_outage() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lost: list[str] = []
        lease = a_lease(client, "a", on_lost=lambda: lost.append("lost"))
        await lease.acquire()
        version = fake.objects[PATH]["metadata"]["resourceVersion"]
        fake.refuse = 2
        task = asyncio.create_task(lease.hold())
        await until(lambda: fake.objects[PATH]["metadata"]["resourceVersion"] != version)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert not lost
