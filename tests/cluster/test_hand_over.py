"""Shards become more or fewer while operators come and go: no namespace ever has two."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import combinations

import pytest
from tests.cluster.fake_api import FakeApi, a_client, a_fake_api
from tests.cluster.waiting import until

from speculative_operator import leading
from speculative_operator.cluster.claims import Claims, lease_name
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.crd import Findings
from speculative_operator.cluster.lease import Lease
from speculative_operator.leading import Leadership
from speculative_operator.shard import Shard
from speculative_operator.telemetry import Telemetry

PATIENCE_SECONDS = 30.0


class Work:
    """Notes who works, and that no two of them share a namespace."""

    def __init__(self, at_work: dict[str, Shard], name: str, shard: Shard) -> None:
        self._at_work, self._name, self._shard = at_work, name, shard

    def begin(self) -> None:
        self._at_work[self._name] = self._shard
        for (one, first), (two, second) in combinations(self._at_work.items(), 2):
            assert not first.overlaps(second), f"{one} ({first}) and {two} ({second}) work"

    async def end(self) -> None:
        self._at_work.pop(self._name, None)


class World:
    """Operators of one installation, or of several, over one API server."""

    def __init__(self, client: Client, lease_seconds: float) -> None:
        self.client = client
        self.lease_seconds = lease_seconds
        self.at_work: dict[str, Shard] = {}
        self.operators: dict[str, Leadership] = {}
        self.telemetry: dict[str, Telemetry] = {}

    def starts(self, name: str, shard: Shard, installation: str = "ops") -> Leadership:
        telemetry = self.telemetry[name] = Telemetry()
        lease = Lease(
            self.client,
            namespace="kube-public",
            name=lease_name(shard),
            identity=f"{installation}/{name}",
            installation=installation,
            shard=shard,
            duration=self.lease_seconds,
        )
        lease._period = 0.02
        claims = Claims(
            self.client,
            watch_namespace="",
            installation=installation,
            foreign_seconds=60,
            shard=shard,
        )
        work = Work(self.at_work, name, shard)
        found = Leadership(lease, claims, work, telemetry, compare_crd=current, remedy="")
        self.operators[name] = found
        found.start()
        return found

    async def ends(self, *names: str) -> None:
        await asyncio.gather(*(self.operators.pop(name).resign() for name in names))

    async def until_at_work(self, *names: str) -> None:
        await until(lambda: set(self.at_work) == set(names), seconds=PATIENCE_SECONDS)


async def current() -> Findings:
    return Findings()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASK_AGAIN_SECONDS", "HANDED_OVER_SECONDS", "UNKNOWN_SECONDS"):
        monkeypatch.setattr(leading, name, 0.005)


async def in_world(
    play: Callable[[World, FakeApi], Awaitable[None]], *, lease_seconds: float = 30.0
) -> None:
    """Nobody loses a Lease that long because the machine is busy."""
    async with a_fake_api() as fake, a_client(fake) as client:
        world = World(client, lease_seconds)
        await play(world, fake)
        await world.ends(*tuple(world.operators))
        assert world.at_work == {}


async def test_shards_of_one_number_work_side_by_side() -> None:
    async def play(world: World, _: FakeApi) -> None:
        for index in range(3):
            world.starts(f"{index}/3", Shard(index, 3))
        await world.until_at_work("0/3", "1/3", "2/3")

    await in_world(play)


async def test_a_standby_takes_over_its_own_shard_alone() -> None:
    async def play(world: World, _: FakeApi) -> None:
        world.starts("a", Shard(0, 2))
        world.starts("b", Shard(1, 2))
        await world.until_at_work("a", "b")
        world.starts("standby of a", Shard(0, 2))
        await world.ends("a")
        await world.until_at_work("standby of a", "b")

    await in_world(play)


@pytest.mark.parametrize("before, after", [(1, 2), (2, 3), (3, 2), (2, 1), (2, 4)])
async def test_more_or_fewer_shards_wait_until_the_old_ones_they_overlap_left(
    before: int, after: int
) -> None:
    async def play(world: World, fake: FakeApi) -> None:
        old = {f"old {i}": Shard(i, before) for i in range(before)}
        new = {f"new {i}": Shard(i, after) for i in range(after)}
        for name, shard in old.items():
            world.starts(name, shard)
        await world.until_at_work(*old)
        for name, shard in new.items():
            world.starts(name, shard)
        count = len(fake.requests)
        await until(lambda: len(fake.requests) > count + 3 * after)
        assert set(world.at_work) == set(old)
        waiting = [world.operators[name].not_ready() for name in new]
        assert waiting == [""] * after, "the old ones leave only when the new ones are ready"
        left = dict(old)
        for name in old:
            await world.ends(name)
            del left[name]
            free = {
                n
                for n, s in new.items()
                if not any(
                    s.overlaps(other) or lease_name(s) == lease_name(other)
                    for other in left.values()
                )
            }
            await world.until_at_work(*left, *free)

    await in_world(play)


async def test_whoever_comes_last_gives_way_however_they_come() -> None:
    """Two numbers of shards at once, as after half an upgrade: nobody works twice, some do."""

    async def play(world: World, _: FakeApi) -> None:
        for _round in range(3):
            names = {f"{i}/{n}": Shard(i, n) for n in (2, 3) for i in range(n)}
            for name, shard in names.items():
                world.starts(name, shard)
            await until(lambda: world.at_work, seconds=PATIENCE_SECONDS)
            await world.ends(*names)

    await in_world(play)


async def test_another_installation_is_named_and_not_waited_for_silently() -> None:
    async def play(world: World, _: FakeApi) -> None:
        world.starts("a", Shard(1, 2), "left")
        await world.until_at_work("a")
        other = world.starts("b", Shard(0, 1), "right")
        await until(lambda: "acts on" in other.not_ready())
        assert "left/a acts on shard 1/2 of the namespaces" in other.not_ready()
        assert "kube-public/speculative-operator-1" in other.not_ready()
        assert "uninstall it" in other.not_ready()
        assert b"speculative_operator_blocked 1.0" in world.telemetry["b"].exposition()
        assert set(world.at_work) == {"a"}

    await in_world(play)


async def test_shards_that_died_together_are_waited_for_together() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        for index in range(1, 4):
            metadata = {
                "name": f"speculative-operator-{index}",
                "namespace": "kube-public",
                "annotations": {"speculative.dev/shard": f"{index}/4"},
            }
            path = f"/apis/coordination.k8s.io/v1/namespaces/kube-public/leases/{metadata['name']}"
            spec = {"holderIdentity": "ops/dead", "leaseDurationSeconds": 30}
            fake.put(path, {"metadata": metadata, "spec": spec})
        claims = Claims(client, watch_namespace="", installation="", foreign_seconds=60)
        assert await claims.hindrance() is not None
        seen = {place[1]: observed.version for place, observed in claims._observed.items()}
        assert len(seen) == 3
        assert all(seen.values()), "one of them begins to be waited for when another is over"


async def test_a_lost_lease_leaves_the_shard_to_an_overlapping_one() -> None:
    """The old holder's Lease has another name, so that no write of it says who came after."""

    async def play(world: World, fake: FakeApi) -> None:
        world.starts("old", Shard(1, 2))
        await world.until_at_work("old")
        fake.refuse = -1
        await until(lambda: not world.at_work)
        world.starts("new", Shard(2, 3))
        fake.refuse = 0
        await until(lambda: world.at_work)
        await world.ends("old")
        await world.until_at_work("new")

    await in_world(play, lease_seconds=0.6)
