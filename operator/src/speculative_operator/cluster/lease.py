"""One operator at a time: a coordination.k8s.io Lease.

The holder renews it at a fifth of its duration; another one takes over once it
has seen no change for a whole duration by its own monotonic clock (as client-go
does; wall clocks of two machines are never compared). A holder that could not
renew for two thirds of the duration ends the process before anyone takes over.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import JSON, LEASE
from speculative_operator.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)


def _end_the_process() -> None:
    os._exit(1)  # no clean-up: another holder may be at work already


class Lease:
    """`acquire`, then `hold` in a task of its own, then `release`."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration: float = 15.0,
        on_lost: Callable[[], None] = _end_the_process,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration = duration
        self._on_lost = on_lost
        self._period = duration / 5
        self._deadline = duration * 2 / 3
        self._patience = self._deadline / 2
        """Longest single request: a second one still fits, on another connection."""
        self._seen: JSON | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self.held = False

    async def acquire(self) -> None:
        """Waits until the lease is ours."""
        while not await self._try():  # noqa: ASYNC110 - the world is asked, not an event
            await asyncio.sleep(self._period)
        self.held = True
        log.info("event=lease-acquired identity=%s", self._identity)

    async def hold(self) -> None:
        """Renews for ever; calls `on_lost` when it did not succeed in time, and returns."""
        clock = asyncio.get_running_loop().time
        while True:
            left = self._renewed_at + self._deadline - clock()
            await asyncio.sleep(max(0.0, min(self._period, left)))
            left = self._renewed_at + self._deadline - clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._try()
            if clock() - self._renewed_at >= self._deadline:
                self.held = False
                log.error("event=lease-lost identity=%s", self._identity)
                self._on_lost()
                return

    async def release(self) -> None:
        """Gives the lease away at once, so that a successor need not wait it out."""
        if not self.held:
            return
        self.held = False
        seconds = self._patience
        try:
            # Read anew: a renewal cut off on the way out may have arrived all the same.
            live = await self._client.get(
                LEASE, self._namespace, self._name, timeout_seconds=seconds
            )
            if live.get("spec", {}).get("holderIdentity") == self._identity:
                body = self._body(live, holder="")
                await self._client.replace(LEASE, body, timeout_seconds=seconds)
        except ApiError as error:
            # The successor waits for the expiry instead.
            log.warning("event=lease-not-released why=%r", str(error))

    async def _try(self) -> bool:
        """One attempt to take or renew; any failure counts as not renewed."""
        started = asyncio.get_running_loop().time()
        try:
            taken = await self._take()
        except Conflict:
            return False
        except ApiError as error:
            log.warning("event=lease-request-failed why=%r", str(error))
            return False
        if taken:
            # From the start of the request: the others count from no earlier.
            self._renewed_at = started
        return taken

    async def _take(self) -> bool:
        seconds = self._patience
        try:
            live = await self._client.get(
                LEASE, self._namespace, self._name, timeout_seconds=seconds
            )
        except NotFound:
            body = self._body({"metadata": {}}, holder=self._identity)
            live = await self._client.create(LEASE, body, timeout_seconds=seconds)
            self._observe(live)
            return True
        self._observe(live)
        if not self._is_free(live):
            return False
        body = self._body(live, holder=self._identity)
        self._observe(await self._client.replace(LEASE, body, timeout_seconds=seconds))
        return True

    def _observe(self, live: JSON) -> None:
        version = live["metadata"]["resourceVersion"]
        if self._seen is None or self._seen["metadata"]["resourceVersion"] != version:
            self._seen_at = asyncio.get_running_loop().time()
        self._seen = live

    def _is_free(self, live: JSON) -> bool:
        holder = live.get("spec", {}).get("holderIdentity") or ""
        if holder in ("", self._identity):
            return True
        duration = float(live["spec"].get("leaseDurationSeconds") or self._duration)
        return asyncio.get_running_loop().time() - self._seen_at >= duration

    def _body(self, live: JSON, *, holder: str) -> JSON:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = dict(live.get("spec", {}))
        if spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec |= {
            "holderIdentity": holder,
            "renewTime": now,
            "leaseDurationSeconds": max(1, round(self._duration)),
        }
        metadata = {"name": self._name, "namespace": self._namespace}
        version = live["metadata"].get("resourceVersion")
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata | ({"resourceVersion": version} if version else {}),
            "spec": spec,
        }
