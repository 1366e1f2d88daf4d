"""What a resource costs: requests and passes, counted. `make bench-scale` has the seconds."""

import itertools
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, NOW, UID, a_raw_spec
from tests.reconcile.test_gather import Silence

from speculative_operator import reconcile
from speculative_operator.cluster.access import Access
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    CHILDREN,
    DEPLOYMENT,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
    Resource,
)
from speculative_operator.cluster.wire import error_of
from speculative_operator.errors import Failing
from speculative_operator.reconcile import Reconciler
from speculative_operator.settings import Settings

KEY = (NAMESPACE, NAME)
WEBHOOK = "policy.example.com"


class Accepting(Client):
    """An API server that takes everything as it is sent, and counts."""

    def __init__(self) -> None:
        super().__init__(Access("http://nowhere"))
        self.sent: Counter[str] = Counter()
        self.events: list[JSON] = []
        self.failing_kind = ""
        """A webhook that has to be asked about it is down."""
        self.parent: JSON = {
            "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": UID, "generation": 1},
            "spec": a_raw_spec(lanes={"native": {"replicas": 1}}),
        }
        self._numbers = itertools.count(1)
        self._stored: dict[tuple[str, str], JSON] = {}

    def stamped(self, thing: JSON) -> JSON:
        number = next(self._numbers)
        kept: JSON = json.loads(json.dumps(thing))
        kept["metadata"] = {"uid": f"uid-{number}"} | kept["metadata"]
        kept["metadata"]["resourceVersion"] = str(number)
        return kept

    async def request(
        self, verb: str, resource: Resource, method: str, path: str, **settings: Any
    ) -> tuple[int, JSON]:
        self.sent[verb if resource.kind != "Event" else "event"] += 1
        if resource.kind == self.failing_kind and method != "GET":
            raise error_of(500, f'{verb} {path}: 500 failed calling webhook "{WEBHOOK}"')
        if resource.kind == "Event":
            self.events.append(settings["body"])
        if verb == "patch-status":
            self.parent = self.stamped(self.parent | {"status": settings["body"]["status"]})
            return 200, self.parent
        if verb == "get":
            return 200, self._stored[resource.kind, path.rsplit("/", 1)[1]]
        known = self._stored.get((resource.kind, path.rsplit("/", 1)[1]), {})
        stored = self.stamped(settings["body"] if verb != "patch" else known)
        self._stored[resource.kind, stored["metadata"]["name"]] = stored
        return 201, stored


class World:
    """One resource, and passes over it at a time that stands still unless moved."""

    def __init__(self) -> None:
        self.client = Accepting()
        self.stores = {resource.kind: Store(resource) for resource in WATCHED}
        self.stores[SPECULATIVE_DEPLOYMENT.kind].put(self.client.stamped(self.client.parent))
        self.now = NOW
        self.reconciler = Reconciler(
            self.client, self.stores, Silence(), Settings(), utc_now=lambda: self.now
        )

    async def passes(self, count: int) -> Counter[str]:
        """What they sent."""
        self.client.sent.clear()
        for _ in range(count):
            await self.reconciler.look(KEY)
        return +self.client.sent

    def children(self) -> list[JSON]:
        return [t for kind in CHILDREN for t in self.stores[kind.kind].of(KEY).values()]


async def test_a_new_resource_costs_one_request_per_child_and_one_write_of_status() -> None:
    world = World()
    sent = await world.passes(2)
    assert sent == {"create": len(world.children()), "patch-status": 1, "event": 1}
    assert await world.passes(1) == {}


@pytest.fixture
async def settled() -> World:
    """A world in which nothing is left to do."""
    world = World()
    await world.passes(3)
    return world


async def test_unchanged_world_is_not_rendered_again(
    settled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rendered(*_: Any) -> None:
        raise AssertionError("rendered")

    monkeypatch.setattr(reconcile.objects, "desired_objects", rendered)
    settled.now += timedelta(seconds=60)
    assert await settled.passes(1) == {}


async def test_child_that_somebody_changed_is_corrected(settled: World) -> None:
    live = next(iter(settled.stores[DEPLOYMENT.kind].of(KEY).values()))
    changed = settled.client.stamped(live)
    changed["spec"]["replicas"] = 17
    settled.stores[DEPLOYMENT.kind].put(changed)
    sent = await settled.passes(1)
    assert sent["apply"] == 1


async def test_child_that_somebody_deleted_comes_back(settled: World) -> None:
    live = next(iter(settled.stores[DEPLOYMENT.kind].of(KEY).values()))
    settled.stores[DEPLOYMENT.kind].drop(live)
    assert await settled.passes(1) == {"create": 1}


async def test_edit_of_the_spec_is_acted_on(settled: World) -> None:
    parent = settled.client.stamped(settled.client.parent)
    parent["metadata"]["generation"] = 2
    parent["spec"]["gateway"] = {"replicas": 3}
    settled.stores[SPECULATIVE_DEPLOYMENT.kind].put(parent)
    sent = await settled.passes(1)
    assert sent["apply"] == 1


async def test_a_webhook_that_is_down_stops_its_own_kind_alone_and_is_told_once() -> None:
    world = World()
    world.client.failing_kind = "Service"
    for _ in range(3):
        with pytest.raises(Failing, match=WEBHOOK):
            await world.passes(1)
    made = {thing["kind"] for thing in world.children()}
    assert {"Deployment", "ConfigMap", "ControllerRevision"} <= made
    assert "Service" not in made
    (told,) = [each for each in world.client.events if each["reason"] == "NotApplied"]
    assert told["type"] == "Warning"
    assert f'Service/{NAME}-gateway: failed calling webhook "{WEBHOOK}"' in told["message"]
    # and when it is back there is nothing left to say
    world.client.failing_kind = ""
    await world.passes(3)
    assert "Service" in {thing["kind"] for thing in world.children()}
    assert len([each for each in world.client.events if each["reason"] == "NotApplied"]) == 1
