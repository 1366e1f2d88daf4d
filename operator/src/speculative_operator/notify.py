"""Delivers notifications: a queue and a task for each receiver, so that none waits for another.

`offer` never waits and never raises. A delivery is tried again with growing
pauses and then given up; what comes of it is counted and logged, always without
the URL, which is a secret.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp

from speculative_api.v1alpha1 import Notification, PendingNotification, SecretKey
from speculative_operator.cluster.resources import Key
from speculative_operator.errors import OperatorError
from speculative_operator.notifications import body_of
from speculative_operator.snapshot import Snapshot

log = logging.getLogger(__name__)

PAUSES: Final = (1.0, 4.0, 15.0, 60.0, 240.0)
"""Seconds before each further try: given up after five minutes and a half."""
TIMEOUT_SECONDS: Final = 10.0
"""Of one try, from the connection to the head of the answer."""
LONGEST_QUEUE: Final = 64
"""Deliveries that wait for one receiver; further ones are dropped, and counted."""
MOST_RECEIVERS: Final = 512
"""Tasks at the same time."""
REMEMBERED: Final = 4096
"""Identities of what was told, so that a pass on its way tells nothing twice."""

ReadSecret = Callable[[str, SecretKey], Awaitable[str]]
Count = Callable[[str], None]
"""Told of every outcome: sent, failed or dropped."""


class _GivenUp(Exception):
    """A try that no further try can better."""


class _NotNow(Exception):
    """A try that a further one may better."""


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One notification for one receiver."""

    key: Key
    uid: str
    item: PendingNotification
    receiver: Notification

    @property
    def place(self) -> tuple[str, str, str]:
        """Namespace, Secret and key: what a receiver is known by."""
        secret = self.receiver.url_secret
        return self.key[0], secret.name, secret.key


@dataclass(slots=True)
class _Line:
    """What waits for one receiver, and the task that delivers it."""

    waiting: list[_Delivery] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Notifier:
    """Use as an async context manager; leaving it ends deliveries, which status remembers."""

    def __init__(
        self,
        read_secret: ReadSecret,
        *,
        count: Count,
        pauses: tuple[float, ...] = PAUSES,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.wake: Callable[[Key], None] = lambda _: None
        """Told of a resource whose status may be freed of a notification."""
        self._read_secret = read_secret
        self._count = count
        self._pauses = pauses
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None
        self._lines: dict[tuple[str, str, str], _Line] = {}
        self._open: dict[str, int] = {}
        """Deliveries still to be made of a notification, by its identity."""
        self._told: dict[str, None] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._session is not None:
            await self._session.close()

    def told(self, snapshot: Snapshot) -> Collection[str]:
        """Which of what waits in the resource's status need not wait any more."""
        pending = snapshot.status.pending_notifications
        return {item.id for item in pending if _identity(snapshot.uid, item) in self._told}

    def offer(self, snapshot: Snapshot, pending: Collection[PendingNotification]) -> None:
        """Takes up what is not yet on its way."""
        for item in pending:
            identity = _identity(snapshot.uid, item)
            if identity in self._open or identity in self._told:
                continue
            key = (snapshot.namespace, snapshot.name)
            wanted = [r for r in snapshot.spec.rollout.notifications if item.event in r.events]
            self._open[identity] = len(wanted)
            for receiver in wanted:
                self._queue(_Delivery(key, snapshot.uid, item, receiver))
            if not wanted:
                self._done(identity, key)

    def _queue(self, delivery: _Delivery) -> None:
        line = self._lines.get(delivery.place)
        if line is None and len(self._lines) < MOST_RECEIVERS:
            line = self._lines[delivery.place] = _Line()
        if line is None or len(line.waiting) >= LONGEST_QUEUE:
            self._over(delivery, "dropped", "too many are waiting")
            return
        line.waiting.append(delivery)
        if line.task is None:
            loop = asyncio.get_running_loop()
            line.task = loop.create_task(self._work(delivery.place, line), name="notify")

    async def _work(self, place: tuple[str, str, str], line: _Line) -> None:
        """Delivers one after the other; ends when nothing waits."""
        try:
            while line.waiting:
                outcome, why = await self._deliver(line.waiting[0])
                self._over(line.waiting.pop(0), outcome, why)
        finally:
            self._lines.pop(place, None)

    async def _deliver(self, delivery: _Delivery) -> tuple[str, str]:
        why = ""
        for pause in (0.0, *self._pauses):
            await asyncio.sleep(pause)
            try:
                await self._post(delivery)
            except _GivenUp as error:
                return "failed", str(error)
            except (_NotNow, OperatorError) as error:
                why = str(error)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                # Not its words: they name the host, and the URL is a secret.
                why = type(error).__name__
            else:
                return "sent", ""
        return "failed", f"{why}, {len(self._pauses) + 1} tries"

    async def _post(self, delivery: _Delivery) -> None:
        if self._session is None:
            raise _NotNow("the operator is ending")
        namespace, name = delivery.key
        secret = delivery.receiver.url_secret
        where = SecretKey(name=secret.name, key=secret.key)
        url = (await self._read_secret(namespace, where)).strip()
        if not url.startswith(("https://", "http://")):
            raise _GivenUp(f"Secret {secret.name}, key {secret.key}: no http or https URL")
        kind, body = body_of(
            delivery.item,
            delivery.receiver.format,
            namespace=namespace,
            name=name,
            uid=delivery.uid,
        )
        async with self._session.post(
            url,
            data=body,
            headers={"Content-Type": kind},
            timeout=self._timeout,
            # A redirect may lead anywhere, with the body and to whoever asked for it.
            allow_redirects=False,
        ) as answer:
            _check(answer.status)

    def _over(self, delivery: _Delivery, outcome: str, why: str) -> None:
        self._count(outcome)
        if outcome != "sent":
            log.warning(
                "event=notification-%s object=%s/%s notification=%s secret=%s/%s/%s why=%r",
                outcome,
                *delivery.key,
                delivery.item.event,
                *delivery.place,
                why,
            )
        identity = _identity(delivery.uid, delivery.item)
        self._open[identity] -= 1
        if self._open[identity] == 0:
            self._done(identity, delivery.key)

    def _done(self, identity: str, key: Key) -> None:
        self._open.pop(identity, None)
        self._told[identity] = None
        while len(self._told) > REMEMBERED:
            self._told.pop(next(iter(self._told)))
        self.wake(key)


def _identity(uid: str, item: PendingNotification) -> str:
    return f"{uid}/{item.id}"


def _check(status: int) -> None:
    """Raises for what is no delivery."""
    if status in (408, 425, 429) or status >= 500:
        raise _NotNow(f"HTTP {status}")
    if status >= 300:
        raise _GivenUp(f"HTTP {status}" + (", a redirect" if status < 400 else ""))
