"""The Kubernetes source against a small API server of our own: lists, watches, losses."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.gateway.harness import eventually

from speculative_gateway import kubernetes
from speculative_gateway.kubernetes import Cluster, FromKubernetes, endpoints_of
from speculative_gateway.render import Endpoint
from speculative_gateway.secret_watch import secret_names
from speculative_gateway.settings import Settings
from speculative_gateway.source import Observation

MAPS = "/api/v1/namespaces/llm/configmaps"
SECRETS = "/api/v1/namespaces/llm/secrets"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"


class Api:
    """Lists what `items` holds; a watch sends what is put into its queue."""

    def __init__(self) -> None:
        self.base = ""
        self.items: dict[str, list[dict[str, Any]]] = {MAPS: [], SLICES: [], SECRETS: []}
        self.queries: list[tuple[str, dict[str, str], str]] = []
        self.watches: dict[str, asyncio.Queue[dict[str, Any] | None]] = {}
        self.watching = asyncio.Event()
        self.denied = True
        """Whether reading Secrets is not granted."""
        self.pages: list[bytes] = []
        """What the next lists of slices are answered with, and 200: a proxy's page, or half."""
        self.forbidden = ""
        """Name of one that is not, beside others that are."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One list or one watch; None in the queue ends the watch."""
        query = dict(request.query)
        self.queries.append((request.path, query, request.headers.get("authorization", "")))
        forbidden = query.get("fieldSelector") == f"metadata.name={self.forbidden}"
        if request.path == SECRETS and (self.denied or forbidden):
            return web.json_response({"message": "forbidden"}, status=403)
        if "watch" not in query:
            if self.pages and request.path == SLICES:
                return web.Response(body=self.pages.pop(0))
            return web.json_response(
                {"metadata": {"resourceVersion": "1"}, "items": self.items[request.path]}
            )
        response = web.StreamResponse()
        await response.prepare(request)
        queue = self.watches[request.path] = asyncio.Queue()
        if self.watches.keys() >= {MAPS, SLICES}:
            self.watching.set()
        while (event := await queue.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@asynccontextmanager
async def an_api() -> AsyncIterator[Api]:
    """A running one."""
    api = Api()
    application = web.Application()
    application.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        for queue in api.watches.values():
            queue.put_nowait(None)
        await runner.cleanup()


CHAT = Settings(namespace="llm", route_config_map="chat-route", name="chat")
EDGE = Settings(namespace="llm", route_config_map="edge-gateway", shared_gateway="edge")


async def observations(
    api: Api, tmp_path: Path, settings: Settings = CHAT
) -> AsyncIterator[Observation]:
    """What the source reports, one after the other."""
    token = tmp_path / "token"
    token.write_text("one\n")
    source = FromKubernetes(settings, Cluster(api.base, token_file=token))
    queue: asyncio.Queue[Observation] = asyncio.Queue()
    task = asyncio.create_task(source.watch(queue.put_nowait))
    try:
        while True:
            yield await asyncio.wait_for(queue.get(), 10)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def a_map(route: str) -> dict[str, Any]:
    """The route's ConfigMap."""
    return {"metadata": {"name": "chat-route"}, "data": {"route.json": route}}


def a_slice(name: str, *addresses: str, **conditions: bool) -> dict[str, Any]:
    """An EndpointSlice of Service chat-a."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "chat-a"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [each], "conditions": conditions} for each in addresses],
    }


@pytest.mark.parametrize(
    "page",
    [
        b"<html><body>Log in to the network</body></html>",
        b'{"metadata": {"resourceVersion": "9"}, "items": [{"meta',
        b"{}",
        b"[]",
        b'{"metadata": {}, "items": []}',
        b'{"metadata": {"resourceVersion": "9"}, "items": [{}]}',
    ],
)
async def test_a_page_that_is_no_list_leaves_every_endpoint(page: bytes, tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        api.items[MAPS] = [a_map("{}")]
        api.items[SLICES] = [a_slice("s", "10.0.0.1")]
        before = await anext(seen)
        assert before.endpoints == {"chat-a": (Endpoint("10.0.0.1"),)}
        await asyncio.wait_for(api.watching.wait(), 10)
        api.pages = [page]
        # no event either, after which it is listed anew
        api.watches[SLICES].put_nowait({"what": "ever"})
        api.items[SLICES] = [a_slice("s", "10.0.0.2")]
        assert (await anext(seen)).endpoints == {"chat-a": (Endpoint("10.0.0.2"),)}
        assert not api.pages


async def test_only_what_belongs_to_the_resource_is_asked_for(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        api.items[MAPS] = [a_map("{}")]
        assert await anext(seen) == Observation(route="{}", endpoints={})
        await asyncio.wait_for(api.watching.wait(), 10)
        asked = {
            (path, query.get("fieldSelector", query.get("labelSelector")))
            for path, query, _ in api.queries
        }
        assert asked == {
            (MAPS, "metadata.name=chat-route"),
            (SLICES, "speculative.dev/name=chat"),
        }
        assert {authorization for _, _, authorization in api.queries} == {"Bearer one"}


async def test_a_shared_gateway_asks_for_its_own_and_its_members_objects(tmp_path: Path) -> None:
    def a_member(name: str, text: str) -> dict[str, Any]:
        return {"metadata": {"name": f"{name}-member"}, "data": {"route.json": text}}

    shared = {"metadata": {"name": "edge-gateway"}, "data": {"shared.json": "{}"}}
    async with an_api() as api, aclosing(observations(api, tmp_path, EDGE)) as seen:
        api.items[MAPS] = [shared, a_member("chat", "1"), a_member("code", "2"), a_map("3")]
        found = await anext(seen)
        assert found == Observation(shared="{}", routes={"chat": "1", "code": "2"})
        await asyncio.wait_for(api.watching.wait(), 10)
        asked = {(path, query.get("labelSelector")) for path, query, _ in api.queries}
        ours = "speculative.dev/gateway=edge"
        assert asked == {(MAPS, ours), (SLICES, ours)}
        api.watches[MAPS].put_nowait({"type": "DELETED", "object": a_member("code", "2")})
        assert (await anext(seen)).routes == {"chat": "1"}


async def test_changes_are_followed(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        assert (await anext(seen)).route is None
        await asyncio.wait_for(api.watching.wait(), 10)
        api.watches[MAPS].put_nowait({"type": "ADDED", "object": a_map("1")})
        assert (await anext(seen)).route == "1"
        added = {"type": "ADDED", "object": a_slice("s", "10.0.0.1")}
        api.watches[SLICES].put_nowait(added)
        assert (await anext(seen)).endpoints == {"chat-a": (Endpoint("10.0.0.1"),)}
        api.watches[SLICES].put_nowait({"type": "DELETED", "object": a_slice("s")})
        assert (await anext(seen)).endpoints == {}


async def test_a_list_replaces_what_vanished_while_the_watch_was_away(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        api.items[SLICES] = [a_slice("gone", "10.0.0.1"), a_slice("stays", "10.0.0.2")]
        assert len((await anext(seen)).endpoints["chat-a"]) == 2
        await asyncio.wait_for(api.watching.wait(), 10)
        api.items[SLICES] = [a_slice("stays", "10.0.0.2")]
        api.watches[SLICES].put_nowait(None)
        assert (await anext(seen)).endpoints == {"chat-a": (Endpoint("10.0.0.2"),)}


async def test_an_expired_watch_lists_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "BACKOFF_SECONDS", (0.0,))
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        await anext(seen)
        await asyncio.wait_for(api.watching.wait(), 10)
        (tmp_path / "token").write_text("two\n")
        api.items[MAPS] = [a_map("2")]
        expired = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
        api.watches[MAPS].put_nowait(expired)
        assert (await anext(seen)).route == "2"
        assert api.queries[-1][2] == "Bearer two"


ROUTE = json.dumps({"auth": {"apiKeysSecret": "chat-keys"}})


def a_secret(**keys: str) -> dict[str, Any]:
    """The Secret with the API keys."""
    data = {name: b64encode(key.encode()).decode() for name, key in keys.items()}
    return {"metadata": {"name": "chat-keys"}, "data": data}


async def until_keys(
    seen: AsyncIterator[Observation], expected: dict[str, dict[str, bytes]]
) -> Observation:
    """The first observation with these."""
    async with asyncio.timeout(10):
        while True:
            found = await anext(seen)
            if found.secrets == expected:
                return found


async def test_where_it_is_granted_a_removed_key_is_seen_at_once(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        api.denied = False
        api.items[MAPS] = [a_map(ROUTE)]
        api.items[SECRETS] = [a_secret(alice="one", bob="two")]
        await until_keys(seen, {"chat-keys": {"alice": b"one", "bob": b"two"}})

        async def watched() -> bool:
            return SECRETS in api.watches

        await eventually(watched, bool, "the Secret is watched")
        changed = {"type": "MODIFIED", "object": a_secret(bob="two")}
        count = len(api.queries)
        api.watches[SECRETS].put_nowait(changed)
        await until_keys(seen, {"chat-keys": {"bob": b"two"}})
        # Two seconds are promised to users: by the event itself, and not by reading it anew.
        assert len(api.queries) == count
        api.watches[SECRETS].put_nowait({"type": "DELETED", "object": a_secret()})
        await until_keys(seen, {"chat-keys": {}})
        asked = {query["fieldSelector"] for path, query, _ in api.queries if path == SECRETS}
        assert asked == {"metadata.name=chat-keys"}


async def test_where_it_is_not_granted_what_is_mounted_counts(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        api.items[MAPS] = [a_map(ROUTE)]
        assert (await anext(seen)).secrets == {}

        async def refused() -> bool:
            return any(path == SECRETS for path, _, _ in api.queries)

        await eventually(refused, bool, "it was tried")
        await asyncio.wait_for(api.watching.wait(), 10)
        api.watches[MAPS].put_nowait({"type": "MODIFIED", "object": a_map(ROUTE + " ")})
        found = await anext(seen)
        assert (found.route, found.secrets) == (ROUTE + " ", {})


async def test_another_secret_is_followed_once_the_route_names_it(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path)) as seen:
        api.denied = False
        api.items[MAPS] = [a_map(ROUTE)]
        api.items[SECRETS] = [a_secret(alice="one")]
        await until_keys(seen, {"chat-keys": {"alice": b"one"}})
        await asyncio.wait_for(api.watching.wait(), 10)
        other = {"metadata": {"name": "others"}, "data": {"carol": "!no base64", "dave": "eA=="}}
        api.items[SECRETS] = [other]
        route = json.dumps({"auth": {"apiKeysSecret": "others"}})
        api.watches[MAPS].put_nowait({"type": "MODIFIED", "object": a_map(route)})
        found = await until_keys(seen, {"others": {"dave": b"x"}})
        assert found.route == route
        assert "eA" not in repr(found)


def an_edge(*secrets: str) -> dict[str, Any]:
    """The ConfigMap of a gateway whose members each have a Secret of their own."""
    own = [{"name": each, "access": {"auth": {"apiKeysSecret": each}}} for each in secrets]
    data = {"shared.json": json.dumps({"members": own})}
    return {"metadata": {"name": "edge-gateway"}, "data": data}


async def test_the_secret_of_each_member_is_followed_where_that_is_granted(tmp_path: Path) -> None:
    async with an_api() as api, aclosing(observations(api, tmp_path, EDGE)) as seen:
        api.denied, api.forbidden = False, "two"
        api.items[MAPS] = [an_edge("one", "two", "gone")]
        api.items[SECRETS] = [
            {"metadata": {"name": name}, "data": {name: b64encode(b"x").decode()}}
            for name in ("one", "two")
        ]
        await until_keys(seen, {"one": {"one": b"x"}, "gone": {}})
        asked = {query["fieldSelector"] for path, query, _ in api.queries if path == SECRETS}
        assert asked == {f"metadata.name={name}" for name in ("one", "two", "gone")}
        await asyncio.wait_for(api.watching.wait(), 10)
        api.watches[MAPS].put_nowait({"type": "MODIFIED", "object": an_edge("one", "two")})
        await until_keys(seen, {"one": {"one": b"x"}})


@pytest.mark.parametrize(
    "route",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        '{"auth": null}',
        '{"auth": 3}',
        '{"members": 3}',
        '{"members": [{"access": null}, {"access": {"auth": {}}}]}',
    ],
)
def test_a_route_without_keys_names_no_secret(route: str | None) -> None:
    assert secret_names(route) == frozenset()


@pytest.mark.parametrize(
    "conditions, ready",
    [
        ({}, True),
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": True, "terminating": True}, False),
    ],
    ids=["nothing said", "ready", "not ready", "terminating"],
)
def test_only_ready_and_not_terminating_endpoints_count(
    conditions: dict[str, bool], ready: bool
) -> None:
    found = endpoints_of([a_slice("s", "10.0.0.1", **conditions)])
    assert found == {"chat-a": (Endpoint("10.0.0.1"),) if ready else ()}


def test_slices_of_one_service_are_joined_and_host_names_left_out() -> None:
    names = {**a_slice("names", "worker.example"), "addressType": "FQDN"}
    joined = endpoints_of([a_slice("a", "10.0.0.2"), a_slice("b", "10.0.0.1", "10.0.0.2"), names])
    assert joined == {"chat-a": (Endpoint("10.0.0.1"), Endpoint("10.0.0.2"))}
