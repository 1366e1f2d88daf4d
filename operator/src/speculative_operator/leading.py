"""Who works: a task that takes the Lease, lets the operation work, and stops it after a loss.

A standby keeps its caches warm and writes nothing. Started by `__main__` before
kopf runs; `Operation` does the work.
"""

import asyncio
import contextlib
import logging
from typing import Final, Protocol

from speculative_operator.cluster.claims import Claims
from speculative_operator.cluster.lease import Lease
from speculative_operator.errors import ApiError
from speculative_operator.telemetry import Telemetry

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS: Final = 5.0
"""Between two looks at an operator that is in the way."""
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

    def __init__(self, lease: Lease, claims: Claims, work: Work, telemetry: Telemetry) -> None:
        self._lease = lease
        self._claims = claims
        self._work = work
        self._telemetry = telemetry
        self._in_the_way = ""
        self._known = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """In a task of its own. To be called before kopf runs: later ones it takes for its own."""
        self._task = asyncio.get_running_loop().create_task(self.lead(), name="lease")

    async def lead(self) -> None:
        """Leads whenever nobody else does, for ever."""
        while True:
            await self._free_scope()
            await self._lease.acquire()
            # Only now: whoever looks next sees our claim, so of two at least one gives way.
            if await self._hindered():
                await self._lease.release()
                # Both may have come at the same moment: they must not do so again.
                await self._claims.wait(ASK_AGAIN_SECONDS)
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
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._lease.release()

    def not_ready(self) -> str:
        """Who is in the way; empty for a leader and for a standby of the same installation."""
        foreign = "" if self._lease.held else self._lease.foreign_holder
        why = self._in_the_way or (
            f"{foreign} of another installation acts on the same namespaces: uninstall one"
            if foreign
            else ""
        )
        self._telemetry.blocked.set(bool(why))
        return why

    async def _free_scope(self) -> None:
        while await self._hindered():
            await self._claims.wait(ASK_AGAIN_SECONDS if self._known else UNKNOWN_SECONDS)

    async def _hindered(self) -> bool:
        try:
            found = await self._claims.hindrance()
            self._known = True
        except ApiError as error:
            self._known = False
            # Not knowing is no permission.
            found = f"can't tell whether another operator acts here: {error}"
        if found != self._in_the_way:
            self._in_the_way = found
            if found:
                log.error("event=not-acting why=%r", found)
        self._telemetry.blocked.set(bool(found))
        return bool(found)
