"""Writes on a real API server: none without need, none on what is not ours."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.cluster.envtest import Server

from speculative_api import labels
from speculative_operator.cluster.apply import Applier, Outcome, leftovers
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    SERVICE,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
)
from speculative_operator.desired import names
from speculative_operator.errors import Conflict, NotFound, Refused
from speculative_operator.telemetry import Telemetry

pytestmark = pytest.mark.cluster

_numbers = itertools.count()
UID = "0b7f6f9e-0000-4000-8000-000000000001"


class Place:
    """One owner name of its own on the shared server, with a client that counts."""

    def __init__(self, client: Client, telemetry: Telemetry) -> None:
        self.client = client
        self.telemetry = telemetry
        self.name = f"chat{next(_numbers)}"
        self.key = ("default", self.name)
        self.stores = {resource.kind: Store(resource) for resource in WATCHED}
        self.applier = Applier(client, self.stores)

    def body(self, resource: Any = CONFIG_MAP, **fields: Any) -> dict[str, Any]:
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": f"{self.name}-x",
                "namespace": "default",
                "labels": names.common_labels(self.name),
                "ownerReferences": [names.owner_reference(self.name, UID)],
            },
            **fields,
        }

    async def ensure(self, body: dict[str, Any], **settings: Any) -> Outcome:
        return await self.applier.ensure(body, key=self.key, owner_uid=UID, **settings)

    def requests(self) -> float:
        """All that were answered so far."""
        return sum(
            sample.value
            for metric in self.telemetry.requests.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["verb"] != "list"
        )

    async def relist(self) -> None:
        """What a reflector's next list would bring."""
        selector = f"{labels.MANAGED_BY}={labels.MANAGER}"
        for kind, store in self.stores.items():
            resource = next(r for r in WATCHED if r.kind == kind)
            own = resource is SPECULATIVE_DEPLOYMENT
            try:
                items, version = await self.client.list_all(
                    resource, "default", selector="" if own else selector
                )
            except NotFound:
                assert resource.optional, kind
                continue
            for item in items:
                item.update(apiVersion=resource.api_version, kind=resource.kind)
            store.replace(items, version)


@pytest.fixture
async def place(api_server: Server) -> AsyncIterator[Place]:
    telemetry = Telemetry()
    async with Client(api_server.access, observe=telemetry.request) as client:
        yield Place(client, telemetry)


def a_deployment_spec(image: str = "a:1", **template: Any) -> dict[str, Any]:
    selector = {labels.NAME: "x"}
    container = {
        "name": "worker",
        "image": image,
        "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": "2000m"}},
        "ports": [{"name": "http", "containerPort": 8000}],
        "env": [{"name": "A", "value": ""}],
    }
    return {
        "replicas": 0,
        "selector": {"matchLabels": selector},
        "template": {
            "metadata": {"labels": selector},
            "spec": {
                "containers": [container],
                "enableServiceLinks": False,
                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                "hostNetwork": False,
                **template,
            },
        },
    }


SERVICE_SPEC = {
    "clusterIP": "None",
    "selector": {"a": "b"},
    "publishNotReadyAddresses": False,
    "ports": [{"name": "http", "port": 8000, "targetPort": 8000}],
}


@pytest.mark.parametrize(
    "resource,fields",
    [
        (CONFIG_MAP, {"data": {"a": "1"}}),
        (DEPLOYMENT, {"spec": a_deployment_spec()}),
        (SERVICE, {"spec": SERVICE_SPEC}),
    ],
    ids=["ConfigMap", "Deployment with quantities spelt freely", "headless Service"],
)
async def test_second_pass_writes_nothing_also_after_a_restart(
    place: Place, resource: Any, fields: dict[str, Any]
) -> None:
    body = place.body(resource, **fields)
    assert await place.ensure(body) is Outcome.WRITTEN
    assert await place.ensure(body) is Outcome.UNCHANGED
    await place.relist()
    assert await place.ensure(body) is Outcome.UNCHANGED
    place.applier = Applier(place.client, place.stores)
    assert await place.ensure(body) is Outcome.UNCHANGED
    assert place.telemetry.writes() == 1


