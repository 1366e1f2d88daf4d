"""Two operators: one works; a holder that can't renew stops writing before another takes over."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.cluster.fake_api import FakeApi, a_client, a_fake_api
from tests.cluster.waiting import until

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.lease import INSTALLATION, Lease, Observed
from speculative_operator.cluster.resources import CONFIG_MAP, LEASE
from speculative_operator.errors import Unavailable

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/operator"
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "one", "namespace": "ops"},
}


def a_lease(client: Client, identity: str, **settings: Any) -> Lease:
    values = {"duration": 1.2} | settings
    return Lease(client, namespace="ops", name="operator", identity=identity, **values)


def holder(fake: FakeApi) -> str:
    return str(fake.objects[PATH]["spec"]["holderIdentity"])


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_second_waits_until_the_first_releases() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        first, second = a_lease(client, "a"), a_lease(client, "b")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        holding = asyncio.create_task(first.hold())
        count = len(fake.requests)
        await until(lambda: len(fake.requests) > count + 8)
        assert not waiting.done()
        await cancelled(holding)
        await first.release()
        await asyncio.wait_for(waiting, 10)
        assert holder(fake) == "b"
        assert fake.objects[PATH]["spec"]["leaseTransitions"] == 3


async def test_standby_sees_the_release_and_reads_nothing_before() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        first, second = a_lease(client, "a", duration=600.0), a_lease(client, "b", duration=600.0)
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await until(lambda: fake.watching)
        first._period = 0.05
        holding = asyncio.create_task(first.hold())
        count = len(fake.requests)
        await until(lambda: len(fake.requests) > count + 8)
        assert {method for method, _ in fake.requests[count:]} == {"PUT"}
        assert not waiting.done()
        await cancelled(holding)
        await first.release()
        # Its next look of its own would be after a sixth of the duration: 100 seconds.
        await asyncio.wait_for(waiting, 10)
        assert holder(fake) == "b"


async def test_lease_deleted_by_somebody_is_free() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        await a_lease(client, "a", duration=600.0).acquire()
        waiting = asyncio.create_task(a_lease(client, "b", duration=600.0).acquire())
        await until(lambda: fake.watching)
        fake.remove(PATH)
        await asyncio.wait_for(waiting, 10)
        assert holder(fake) == "b"


async def replace_a_dead_holder(mode: str) -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        await a_lease(client, "dead", duration=1.0).acquire()
        fake.mode = mode
        loop = asyncio.get_running_loop()
        began = loop.time()
        count = len(fake.requests)
        await asyncio.wait_for(a_lease(client, "b", duration=1.0).acquire(), 10)
        assert loop.time() - began >= 0.9, mode
        # A sixth of the duration between two attempts, whatever becomes of the watch.
        assert len(fake.requests) - count < 20, mode


async def test_dead_holder_is_replaced_after_one_duration_without_change() -> None:
    """However the watch behaves."""
    modes = ("live", "mute", "ends", "gone", "forbidden")
    await asyncio.gather(*(replace_a_dead_holder(mode) for mode in modes))


async def test_holder_seen_alive_only_by_watching_is_not_replaced() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        first, second = a_lease(client, "a", duration=1.0), a_lease(client, "b", duration=1.0)
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        holding = asyncio.create_task(first.hold())
        versions = set[str]()

        def renewed() -> bool:
            versions.add(fake.objects[PATH]["metadata"]["resourceVersion"])
            return len(versions) > 8

        await until(renewed)
        assert holder(fake) == "a"
        await cancelled(holding)
        await cancelled(waiting)


async def test_where_watches_are_refused_the_release_is_seen_by_asking() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        fake.mode = "forbidden"
        first = a_lease(client, "a")
        await first.acquire()
        waiting = asyncio.create_task(a_lease(client, "b").acquire())
        count = len(fake.requests)
        await until(lambda: len(fake.requests) > count + 2)
        await first.release()
        await asyncio.wait_for(waiting, 10)
        assert holder(fake) == "b"


async def test_a_renewal_is_one_request() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lease = a_lease(client, "a")
        await lease.acquire()
        count = len(fake.requests)
        holding = asyncio.create_task(lease.hold())
        await until(lambda: len(fake.requests) >= count + 3)
        await cancelled(holding)
        assert {method for method, _ in fake.requests[count:]} == {"PUT"}


async def test_holder_behind_a_hung_server_ends_before_its_lease_does() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lease = a_lease(client, "a", duration=2.0)
        await lease.acquire()
        fake.hang = True
        observer = Observed()
        observer.see(fake.objects[PATH])
        await asyncio.wait_for(lease.hold(), 10)
        assert not lease.valid
        # Whoever saw the last renewal would have to wait on.
        assert observer.left(fake.objects[PATH], installation="", foreign_seconds=0) > 0


async def test_holder_whose_lease_was_taken_stops_at_once() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lease = a_lease(client, "a", duration=30.0)
        await lease.acquire()
        taken = fake.objects[PATH] | {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 30}}
        fake.put(PATH, taken)
        lease._period = 0.05
        await asyncio.wait_for(lease.hold(), 10)
        assert not lease.valid
        assert holder(fake) == "b"


async def test_holder_survives_a_short_outage() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lease = a_lease(client, "a")
        await lease.acquire()
        version = fake.objects[PATH]["metadata"]["resourceVersion"]
        fake.refuse = 2
        task = asyncio.create_task(lease.hold())
        await until(lambda: fake.objects[PATH]["metadata"]["resourceVersion"] != version)
        await cancelled(task)
        assert lease.valid


async def test_lost_lease_can_be_acquired_again() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        lease = a_lease(client, "a")
        await lease.acquire()
        fake.refuse = -1
        await asyncio.wait_for(lease.hold(), 10)
        fake.refuse = 0
        await asyncio.wait_for(lease.acquire(), 10)
        assert lease.valid


@pytest.mark.parametrize("held", [True, False], ids=["held", "released"])
async def test_another_installation_waits_longer_than_a_standby(held: bool) -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        first = a_lease(client, "x/1", installation="x", duration=0.6)
        await first.acquire()
        if not held:
            await first.release()
        other = a_lease(client, "y/1", installation="y", duration=0.6, foreign_seconds=60)
        waiting = asyncio.create_task(other.acquire())
        await until(lambda: other.foreign_holder)
        assert "x" in other.foreign_holder
        standby = a_lease(client, "x/2", installation="x", duration=0.6)
        await asyncio.wait_for(standby.acquire(), 2)
        await cancelled(waiting)
        assert holder(fake) == "x/2"


async def test_another_installation_takes_over_what_was_left_alone() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        await a_lease(client, "x/1", installation="x", duration=0.3).acquire()
        other = a_lease(client, "y/1", installation="y", duration=0.3, foreign_seconds=0.6)
        await asyncio.wait_for(other.acquire(), 10)
        assert fake.objects[PATH]["metadata"]["annotations"][INSTALLATION] == "y"
        assert other.foreign_holder == ""


async def test_no_write_leaves_without_the_lease_but_reads_and_leases_do() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        client.fence = lambda: False
        before = len(fake.requests)
        for call in (client.create(CONFIG_MAP, CONFIG), client.apply(CONFIG_MAP, CONFIG)):
            with pytest.raises(Unavailable, match="Lease is not held"):
                await call
        assert len(fake.requests) == before
        await client.list_all(CONFIG_MAP)
        await a_lease(client, "a").acquire()
        await client.get(LEASE, "ops", "operator")


async def test_a_write_that_waited_for_its_connection_is_stopped_there() -> None:
    """The process may have been stopped while the connection was made."""
    async with a_fake_api() as fake, a_client(fake) as client:
        answers = iter([True, False])
        client.fence = lambda: next(answers)
        with pytest.raises(Unavailable, match="Lease is not held"):
            await client.create(CONFIG_MAP, CONFIG)
        assert not [path for method, path in fake.requests if method == "POST"]
