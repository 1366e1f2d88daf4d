"""Notifications, delivered to real HTTP receivers: dead, slow, failing, redirecting."""

import asyncio
import json
import logging
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.builders import UID, a_snapshot, a_spec, stamp

from speculative_api.v1alpha1 import PendingNotification, SecretKey
from speculative_operator.errors import NotReadable
from speculative_operator.notify import LONGEST_QUEUE, Notifier
from speculative_operator.snapshot import Snapshot

PATH = "/services/T0/B0/the-secret-path"


BELL = asyncio.Event()
"""Rung whenever something happened that a test may wait for."""


@pytest.fixture(autouse=True)
def bell() -> None:
    # Each test has a loop of its own, and an event belongs to one.
    global BELL
    BELL = asyncio.Event()


@dataclass
class Receiver:
    """A server that answers as told, and what it got."""

    answers: list[int] = field(default_factory=list)
    """HTTP statuses, the last one for ever; 200 if empty."""
    location: str = ""
    stuck: asyncio.Event | None = None
    url: str = ""
    got: list[tuple[str, str, Any]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((request.path, request.content_type, json.loads(await request.read())))
        BELL.set()
        if self.stuck is not None:
            await self.stuck.wait()
        status = self.answers[0] if self.answers else 200
        if len(self.answers) > 1:
            self.answers.pop(0)
        return web.Response(status=status, headers={"Location": self.location})


@asynccontextmanager
async def serving(receiver: Receiver, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    application = web.Application()
    application.router.add_route("*", "/{any:.*}", receiver.take)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    receiver.url = f"http{'s' if tls else ''}://127.0.0.1:{port}{PATH}"
    try:
        yield receiver
    finally:
        if receiver.stuck is not None:
            receiver.stuck.set()
        await runner.cleanup()


@dataclass
class Desk:
    """A notifier with its secrets and counts."""

    notifier: Notifier
    secrets: dict[str, str]
    counts: Counter[str]
    woken: list[tuple[str, str]]

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                BELL.clear()
                await BELL.wait()


@asynccontextmanager
async def a_desk(
    pauses: tuple[float, ...] = (0.0, 0.0), seconds: float = 5.0
) -> AsyncIterator[Desk]:
    secrets: dict[str, str] = {}
    counts: Counter[str] = Counter()

    async def read(namespace: str, wanted: SecretKey) -> str:
        try:
            return secrets[f"{namespace}/{wanted.name}/{wanted.key}"]
        except KeyError as error:
            raise NotReadable(f"Secret {wanted.name} does not exist") from error

    def count(outcome: str) -> None:
        counts.update([outcome])
        BELL.set()

    def wake(key: tuple[str, str]) -> None:
        woken.append(key)
        BELL.set()

    woken: list[tuple[str, str]] = []
    notifier = Notifier(read, count=count, pauses=pauses, timeout_seconds=seconds)
    notifier.wake = wake
    async with notifier:
        yield Desk(notifier, secrets, counts, woken)


def a_world(*receivers: dict[str, Any], pending: int = 1) -> Snapshot:
    rollout = {"notifications": list(receivers) or [{"urlSecret": {"name": "hook"}}]}
    items = [
        {
            "id": f"{number}-Promoted",
            "event": "Promoted",
            "hash": "a01c000000",
            "reason": "Promoted",
            "message": "2.84 is <!channel> & good",
            "happenedAt": stamp(number),
        }
        for number in range(pending)
    ]
    snapshot = a_snapshot(a_spec(rollout=rollout))
    status = type(snapshot.status).model_validate({"pendingNotifications": items})
    return a_snapshot(snapshot.spec, status=status)


def offer(desk: Desk, world: Snapshot) -> tuple[PendingNotification, ...]:
    pending = tuple(world.status.pending_notifications)
    desk.notifier.offer(world, pending)
    return pending


async def test_each_format_arrives_as_its_receivers_read_it() -> None:
    world = a_world(
        {"urlSecret": {"name": "hook"}},
        {"urlSecret": {"name": "hook", "key": "bus"}, "format": "CloudEvents"},
        {"urlSecret": {"name": "other"}, "events": ["Started"]},
    )
    async with a_desk() as desk, serving(Receiver()) as slack, serving(Receiver()) as bus:
        desk.secrets.update({"llm/hook/url": f"{slack.url}\n", "llm/hook/bus": bus.url})
        offer(desk, world)
        await desk.until(lambda: desk.counts["sent"] == 2)
    text = "llm/chat: Promoted: 2.84 is &lt;!channel&gt; &amp; good"
    assert slack.got == [(PATH, "application/json", {"text": text})]
    ((_, kind, event),) = bus.got
    assert kind == "application/cloudevents+json"
    assert event == {
        "specversion": "1.0",
        "id": f"{UID}/0-Promoted",
        "source": "/apis/speculative.dev/v1alpha1/namespaces/llm/speculativedeployments/chat",
        "type": "dev.speculative.rollout.promoted",
        "time": stamp(0),
        "datacontenttype": "application/json",
        "subject": "a01c000000",
        "data": {
            "namespace": "llm",
            "name": "chat",
            "event": "Promoted",
            "revision": "a01c000000",
            "reason": "Promoted",
            "message": "2.84 is <!channel> & good",
        },
    }
    assert dict(desk.counts) == {"sent": 2}


async def test_what_is_on_its_way_or_told_is_not_told_again() -> None:
    world = a_world()
    async with a_desk() as desk, serving(Receiver(stuck=asyncio.Event())) as slow:
        desk.secrets["llm/hook/url"] = slow.url
        offer(desk, world)
        await desk.until(lambda: len(slow.got) == 1)
        offer(desk, world)
        assert desk.notifier.told(world) == set()
        assert slow.stuck is not None
        slow.stuck.set()
        await desk.until(lambda: desk.notifier.told(world) == {"0-Promoted"})
        offer(desk, world)
        assert desk.woken == [("llm", "chat")]
    assert len(slow.got) == 1
    assert dict(desk.counts) == {"sent": 1}


async def test_another_process_tells_what_still_waits_in_status() -> None:
    world = a_world()
    async with serving(Receiver()) as receiver:
        for times in (1, 2):
            async with a_desk() as desk:
                desk.secrets["llm/hook/url"] = receiver.url
                offer(desk, world)
                await desk.until(lambda times=times: len(receiver.got) == times)


RETRIED = {
    "500, then well": ([500, 503, 200], "sent", 3),
    "too many requests": ([429, 200], "sent", 2),
    "500 for ever": ([500], "failed", 3),
    "not found": ([404], "failed", 1),
    "gone": ([410], "failed", 1),
}


@pytest.mark.parametrize(("answers", "outcome", "tries"), RETRIED.values(), ids=RETRIED.keys())
async def test_what_may_get_better_is_tried_again(
    answers: list[int], outcome: str, tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = a_world()
    async with a_desk() as desk, serving(Receiver(answers=list(answers))) as receiver:
        desk.secrets["llm/hook/url"] = receiver.url
        offer(desk, world)
        await desk.until(lambda: bool(desk.notifier.told(world)))
    assert dict(desk.counts) == {outcome: 1}
    assert len(receiver.got) == tries
    if outcome == "failed":
        assert f"why='HTTP {answers[0]}" in caplog.text
    assert "the-secret-path" not in caplog.text


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int, caplog: pytest.LogCaptureFixture) -> None:
    world = a_world()
    async with a_desk() as desk, serving(Receiver()) as elsewhere:
        answers = Receiver(answers=[status], location=elsewhere.url)
        async with serving(answers) as receiver:
            desk.secrets["llm/hook/url"] = receiver.url
            offer(desk, world)
            await desk.until(lambda: desk.counts["failed"] == 1)
    assert elsewhere.got == []
    assert len(receiver.got) == 1
    assert f"HTTP {status}, a redirect" in caplog.text


async def test_a_dead_or_slow_receiver_delays_no_other() -> None:
    world = a_world(
        {"urlSecret": {"name": "dead"}},
        {"urlSecret": {"name": "slow"}},
        {"urlSecret": {"name": "good"}},
    )
    async with (
        a_desk(pauses=(3600.0,), seconds=3600.0) as desk,
        serving(Receiver(stuck=asyncio.Event())) as slow,
        serving(Receiver()) as good,
    ):
        desk.secrets.update(
            {
                "llm/dead/url": "http://127.0.0.1:9/",
                "llm/slow/url": slow.url,
                "llm/good/url": good.url,
            }
        )
        offer(desk, world)
        await desk.until(lambda: desk.counts["sent"] == 1)
        assert len(good.got) == 1
        assert desk.notifier.told(world) == set(), "status forgot what was not told to all"


async def test_the_time_of_one_try_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    world = a_world()
    async with (
        a_desk(seconds=0.05) as desk,
        serving(Receiver(stuck=asyncio.Event())) as slow,
    ):
        desk.secrets["llm/hook/url"] = slow.url
        offer(desk, world)
        await desk.until(lambda: desk.counts["failed"] == 1)
    assert "TimeoutError, 3 tries" in caplog.text or "Timeout" in caplog.text


async def test_a_full_queue_drops_and_counts() -> None:
    world = a_world(pending=16)
    async with a_desk() as desk, serving(Receiver(stuck=asyncio.Event())) as slow:
        desk.secrets["llm/hook/url"] = slow.url
        offers = 0
        for number in range(LONGEST_QUEUE // 16 + 1):
            again = a_snapshot(world.spec, status=world.status)
            items = [
                item.model_copy(update={"id": f"{number}/{item.id}"})
                for item in world.status.pending_notifications
            ]
            desk.notifier.offer(again, items)
            offers += len(items)
        assert desk.counts["dropped"] == offers - LONGEST_QUEUE == 16


@pytest.mark.parametrize("url", ["", "ftp://x/", "file:///etc/passwd", "hooks.example.org/x"])
async def test_what_is_no_url_is_given_up_and_not_shown(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = a_world()
    async with a_desk() as desk:
        desk.secrets["llm/hook/url"] = url
        offer(desk, world)
        await desk.until(lambda: desk.counts["failed"] == 1)
    assert "Secret hook, key url: no http or https URL" in caplog.text
    assert not url or url not in caplog.text


async def test_a_secret_that_may_not_be_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with a_desk() as desk:
        offer(desk, a_world())
        await desk.until(lambda: desk.counts["failed"] == 1)
    assert "Secret hook does not exist, 3 tries" in caplog.text


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
            "-days",
            "1",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_certificate_that_nobody_signed_gets_nothing(
    self_signed: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_desk() as desk, serving(Receiver(), self_signed) as receiver:
        desk.secrets["llm/hook/url"] = receiver.url
        offer(desk, a_world())
        await desk.until(lambda: desk.counts["failed"] == 1)
    assert receiver.got == []
    assert "Certificate" in caplog.text
