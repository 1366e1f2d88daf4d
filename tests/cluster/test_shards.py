"""Namespaces divided among operators: each has one owner, whatever the number of shards."""

import asyncio
from contextlib import suppress
from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.cluster.fake_api import a_client, a_fake_api
from tests.cluster.waiting import until
from tests.reconcile.test_gather import Silence

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.lease import Lease
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import CONFIG_MAP, SPECULATIVE_DEPLOYMENT
from speculative_operator.cluster.ring import Ring
from speculative_operator.operation import Operation
from speculative_operator.settings import Settings
from speculative_operator.shard import MOST_SHARDS, Shard, place
from speculative_operator.telemetry import Telemetry

NAMESPACES = [f"team-{number}" for number in range(900)]


def shards(count: int) -> list[Shard]:
    return [Shard(index, count) for index in range(count)]


SMALL = [shard for count in range(1, 6) for shard in shards(count)]
PIECES = 60
"""Of which each shard of SMALL has a whole number."""


def pieces(shard: Shard) -> set[int]:
    return set(range(int(shard.start * PIECES), int(shard.end * PIECES)))


def test_every_namespace_has_exactly_one_owner_whatever_the_number() -> None:
    for count in range(1, MOST_SHARDS + 1):
        for namespace in NAMESPACES[:30]:
            (owner,) = [shard for shard in shards(count) if shard.owns(namespace)]
            assert owner.start <= Fraction(place(namespace), 2**64) < owner.end


def test_two_shards_overlap_where_they_have_a_piece_in_common() -> None:
    """Only so can those who do not overlap be at work together."""
    for first, second in product(SMALL, SMALL):
        assert first.overlaps(second) == bool(pieces(first) & pieces(second)), (first, second)


@pytest.mark.parametrize("count", [1, 2, 31, 32])
def test_shards_of_one_number_never_overlap(count: int) -> None:
    assert not [(a, b) for a, b in combinations(shards(count), 2) if a.overlaps(b)]


@settings(max_examples=30)
@given(some.sampled_from(SMALL), some.lists(some.sampled_from(SMALL), max_size=6))
def test_a_shard_is_covered_when_each_of_its_pieces_is_held(own: Shard, held: list[Shard]) -> None:
    assert own.is_covered(held) == (pieces(own) <= set().union(*map(pieces, held)))


@pytest.mark.parametrize(
    "before, after, others",
    [
        (Shard(0, 2), 4, [Shard(0, 4), Shard(1, 4)]),
        (Shard(0, 2), 3, [Shard(0, 3), Shard(1, 3)]),
        (Shard(2, 3), 2, [Shard(1, 2)]),
        (Shard(1, 3), 2, [Shard(0, 2), Shard(1, 2)]),
        (Shard(0, 1), 3, shards(3)),
    ],
    ids=str,
)
def test_a_change_of_number_is_waited_for_by_neighbours_alone(
    before: Shard, after: int, others: list[Shard]
) -> None:
    assert [shard for shard in shards(after) if shard.overlaps(before)] == others


def test_many_namespaces_are_divided_evenly() -> None:
    sizes = [sum(shard.owns(name) for name in NAMESPACES) for shard in shards(3)]
    assert sum(sizes) == 900
    assert min(sizes) > 250


def test_a_place_is_the_same_in_every_version() -> None:
    assert place("llm") == 0x487B91042C7CF27A
    assert place("team-1") == 0x7E2A2D5F9A3050F8


@pytest.mark.parametrize(
    "text, found",
    [
        ("1/3", Shard(1, 3)),
        ("", Shard()),
        ("3/3", Shard()),
        ("-1/3", Shard()),
        ("0/33", Shard()),
        ("x/y", Shard()),
        ("1", Shard()),
    ],
)
def test_what_is_no_shard_counts_as_the_whole(text: str, found: Shard) -> None:
    """An annotation of a Lease that somebody spoilt then excludes everybody."""
    assert Shard.parse(text) == found
    assert Shard.parse(str(found)) == found


@pytest.mark.parametrize(
    "environment, words",
    [
        ({"SHARD": "3", "SHARDS": "3"}, "no shard 3 of 3"),
        ({"SHARD": "0", "SHARDS": "0"}, "no shard 0 of 0"),
        ({"SHARD": "0", "SHARDS": "33"}, "of 1 to 32"),
        ({"SHARDS": "2", "WATCH_NAMESPACE": "llm"}, "SHARDS=2 with WATCH_NAMESPACE=llm"),
    ],
    ids=["beyond the last", "none", "too many", "a single namespace"],
)
def test_settings_that_cannot_be_are_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Settings.from_environment(environment)


def test_settings_name_the_shard() -> None:
    assert Settings.from_environment({"SHARD": "1", "SHARDS": "3"}).own_shard == Shard(1, 3)
    assert Settings.from_environment({"WATCH_NAMESPACE": "llm"}).own_shard == Shard()