async def test_drift_is_corrected_and_what_others_added_stays(place: Place) -> None:
    body = place.body(data={"a": "1"})
    await place.ensure(body)
    live = await place.client.get(CONFIG_MAP, "default", body["metadata"]["name"])
    live["data"] = {"a": "2", "b": "theirs"}
    await place.client.replace(CONFIG_MAP, live)
    await place.relist()
    assert await place.ensure(body) is Outcome.WRITTEN
    live = await place.client.get(CONFIG_MAP, "default", body["metadata"]["name"])
    assert live["data"] == {"a": "1", "b": "theirs"}


async def test_field_no_longer_desired_is_removed(place: Place) -> None:
    await place.ensure(place.body(data={"a": "1", "b": "2"}))
    assert await place.ensure(place.body(data={"a": "1"})) is Outcome.WRITTEN
    live = await place.client.get(CONFIG_MAP, "default", f"{place.name}-x")
    assert live["data"] == {"a": "1"}


@pytest.mark.parametrize(
    "resource,first,second,gone",
    [
        (
            SERVICE,
            {"spec": {**SERVICE_SPEC, "sessionAffinity": "ClientIP"}},
            {"spec": SERVICE_SPEC},
            lambda live: live["spec"]["sessionAffinity"] == "None",
        ),
        (
            DEPLOYMENT,
            {"spec": a_deployment_spec(nodeSelector={"a": "b"})},
            {"spec": a_deployment_spec()},
            lambda live: "nodeSelector" not in live["spec"]["template"]["spec"],
        ),
    ],
    ids=["Service", "Deployment"],
)
async def test_first_correction_takes_the_created_fields_over(
    place: Place, resource: Any, first: Any, second: Any, gone: Callable[[Any], bool]
) -> None:
    """A created object's fields are not an apply's, until they are made so."""
    await place.ensure(place.body(resource, **first))
    name = f"{place.name}-x"
    theirs = {"metadata": {"annotations": {"theirs": "1"}}}
    path = resource.path("default", name)
    await place.client.request(
        "edit", resource, "PATCH", path, body=theirs, content_type=MERGE_PATCH
    )
    await place.relist()
    body = place.body(resource, **second)
    assert await place.ensure(body) is Outcome.WRITTEN
    live = await place.client.get(resource, "default", name)
    assert gone(live)
    assert live["metadata"]["annotations"]["theirs"] == "1"
    ours = [e for e in live["metadata"]["managedFields"] if e["manager"] == labels.MANAGER]
    assert [entry["operation"] for entry in ours] == ["Apply"]
    await place.relist()
    before = place.requests()
    assert await place.ensure(body) is Outcome.UNCHANGED
    assert place.requests() == before


async def test_new_object_costs_one_request(place: Place) -> None:
    await place.ensure(place.body(data={"a": "1"}))
    assert place.requests() == 1


async def test_field_that_the_server_lacks_is_refused_and_not_dropped(place: Place) -> None:
    with pytest.raises(Refused, match=r"unheard: field not declared in schema"):
        await place.ensure(place.body(SERVICE, spec={**SERVICE_SPEC, "unheard": 1}))


async def test_foreign_object_of_our_name_is_left_alone(place: Place) -> None:
    body = place.body(data={"a": "1"})
    foreign = {**body, "metadata": {"name": body["metadata"]["name"], "namespace": "default"}}
    foreign["data"] = {"theirs": "1"}
    await place.client.create(CONFIG_MAP, foreign)
    assert await place.ensure(body) is Outcome.TAKEN
    live = await place.client.get(CONFIG_MAP, "default", body["metadata"]["name"])
    assert live["data"] == {"theirs": "1"}
    assert "ownerReferences" not in live["metadata"]


async def test_child_of_a_former_resource_is_waited_out(place: Place) -> None:
    body = place.body(data={"a": "1"})
    former = names.owner_reference(place.name, "0b7f6f9e-0000-4000-8000-00000000dead")
    old = {**body, "metadata": {**body["metadata"], "ownerReferences": [former]}}
    await place.client.create(CONFIG_MAP, old)
    assert await place.ensure(body) is Outcome.WAITING
    await place.relist()
    assert leftovers(place.stores, place.key, UID) == [f"ConfigMap/{place.name}-x"]


