"""One operator for every namespace, one for a single one: never both over the same."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.cluster.fake_api import FakeApi, a_client, a_fake_api
from tests.cluster.waiting import until

from speculative_api.differences import Missing
from speculative_operator import leading
from speculative_operator.cluster.claims import LEASE_NAME, Claims, namespace_of
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.crd import Findings
from speculative_operator.cluster.lease import Lease
from speculative_operator.leading import Leadership
from speculative_operator.telemetry import Telemetry


class Worker:
    """Notes when it works."""

    def __init__(self, at_work: set[str], name: str) -> None:
        self._at_work, self._name = at_work, name

    def begin(self) -> None:
        self._at_work.add(self._name)
        assert len(self._at_work) == 1, f"two at work: {self._at_work}"

    async def end(self) -> None:
        self._at_work.discard(self._name)


class World:
    """Operators over one fake API server."""

    def __init__(self, client: Client, foreign_seconds: float) -> None:
        self.client = client
        self.foreign_seconds = foreign_seconds
        self.at_work: set[str] = set()
        self.telemetry: dict[str, Telemetry] = {}
        self.crd = Findings()
        self.looks_at_crd = 0

    def an_operator(self, installation: str, watch_namespace: str = "") -> Leadership:
        lease = Lease(
            self.client,
            namespace=namespace_of(watch_namespace),
            name=LEASE_NAME,
            identity=f"{installation}/pod",
            installation=installation,
            duration=0.6,
            foreign_seconds=self.foreign_seconds,
        )
        claims = Claims(
            self.client,
            watch_namespace=watch_namespace,
            installation=installation,
            foreign_seconds=self.foreign_seconds,
        )
        self.telemetry[installation] = Telemetry()
        worker = Worker(self.at_work, installation)
        return Leadership(
            lease,
            claims,
            worker,
            self.telemetry[installation],
            compare_crd=self.compare_crd,
            remedy="kubectl apply",
        )

    async def compare_crd(self) -> Findings:
        self.looks_at_crd += 1
        return self.crd


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "ASK_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(leading, "OLD_CRD_SECONDS", 0.02)


async def in_world(play: Callable[[World, FakeApi], Any], *, foreign_seconds: float = 60.0) -> None:
    async with a_fake_api() as fake, a_client(fake) as client:
        await play(World(client, foreign_seconds), fake)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "first, second",
    [(("a", ""), ("b", "")), (("a", ""), ("b", "llm")), (("a", "llm"), ("b", ""))],
    ids=["both everywhere", "everywhere then one namespace", "one namespace then everywhere"],
)
async def test_second_installation_refuses_and_says_who(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    async def play(world: World, fake: FakeApi) -> None:
        one, two = world.an_operator(*first), world.an_operator(*second)
        one.start()
        await until(lambda: world.at_work == {"a"})
        two.start()
        await until(lambda: "a/pod" in two.not_ready())
        count = len(fake.requests)
        await until(lambda: len(fake.requests) > count + 6)
        assert world.at_work == {"a"}
        assert "uninstall" in two.not_ready()
        assert b"speculative_operator_blocked 1.0" in world.telemetry["b"].exposition()
        assert one.not_ready() == ""
        await two.resign()
        await one.resign()

    await in_world(play)


@pytest.mark.usefixtures("quick")
async def test_different_namespaces_do_not_hinder_each_other() -> None:
    async def play(world: World, _: FakeApi) -> None:
        one = world.an_operator("a", "left")
        one.start()
        await until(lambda: world.at_work == {"a"})
        world.at_work.clear()
        two = world.an_operator("b", "right")
        two.start()
        await until(lambda: world.at_work == {"b"})
        assert (one.not_ready(), two.not_ready()) == ("", "")
        await two.resign()
        await one.resign()

    await in_world(play)


@pytest.mark.usefixtures("quick")
async def test_uninstalling_the_first_lets_the_second_work() -> None:
    async def play(world: World, _: FakeApi) -> None:
        one, two = world.an_operator("a", "llm"), world.an_operator("b", "")
        one.start()
        await until(lambda: world.at_work == {"a"})
        two.start()
        await until(two.not_ready)
        await one.resign()
        await until(lambda: world.at_work == {"b"})
        assert two.not_ready() == ""
        await two.resign()

    await in_world(play, foreign_seconds=0.3)


@pytest.mark.usefixtures("quick")
async def test_both_kinds_started_together_never_work_together_and_one_gets_to_work() -> None:
    async def play(world: World, _: FakeApi) -> None:
        for _round in range(5):
            both = [world.an_operator("a", "llm"), world.an_operator("b", "")]
            for each in both:
                each.start()
            await until(lambda: world.at_work)
            for each in both:
                await each.resign()

    await in_world(play, foreign_seconds=0.0)


@pytest.mark.usefixtures("quick")
async def test_not_knowing_is_no_permission() -> None:
    async def play(world: World, fake: FakeApi) -> None:
        fake.refuse = -1
        one = world.an_operator("a", "llm")
        one.start()
        await until(lambda: "can't tell" in one.not_ready())
        assert not world.at_work
        fake.refuse = 0
        await until(lambda: world.at_work == {"a"})
        await one.resign()

    await in_world(play)


async def test_lost_lease_ends_the_work_and_a_regained_one_begins_it_anew() -> None:
    async def play(world: World, fake: FakeApi) -> None:
        one = world.an_operator("a")
        one.start()
        await until(lambda: world.at_work == {"a"})
        fake.refuse = -1
        await until(lambda: not world.at_work)
        fake.refuse = 0
        await until(lambda: world.at_work == {"a"})
        with suppress(asyncio.CancelledError):
            await one.resign()
        assert not world.at_work

    await in_world(play)


@pytest.mark.usefixtures("quick")
async def test_crd_that_would_lose_our_status_stops_us_until_it_is_newer() -> None:
    async def play(world: World, _: FakeApi) -> None:
        world.crd = Findings(status=(Missing("status.canary.held"),))
        one = world.an_operator("a")
        one.start()
        await until(lambda: world.looks_at_crd > 3)
        assert not world.at_work
        assert "status.canary.held" in one.not_ready()
        assert "Run: kubectl apply" in one.not_ready()
        assert b'missing_fields{part="status"} 1.0' in world.telemetry["a"].exposition()
        world.crd = Findings()
        await until(lambda: world.at_work == {"a"})
        assert one.not_ready() == ""
        assert b'missing_fields{part="status"} 0.0' in world.telemetry["a"].exposition()
        await one.resign()

    await in_world(play)


@pytest.mark.usefixtures("quick")
async def test_crd_that_loses_users_fields_is_named_and_does_not_stop_us() -> None:
    async def play(world: World, _: FakeApi) -> None:
        world.crd = Findings(spec=(Missing("spec.rollout.cap", 2),))
        one = world.an_operator("a")
        one.start()
        await until(lambda: world.at_work == {"a"})
        assert one.not_ready() == ""
        assert b'missing_fields{part="spec"} 1.0' in world.telemetry["a"].exposition()
        world.crd = Findings()
        await until(lambda: b'{part="spec"} 0.0' in world.telemetry["a"].exposition())
        await until(lambda: one._watching_crd is None)
        await one.resign()

    await in_world(play)