def test_a_store_keeps_what_is_its_shards() -> None:
    ring = shards(3)
    stores = [Store(SPECULATIVE_DEPLOYMENT, shard=shard) for shard in ring]
    things = [
        {"metadata": {"name": "chat", "namespace": f"team-{n}", "resourceVersion": "5"}}
        for n in range(30)
    ]
    for store in stores:
        store.replace(things[:15], "5")
        for thing in things[15:]:
            store.put(thing)
    kept = [set(store.keys()) for store in stores]
    assert sum(map(len, kept)) == 30
    assert set.union(*kept) == {(f"team-{n}", "chat") for n in range(30)}
    for shard, keys in zip(ring, kept, strict=True):
        assert all(shard.owns(namespace) for namespace, _ in keys)


@pytest.mark.parametrize("serves_metrics", [False, True])
async def test_an_operator_looks_at_its_own_and_knows_all_where_it_serves_metrics(
    serves_metrics: bool,
) -> None:
    """An autoscaler asks any replica of any shard."""
    certificates = "/certificates" if serves_metrics else ""
    own = Shard(0, 2)
    mine = {namespace for namespace in NAMESPACES[:20] if own.owns(namespace)}
    async with a_fake_api() as fake, a_client(fake) as client:
        told = Settings(shard=0, shards=2, external_metrics_certificates=certificates)
        telemetry = Telemetry()
        operation = Operation(client, Silence(), told, telemetry)
        store = operation.stores[SPECULATIVE_DEPLOYMENT.kind]
        for namespace in NAMESPACES[:20]:
            metadata = {"name": "chat", "namespace": namespace, "resourceVersion": "5"}
            store.put({"metadata": metadata})
        operation.begin()
        try:
            for namespace in NAMESPACES[:20]:
                operation.wake((namespace, "chat"))
            assert operation._queue is not None
            assert {namespace for namespace, _ in operation._queue._due} == mine
        finally:
            await operation.end()
        keys = store.keys()
        known = {namespace for namespace, _ in keys}
        assert known == (set(NAMESPACES[:20]) if serves_metrics else mine)
        line = f"speculative_operator_resources {len(mine)}.0".encode()
        assert line in telemetry.exposition()


async def test_pages_of_a_list_are_not_kept_longer_than_needed() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        for name in ("one", "two"):
            path = f"/api/v1/namespaces/{name}/configmaps/{name}"
            fake.put(path, {"metadata": {"name": name, "namespace": name}})
        found, _ = await client.list_all(
            CONFIG_MAP, keep=lambda item: item["metadata"]["namespace"] == "two"
        )
        assert [item["metadata"]["name"] for item in found] == ["two"]


def a_lease(client: Client, shard: Shard) -> Lease:
    name = f"speculative-operator-{shard.index}" if shard.index else "speculative-operator"
    return Lease(
        client,
        namespace="kube-public",
        name=name,
        identity=f"x/{shard}",
        installation="x",
        shard=shard,
        duration=0.4,
    )


async def test_a_shard_without_an_operator_is_seen_by_the_others() -> None:
    shown: dict[str, bool] = {}

    def show(shard: Shard, covered: bool) -> None:
        shown[str(shard)] = covered

    async with a_fake_api() as fake, a_client(fake) as client:
        ring = Ring(client, Shard(0, 2), show=show)
        leases = [a_lease(client, shard) for shard in shards(2)]
        await leases[0].acquire()
        await ring.look()
        assert shown == {"0/2": True, "1/2": False}
        await leases[1].acquire()
        await ring.look()
        assert shown == {"0/2": True, "1/2": True}
        await leases[0].release()
        await ring.look()
        assert shown == {"0/2": False, "1/2": True}


async def test_the_log_names_a_shard_that_stays_without_once_and_not_at_every_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with a_fake_api() as fake, a_client(fake) as client:
        ring = Ring(client, Shard(0, 2), show=lambda *_: None)
        both = [a_lease(client, shard) for shard in shards(2)]
        said: list[str] = []
        for lease in (None, both[0], None, None, both[1]):
            if lease is not None:
                await lease.acquire()
            caplog.clear()
            await ring.look()
            said += [r.message for r in caplog.records if "event=shard" in r.message]
    assert said == [
        "event=shard-without-operator shard=1/2",
        "event=shard-has-an-operator shard=1/2",
    ]


async def test_an_old_shard_covers_what_a_new_one_waits_for() -> None:
    shown: dict[str, bool] = {}
    async with a_fake_api() as fake, a_client(fake) as client:
        ring = Ring(client, Shard(0, 3), show=lambda s, c: shown.update({str(s): c}))
        await a_lease(client, Shard(1, 2)).acquire()
        await ring.look()
        assert shown == {"0/3": False, "1/3": False, "2/3": True}


async def test_a_look_that_fails_does_not_end_the_looks() -> None:
    shown: list[Shard] = []
    async with a_fake_api() as fake, a_client(fake) as client:
        ring = Ring(client, Shard(0, 2), show=lambda s, _: shown.append(s), look_seconds=0.01)
        fake.refuse = 2
        looking = asyncio.create_task(ring.run())
        await until(lambda: len(shown) >= 4)
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


async def test_where_there_is_one_shard_nobody_looks() -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        await Ring(client, Shard(), show=lambda *_: None).run()
        assert fake.requests == []