async def test_object_replaced_behind_the_cache_is_a_conflict(place: Place) -> None:
    body = place.body(data={"a": "1"})
    await place.ensure(body)
    live = await place.client.get(CONFIG_MAP, "default", body["metadata"]["name"])
    await place.client.delete(CONFIG_MAP, live)
    successor = {"name": body["metadata"]["name"], "namespace": "default"}
    await place.client.create(CONFIG_MAP, {**body, "metadata": successor})
    with pytest.raises(Conflict):
        await place.ensure(place.body(data={"a": "2"}))


async def test_stored_revision_is_created_once_and_never_applied(place: Place) -> None:
    body = place.body(CONTROLLER_REVISION, revision=1, data={"spec": {}, "template": {}})
    assert await place.ensure(body, create_only=True) is Outcome.WRITTEN
    other = {**body, "data": {"spec": {}, "template": {"newer": True}}}
    assert await place.ensure(other, create_only=True) is Outcome.UNCHANGED
    place.stores[CONTROLLER_REVISION.kind].replace([], "999999999")
    assert await place.ensure(other, create_only=True) is Outcome.UNCHANGED


async def test_prune_removes_only_ours_and_never_what_is_protected(place: Place) -> None:
    ours, stable = place.body(data={}), place.body(DEPLOYMENT, spec=a_deployment_spec())
    await place.ensure(ours)
    await place.ensure(stable)
    foreign = place.body(data={})
    foreign["metadata"] = {**foreign["metadata"], "name": f"{place.name}-f", "ownerReferences": []}
    await place.client.create(CONFIG_MAP, foreign)
    await place.relist()
    gone = await place.applier.prune(
        place.key, owner_uid=UID, desired=(), protected=lambda live: live["kind"] == "Deployment"
    )
    assert gone == 1
    with pytest.raises(NotFound):
        await place.client.get(CONFIG_MAP, "default", f"{place.name}-x")
    await place.client.get(CONFIG_MAP, "default", f"{place.name}-f")
    await place.client.get(DEPLOYMENT, "default", f"{place.name}-x")


async def test_status_of_an_older_version_is_a_conflict_and_removed_keys_go(place: Place) -> None:
    body = {
        "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
        "kind": SPECULATIVE_DEPLOYMENT.kind,
        "metadata": {"name": place.name, "namespace": "default"},
        "spec": {
            "target": {"model": "file:///m"},
            "speculation": {"method": "NGram", "numSpeculativeTokens": 4},
        },
    }
    first = await place.client.create(SPECULATIVE_DEPLOYMENT, body)
    stable = {"revision": 1, "hash": "0123456789", "acceptanceLength": "2.5"}
    second = await place.client.set_status(
        SPECULATIVE_DEPLOYMENT, first, {"stable": stable, "message": "m"}
    )
    with pytest.raises(Conflict):
        await place.client.set_status(SPECULATIVE_DEPLOYMENT, first, {"message": "late"})
    third = await place.client.set_status(
        SPECULATIVE_DEPLOYMENT, second, {"stable": {"revision": 1, "hash": "0123456789"}}
    )
    assert not third["status"].get("message")
    assert "acceptanceLength" not in third["status"]["stable"]


async def test_a_client_leaves_no_connection_that_was_cut_off_behind(api_server: Server) -> None:
    """Watches are cut off over TLS right before: their sockets would outlive the loop."""

    def something(name: str) -> dict[str, Any]:
        metadata = {"name": f"{name}-{next(_numbers)}", "namespace": "default"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    async def follow(client: Client, since: str, seen: asyncio.Event) -> None:
        async for _ in client.watch(CONFIG_MAP, resource_version=since):
            seen.set()

    loop: Any = asyncio.get_running_loop()
    async with asyncio.timeout(60), Client(api_server.access) as client:
        made = await client.create(CONFIG_MAP, something("before"))
        since = made["metadata"]["resourceVersion"]
        events = [asyncio.Event() for _ in range(11)]
        watches = [asyncio.create_task(follow(client, since, event)) for event in events]
        await client.create(CONFIG_MAP, something("after"))
        for event in events:
            await event.wait()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    assert [each for each in loop._transports.values() if each._sock is not None] == []
