"""Who works: a task that takes the Lease, lets the operation work, and stops it after a loss.

A standby keeps its caches warm and writes nothing. Started by `__main__` before
kopf runs; `Operation` does the work.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from speculative_operator.cluster.claims import Claims, InTheWay
from speculative_operator.cluster.crd import Findings
from speculative_operator.cluster.lease import Lease
from speculative_operator.errors import ApiError
from speculative_operator.telemetry import Telemetry

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS: Final = 5.0
"""Between two looks at an operator that is in the way."""
OLD_CRD_SECONDS: Final = 10.0
"""Between two looks at a CRD that is too old."""
HANDED_OVER_SECONDS: Final = 0.5
"""Likewise at one of our own installation, which leaves because shards became more or fewer."""
UNKNOWN_SECONDS: Final = 0.5
"""Likewise while the API server does not say whether there is one."""


class Work(Protocol):
    """What a leader does."""

    def begin(self) -> None:
        """Passes may run from now on."""

    async def end(self) -> None:
        """No pass runs any more when this returns."""


class Leadership:
    """Runs `lead` until cancelled; `resign` ends the work and gives the Lease away."""

    def __init__(
        self,
        lease: Lease,
        claims: Claims,
        work: Work,
        telemetry: Telemetry,
        *,
        compare_crd: Callable[[], Awaitable[Findings]],
        remedy: str,
    ) -> None:
        self._lease = lease
        self._claims = claims
        self._work = work
        self._telemetry = telemetry
        self._compare_crd = compare_crd
        self._remedy = remedy
        """Command that brings the CRD up to date."""
        self._crd = Findings()
        self._crd_unread = "the CRD was not compared yet"
        self._watching_crd: asyncio.Task[None] | None = None
        self._in_the_way: InTheWay | None = None
        self._known = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """In a task of its own. To be called before kopf runs: later ones it takes for its own."""
        self._task = asyncio.get_running_loop().create_task(self.lead(), name="lease")

    async def lead(self) -> None:
        """Leads whenever nobody else does, for ever."""
        while True:
            await self._fitting_crd()
            await self._free_scope()
            await self._lease.acquire()
            # Only now: whoever looks next sees our claim, so of two at least one gives way.
            if await self._hindered():
                await self._lease.release()
                # Both may have come at the same moment: they must not do so again.
                await self._claims.wait(self._pause())
                continue
            self._work.begin()
            self._telemetry.leading.set(1)
            try:
                await self._lease.hold()
            finally:
                self._telemetry.leading.set(0)
                await self._work.end()

    async def resign(self) -> None:
        """Ends the work, then releases the Lease."""
        for task in (self._task, self._watching_crd):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._lease.release()

    def not_ready(self) -> str:
        """Who is in the way; empty for a leader and where nobody else's installation is.

        Whoever waits for a shard of its own installation is ready: the old one leaves only then.
        """
        foreign = "" if self._lease.held else self._lease.foreign_holder
        found = self._in_the_way
        why = (found.words if found is not None and not found.ours else "") or (
            f"{foreign} of another installation acts on the same namespaces: uninstall one"
            if foreign
            else ""
        )
        self._telemetry.blocked.set(bool(why))
        if self._crd.status:
            return self._crd.sentence(self._remedy)
        return why or self._crd_unread

    async def _fitting_crd(self) -> None:
        """Waits until the CRD can keep our status; goes on looking while users' fields are lost."""
        await self._look_at_crd()
        while self._crd.status or self._crd_unread:
            await asyncio.sleep(UNKNOWN_SECONDS if self._crd_unread else OLD_CRD_SECONDS)
            await self._look_at_crd()
        if not self._crd.is_current and self._watching_crd is None:
            loop = asyncio.get_running_loop()
            self._watching_crd = loop.create_task(self._await_newer_crd(), name="crd")

    async def _await_newer_crd(self) -> None:
        while not self._crd.is_current:
            await asyncio.sleep(OLD_CRD_SECONDS)
            await self._look_at_crd()
        self._watching_crd = None

    async def _look_at_crd(self) -> None:
        before = self._crd
        try:
            self._crd, self._crd_unread = await self._compare_crd(), ""
        except ApiError as error:
            self._crd_unread = f"the CRD can't be read: {error}"
            return
        for part, fields in (("spec", self._crd.spec), ("status", self._crd.status)):
            self._telemetry.crd_missing_fields.labels(part).set(len(fields))
        if self._crd == before:
            return
        if self._crd.unknown:
            log.warning("event=crd-not-compared why=%r", self._crd.unknown)
        elif self._crd.is_current:
            log.info("event=crd-current")
        else:
            log.error("event=crd-older why=%r", self._crd.sentence(self._remedy))

    async def _free_scope(self) -> None:
        while await self._hindered():
            await self._claims.wait(self._pause())

    def _pause(self) -> float:
        """Seconds until the next look at what is in the way."""
        if not self._known:
            return UNKNOWN_SECONDS
        found = self._in_the_way
        return HANDED_OVER_SECONDS if found is not None and found.ours else ASK_AGAIN_SECONDS

    async def _hindered(self) -> bool:
        try:
            found = await self._claims.hindrance()
            self._known = True
        except ApiError as error:
            self._known = False
            # Not knowing is no permission.
            found = InTheWay(f"can't tell whether another operator acts here: {error}")
        if found != self._in_the_way:
            self._in_the_way = found
            if found is not None:
                level = logging.INFO if found.ours else logging.ERROR
                log.log(level, "event=not-acting why=%r", found.words)
        self._telemetry.blocked.set(found is not None and not found.ours)
        return found is not None
