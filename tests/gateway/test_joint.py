"""Pure: members' routes side by side, and what is tried of them."""

import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from tests.gateway.harness import CANARY, NATIVE, STABLE

from speculative_api import gateway
from speculative_gateway.configuration import (
    Configuration,
    files,
    from_files,
    named_clusters,
    plan,
    shares,
)
from speculative_gateway.joint import MOST_NAMED, alias, joint, part
from speculative_gateway.keys import Keys
from speculative_gateway.many_routes import ManyRoutes
from speculative_gateway.render import NO_KEY_SET, Endpoint, empty
from speculative_gateway.settings import Settings
from speculative_gateway.source import Observation
from speculative_gateway.wants import Credentials

FOLDER = PurePosixPath("/run/gateway/xds")
MEMBERS = ("chat", "code")
ENDPOINTS = {
    f"{name}-{revision}": (Endpoint("10.0.0.1"),)
    for name in MEMBERS
    for revision in (STABLE, CANARY)
}


def a_route(
    name: str, *weights: tuple[str, int], sequence: int = 1, **fields: Any
) -> gateway.Route:
    backends = tuple(
        gateway.Backend(hash=revision, service=f"{name}-{revision}", weight=weight)
        for revision, weight in weights or ((STABLE, 100),)
    )
    return gateway.Route(
        owner_uid=name,
        sequence=sequence,
        model=name,
        default=backends[0].hash,
        backends=backends,
        **fields,
    )


def a_gateway(*names: str) -> gateway.SharedGateway:
    members = tuple(gateway.Member(name=name, owner_uid=name) for name in names)
    return gateway.SharedGateway(members=members)


def together(**routes: gateway.Route) -> Configuration:
    parts = {name: part(name, each, ENDPOINTS, folder=FOLDER) for name, each in routes.items()}
    return joint(a_gateway(*routes), parts, Keys(), NO_KEY_SET)


def test_the_same_words_are_different_clusters_for_each_member() -> None:
    everything: dict[str, Any] = {
        "native": gateway.Backend(hash=NATIVE, service="n", weight=0),
        "fallback": gateway.Fallback(requests_per_endpoint=2),
        "shadow": gateway.Shadow(hash=CANARY, percent=10, most_requests=4),
    }
    routes = {name: a_route(name, (STABLE, 100), (CANARY, 0), **everything) for name in MEMBERS}
    alone = {name: together(**{name: route}) for name, route in routes.items()}
    both = together(**routes)
    for of in ("assignments", "clusters", "weights", "bounds", "copies"):
        mine, theirs = (set(getattr(alone[name], of)) for name in MEMBERS)
        assert mine
        assert not mine & theirs
        assert set(getattr(both, of)) == mine | theirs
    assert both.weights[f"{alias('code', STABLE)}-way"] == 100
    # no route leads to a cluster that is not there
    assert named_clusters(both.routes).keys() <= both.clusters.keys()
    assert from_files(files(both)) == both


def test_no_member_is_left_with_nobody_to_send_to_on_the_way() -> None:
    before = together(chat=a_route("chat"), code=a_route("code"))
    after = together(chat=a_route("chat", (CANARY, 100), (STABLE, 0)), code=a_route("code"))
    for step in plan(before, after):
        shared = shares(step.routes, step.weights)
        for name in MEMBERS:
            mine = {alias(name, revision) for revision in (STABLE, CANARY)}
            assert sum(weight for each, weight in shared.items() if each in mine) > 0, step.weights


def test_an_unknown_model_is_told_so_many_names_at_most() -> None:
    names = [f"m{number:03}" for number in range(MOST_NAMED + 1)]
    found = joint(a_gateway(*names), {}, Keys(), NO_KEY_SET)
    last = found.routes["virtual_hosts"][0]["routes"][-1]
    message = last["direct_response"]["body"]["inline_string"]
    assert names[MOST_NAMED - 1] + ", …" in message
    assert names[MOST_NAMED] not in message


class World:
    """What one agent wants, without an Envoy."""

    def __init__(self, tmp_path: Any) -> None:
        settings = Settings(directory=tmp_path, shared_gateway="edge")
        self.wants = ManyRoutes(settings, Credentials(settings))
        self.texts: dict[str, str] = {}
        self.shared = a_gateway(*MEMBERS)

    def write(self, route: gateway.Route) -> None:
        self.texts[route.owner_uid] = route.model_dump_json(by_alias=True)

    def look(self, *, taken: bool = True) -> Configuration:
        text = self.shared.model_dump_json(by_alias=True)
        seen = Observation(shared=text, routes=dict(self.texts), endpoints=ENDPOINTS)
        wanted = self.wants.wanted(seen, empty())
        if wanted.is_new and taken:
            self.wants.took()
        elif wanted.is_new:
            self.wants.failed()
        return wanted.configuration

    def sequences(self) -> dict[str, int]:
        return {name: share.sequence for name, share in self.wants.shares().items()}

    def errors(self) -> dict[str, str]:
        return {name: share.error for name, share in self.wants.shares().items() if share.error}


def test_whose_change_envoy_does_not_take_is_found_one_by_one(tmp_path: Any) -> None:
    world = World(tmp_path)
    for name in MEMBERS:
        world.write(a_route(name))
    world.look()
    assert world.sequences() == {"chat": 1, "code": 1}
    for name in MEMBERS:
        world.write(a_route(name, (STABLE, 90), (CANARY, 10), sequence=2))
    # together Envoy does not take them; alone chat's is taken, code's is not
    world.look(taken=False)
    world.look()
    assert world.sequences() == {"chat": 2, "code": 1}
    world.look(taken=False)
    world.look()
    assert world.errors() == {"code": "Envoy did not take this route"}
    # others go on, and so does code with its next route
    world.write(a_route("chat", (STABLE, 80), (CANARY, 20), sequence=3))
    world.look()
    world.write(a_route("code", sequence=3))
    world.look()
    assert world.sequences() == {"chat": 3, "code": 3}
    assert world.errors() == {}


def test_a_route_that_vanished_stays_until_its_member_left(tmp_path: Any) -> None:
    world = World(tmp_path)
    for name in MEMBERS:
        world.write(a_route(name))
    both = world.look()
    del world.texts["code"]
    assert world.look() == both
    world.shared = a_gateway("chat")
    assert world.look().weights == {alias("chat", STABLE): 100}
    assert world.sequences() == {"chat": 1}
    # its successor of the same name does not begin with what was
    world.shared = gateway.SharedGateway(
        members=(*world.shared.members, gateway.Member(name="code", owner_uid="another"))
    )
    world.write(a_route("code", sequence=9))
    world.look()
    assert "of another code" in world.errors()["code"]


def test_what_was_in_use_is_adopted(tmp_path: Any) -> None:
    world = World(tmp_path)
    world.write(a_route("chat", drain_seconds=300))
    world.write(a_route("code", drain_seconds=60))
    world.look()
    text = world.wants.took()
    # for the supervisor: the longest
    assert json.loads(text)["drainSeconds"] == 300
    successor = World(tmp_path)
    successor.wants.adopt(text)
    assert successor.sequences() == {"chat": 1, "code": 1}
    with pytest.raises(ValueError, match="not of a shared gateway"):
        successor.wants.adopt('{"ownerUid": "chat"}')
