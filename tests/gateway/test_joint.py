"""Pure: members' routes side by side, and what is tried of them."""

import json
from pathlib import Path, PurePosixPath
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
from speculative_gateway.credentials import Credentials
from speculative_gateway.guards import Guard
from speculative_gateway.joint import MOST_NAMED, alias, joint, part
from speculative_gateway.many_routes import ManyRoutes
from speculative_gateway.policies import API_KEYS
from speculative_gateway.render import Endpoint, empty
from speculative_gateway.settings import Settings
from speculative_gateway.source import Observation

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


def open_to_all(*names: str) -> dict[str, Guard]:
    return {name: Guard(gateway.Access()) for name in names}


def together(**routes: gateway.Route) -> Configuration:
    parts = {name: part(name, each, ENDPOINTS, folder=FOLDER) for name, each in routes.items()}
    return joint(a_gateway(*routes).members, parts, open_to_all(*routes))


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
    found = joint(a_gateway(*names).members, {}, open_to_all(*names))
    last = found.routes["virtual_hosts"][0]["routes"][-1]
    message = last["direct_response"]["body"]["inline_string"]
    assert names[MOST_NAMED - 1] + ", …" in message
    assert names[MOST_NAMED] not in message


class World:
    """What one agent wants, without an Envoy; `mounted` are Secrets of several, else a lone one."""

    def __init__(self, tmp_path: Any, *mounted: str) -> None:
        settings = Settings(
            directory=tmp_path,
            shared_gateway="edge",
            api_keys_directory=tmp_path / "keys",
            api_keys_names=mounted,
        )
        self.wants = ManyRoutes(settings, Credentials(settings))
        self.texts: dict[str, str] = {}
        self.shared = a_gateway(*MEMBERS)
        self.secrets: dict[str, dict[str, bytes]] = {}
        """As seen through the API."""
        self.locked: frozenset[str] = frozenset()
        """As wanted last."""

    def write(self, route: gateway.Route) -> None:
        self.texts[route.owner_uid] = route.model_dump_json(by_alias=True)

    def look(self, *, taken: bool = True) -> Configuration:
        text = self.shared.model_dump_json(by_alias=True)
        seen = Observation(
            shared=text, routes=dict(self.texts), endpoints=ENDPOINTS, secrets=self.secrets
        )
        wanted = self.wants.wanted(seen, empty())
        self.locked = wanted.locked
        if wanted.is_new and taken:
            self.wants.took()
        elif wanted.is_new:
            self.wants.failed()
        return wanted.configuration

    def ask_for(self, **secrets: str) -> None:
        """Says whose keys each member asks for; of all the same it is the gateway's."""
        accesses = {
            name: gateway.Access(auth=gateway.Auth(api_keys_secret=secret) if secret else None)
            for name, secret in secrets.items()
        }
        alike = len({*secrets.values()}) == 1
        self.shared = gateway.SharedGateway(
            schema_version=1 if alike else 2,
            members=tuple(
                gateway.Member(name=name, owner_uid=name, access=None if alike else accesses[name])
                for name in secrets
            ),
            auth=next(iter(accesses.values())).auth if alike else None,
        )

    def opening(self) -> dict[str, set[str]]:
        """The keys that open each member, on its way by path; without any: everybody gets in."""
        (host,) = self.look().routes["virtual_hosts"]
        found = {}
        for name in sorted(each.name for each in self.shared.members):
            entries = [each for each in host["routes"] if _leads_to(each, name)]
            own = [each.get("typed_per_filter_config", {}).get(API_KEYS) for each in entries]
            said = [each or host["typed_per_filter_config"].get(API_KEYS, {}) for each in own]
            assert all(each == said[0] for each in said)
            found[name] = {it["key"] for it in said[0].get("credentials", ())}
        return found

    def sequences(self) -> dict[str, int]:
        return {name: share.sequence for name, share in self.wants.shares().items()}

    def errors(self) -> dict[str, str]:
        return {name: share.error for name, share in self.wants.shares().items() if share.error}


def _leads_to(entry: dict[str, Any], name: str) -> bool:
    return str(entry["match"].get("prefix", "")).startswith(f"/{name}/v1/")


