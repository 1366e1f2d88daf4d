"""The mirror follows the world whatever happens to its watch (H20)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.fake_api import FakeApi, a_client, a_fake_api
from tests.cluster.waiting import until

from speculative_api import labels
from speculative_operator.cluster.reflector import Pace, Reflector, Store
from speculative_operator.cluster.resources import CONFIG_MAP, SPECULATIVE_DEPLOYMENT, Key

FAST = Pace(server=30, silent=0.3, first_backoff=0.01, longest_backoff=0.05)
PARENT = "/apis/speculative.dev/v1alpha1/namespaces/llm/speculativedeployments"
CHILD = "/api/v1/namespaces/llm/configmaps"


def a_parent(name: str = "chat", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "llm", "generation": 1, **metadata}}


def a_child(name: str = "chat-route", **fields: Any) -> dict[str, Any]:
    mine = {labels.NAME: "chat", labels.MANAGED_BY: labels.MANAGER}
    return {"metadata": {"name": name, "namespace": "llm", "labels": mine}, **fields}


class Woken(list[tuple[Key, bool]]):
    def __call__(self, key: Key, by_a_person: bool) -> None:
        self.append((key, by_a_person))


def lists(fake: FakeApi) -> list[str]:
    return [path for method, path in fake.requests if method == "GET" and "watch=" not in path]


@asynccontextmanager
async def running(
    fake: FakeApi, woken: Woken, *, resource: Any = SPECULATIVE_DEPLOYMENT, pace: Pace = FAST
) -> AsyncIterator[Reflector]:
    async with a_client(fake) as client:
        reflector = Reflector(client, resource, wake=woken, pace=pace)
        task = asyncio.create_task(reflector.run())
        try:
            await until(reflector.synced.is_set)
            yield reflector
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_first_list_and_later_changes_wake_their_owner() -> None:
    async with a_fake_api() as fake:
        fake.put(f"{PARENT}/chat", a_parent())
        woken = Woken()
        async with running(fake, woken) as reflector:
            assert woken == [(("llm", "chat"), True)]
            await until(lambda: fake.watching)
            fake.put(f"{PARENT}/other", a_parent("other"))
            await until(lambda: len(woken) == 2)
            assert woken[1] == (("llm", "other"), True)
            assert set(reflector.store.keys()) == {("llm", "chat"), ("llm", "other")}


async def test_silent_watch_is_noticed_and_what_was_created_meanwhile_is_found() -> None:
    async with a_fake_api() as fake:
        fake.mode = "silent"
        woken = Woken()
        async with running(fake, woken) as reflector:
            fake.put(f"{PARENT}/chat", a_parent())
            await until(lambda: woken)
            assert ("llm", "chat") in reflector.store.keys()  # noqa: SIM118
            # A server says nothing of kinds that nobody changes: thousands are not read for that.
            assert len(lists(fake)) == 1


async def test_what_stays_silent_for_long_is_listed_all_the_same() -> None:
    async with a_fake_api() as fake:
        fake.mode = "mute"
        woken = Woken()
        pace = replace(FAST, silent=0.03)
        async with running(fake, woken, pace=pace) as reflector:
            fake.put(f"{PARENT}/chat", a_parent())
            await until(lambda: woken)
            assert ("llm", "chat") in reflector.store.keys()  # noqa: SIM118
            assert len(lists(fake)) >= 2


async def test_expired_watch_lists_again_and_handles_the_gap_once() -> None:
    async with a_fake_api() as fake:
        fake.put(f"{PARENT}/chat", a_parent())
        woken = Woken()
        async with running(fake, woken):
            await until(lambda: fake.watching)
            fake.put(f"{PARENT}/chat", a_parent(generation=2), announce=False)
            fake.mode = "gone"
            fake.cut()
            await until(lambda: len(woken) == 2)
            await until(lambda: fake.watching)
            assert woken == [(("llm", "chat"), True)] * 2


async def test_cut_streams_lose_and_duplicate_nothing() -> None:
    async with a_fake_api() as fake:
        woken = Woken()
        async with running(fake, woken) as reflector:
            for number in range(10):
                await until(lambda: fake.watching)
                fake.put(f"{PARENT}/chat", a_parent(generation=number), announce=number % 2 == 0)
                fake.cut()
                await until(lambda n=number: len(woken) == n + 1)
            assert reflector.store.of(("llm", "chat"))["chat"]["metadata"]["generation"] == 9
            assert len(woken) == 10


async def test_relist_wakes_owners_of_what_vanished_while_away() -> None:
    async with a_fake_api() as fake:
        fake.put(f"{CHILD}/chat-route", a_child())
        fake.put(f"{CHILD}/chat-evidence", a_child("chat-evidence"))
        woken = Woken()
        async with running(fake, woken, resource=CONFIG_MAP) as reflector:
            await until(lambda: fake.watching)
            woken.clear()
            fake.remove(f"{CHILD}/chat-route", announce=False)
            fake.cut()
            await until(lambda: woken)
            assert woken == [(("llm", "chat"), False)]
            assert set(reflector.store.of(("llm", "chat"))) == {"chat-evidence"}


@pytest.mark.parametrize(
    "page",
    [
        b"<html><body>Log in to the network</body></html>",
        b'{"kind": "List", "metadata": {"resourceVersion": "9"}, "items": [{"meta',
        b"{}",
        b"[]",
        b'{"kind": "Status", "status": "Success", "metadata": {}}',
        b'{"metadata": {}, "items": []}',
        b'{"metadata": {"resourceVersion": "9"}, "items": {}}',
    ],
)
async def test_a_page_that_is_no_list_makes_nothing_vanish(page: bytes) -> None:
    """With 200, from a proxy in between: else every resource and pod would be gone."""
    async with a_fake_api() as fake:
        fake.put(f"{PARENT}/chat", a_parent())
        woken = Woken()
        async with running(fake, woken) as reflector:
            await until(lambda: fake.watching)
            fake.page = page
            seen = len(lists(fake))
            fake.cut()
            await until(lambda: len(lists(fake)) >= seen + 2)
            assert ("llm", "chat") in reflector.store.keys()  # noqa: SIM118
            assert len(woken) == 1
            fake.page = b""
            fake.put(f"{PARENT}/chat", a_parent(generation=2))
            await until(lambda: len(woken) == 2)


async def test_server_that_ends_every_watch_is_not_hammered() -> None:
    async with a_fake_api() as fake:
        fake.mode = "ends"
        async with running(fake, Woken()):
            began = asyncio.get_running_loop().time()
            await until(lambda: len(fake.requests) > 10)
            assert asyncio.get_running_loop().time() - began > 0.05


async def test_children_are_selected_by_the_server_and_managed_fields_dropped() -> None:
    async with a_fake_api() as fake:
        thing = a_child()
        thing["metadata"]["managedFields"] = [{"manager": "x"}]
        fake.put(f"{CHILD}/chat-route", thing)
        async with running(fake, Woken(), resource=CONFIG_MAP) as reflector:
            kept = reflector.store.of(("llm", "chat"))["chat-route"]
            assert "managedFields" not in kept["metadata"]
            assert kept["kind"] == "ConfigMap"
            assert f"labelSelector={labels.MANAGED_BY}" in fake.requests[0][1]


def test_own_write_is_not_undone_by_an_older_event() -> None:
    store = Store(SPECULATIVE_DEPLOYMENT)
    store.put(a_parent(resourceVersion="7", uid="u"))
    assert store.put(a_parent(resourceVersion="6", uid="u")) is None
    assert store.of(("llm", "chat"))["chat"]["metadata"]["resourceVersion"] == "7"


def test_own_write_is_not_lost_by_a_list_that_began_before_it() -> None:
    store = Store(SPECULATIVE_DEPLOYMENT)
    store.put(a_parent(resourceVersion="9", uid="u"))
    store.replace([], "8")
    assert ("llm", "chat") in store.keys()  # noqa: SIM118


def test_deletion_of_the_old_object_does_not_drop_its_successor() -> None:
    store = Store(SPECULATIVE_DEPLOYMENT)
    store.put(a_parent(resourceVersion="9", uid="new"))
    assert store.drop(a_parent(resourceVersion="8", uid="old")) is None


def test_restored_server_with_lower_versions_replaces_everything() -> None:
    store = Store(SPECULATIVE_DEPLOYMENT)
    store.replace([a_parent(resourceVersion="90", uid="u")], "91")
    changed = store.replace([a_parent(resourceVersion="5", uid="u")], "6")
    assert changed == {("llm", "chat")}
    assert store.of(("llm", "chat"))["chat"]["metadata"]["resourceVersion"] == "5"


@pytest.mark.parametrize(
    "field,value,expected",
    [
        ("generation", 2, True),
        ("annotations", {labels.PROMOTE: "x"}, True),
        ("deletionTimestamp", "2026-01-01T00:00:00Z", True),
        ("resourceVersion", "99", False),
    ],
)
async def test_only_spec_and_annotations_count_as_a_persons_change(
    field: str, value: Any, expected: bool
) -> None:
    async with a_fake_api() as fake:
        fake.put(f"{PARENT}/chat", a_parent())
        woken = Woken()
        async with running(fake, woken):
            await until(lambda: fake.watching)
            fake.put(f"{PARENT}/chat", a_parent(**{field: value}))
            await until(lambda: len(woken) == 2)
            assert woken[1] == (("llm", "chat"), expected)