def mount(folder: Path, **keys: str) -> None:
    """A Secret whose entries are keys."""
    folder.mkdir(parents=True)
    for client, key in keys.items():
        (folder / client).write_text(key)


def test_a_lone_secret_is_its_own_members_however_others_call_theirs(tmp_path: Path) -> None:
    mount(tmp_path / "keys", alice="alices-key")
    world = World(tmp_path)
    for name in MEMBERS:
        world.write(a_route(name))
    world.ask_for(chat="one", code="one")
    assert world.opening() == {"chat": {"alices-key"}, "code": {"alices-key"}}
    # code asks for others, which this pod can't know: it goes on with its own of before
    world.ask_for(chat="one", code="two")
    assert world.opening() == {"chat": {"alices-key"}, "code": {"alices-key"}}
    assert "this pod has no Secret two mounted: its successor will" in world.errors()["code"]
    # through the API it can
    world.secrets = {"two": {"bob": b"bobs-key-of-two"}}
    assert world.opening() == {"chat": {"alices-key"}, "code": {"bobs-key-of-two"}}
    assert world.errors() == {}
    # chat leaves, and the right ends: what is mounted never was code's second one
    world.ask_for(code="two")
    assert world.opening() == {"code": {"bobs-key-of-two"}}
    world.secrets = {}
    assert world.opening() == {"code": set()}
    assert "this pod has no Secret two mounted" in world.errors()["code"]
    assert world.locked == {"code", ""}


def test_a_newcomers_secret_that_is_not_mounted_yet_locks_the_newcomer_alone(
    tmp_path: Path,
) -> None:
    mount(tmp_path / "keys", alice="alices-key")
    world = World(tmp_path)
    for name in MEMBERS:
        world.write(a_route(name))
    world.ask_for(chat="one")
    assert world.opening() == {"chat": {"alices-key"}}
    world.ask_for(chat="one", code="two")
    assert world.opening() == {"chat": {"alices-key"}, "code": set()}
    assert world.locked == {"code"}
    # a later agent of this pod knows whose the mounted ones are
    world.look()
    successor = World(tmp_path)
    successor.wants.adopt(world.wants.took())
    successor.texts, successor.shared = world.texts, world.shared
    assert successor.opening() == {"chat": {"alices-key"}, "code": set()}
    # one that never saw a lone one asked for can't know, and lets nobody in
    stranger = World(tmp_path)
    stranger.texts, stranger.shared = world.texts, world.shared
    assert stranger.opening() == {"chat": set(), "code": set()}


def test_of_several_secrets_each_is_its_members(tmp_path: Path) -> None:
    mount(tmp_path / "keys" / "one", alice="alices-key")
    mount(tmp_path / "keys" / "two", alice="alices-other-key")
    world = World(tmp_path, "one", "two")
    for name in MEMBERS:
        world.write(a_route(name))
    world.ask_for(chat="one", code="two")
    assert world.opening() == {"chat": {"alices-key"}, "code": {"alices-other-key"}}
    world.ask_for(chat="two", code="two")
    assert world.opening() == {"chat": {"alices-other-key"}, "code": {"alices-other-key"}}
    # where a key was asked for by nobody before, none is made up
    world.ask_for(chat="", code="three")
    assert world.opening() == {"chat": set(), "code": {"alices-other-key"}}


def test_a_bad_address_range_of_one_member_is_nobody_elses(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in MEMBERS:
        world.write(a_route(name))

    def code(*cidrs: str) -> None:
        accesses = (
            gateway.Access(allowed_cidrs=("10.0.0.0/8",)),
            gateway.Access(allowed_cidrs=cidrs),
        )
        members = zip(MEMBERS, accesses, strict=True)
        world.shared = gateway.SharedGateway(
            schema_version=2,
            members=tuple(gateway.Member(name=n, owner_uid=n, access=a) for n, a in members),
        )

    code("10.0.0.1/8")
    world.look()
    # who had nothing before lets nobody in
    assert world.locked == {"code"}
    assert "10.0.0.1/8 has host bits set" in world.errors()["code"]
    code("10.1.0.0/16")
    good = world.look()
    assert world.errors() == {}
    code("10.1.0.1/16")
    assert world.look().routes == good.routes


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
