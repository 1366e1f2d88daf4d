"""One operator at a time: a coordination.k8s.io Lease.

The holder renews it at a sixth of its duration; another one takes over once it
has seen no change for a whole duration by its own monotonic clock (as client-go
does; wall clocks of two machines are never compared). From three quarters of the
duration after its last renewal on, `valid` is false: no write leaves the client
any more, whatever this process was doing meanwhile, before anyone takes over.

Whoever waits watches the Lease: it is seen when it is given away, and costs no reads
before. The watch permits nothing by itself: what is taken was read a moment earlier.

An operator of another installation is no stand-in: its images and defaults may
differ. It takes over only after the Lease was left alone for `foreign_seconds`.

Operators that divide the namespaces have a Lease for each index, which says of how
many shards its holder is one: `claims` compares what overlaps.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import JSON, LEASE
from speculative_operator.errors import ApiError, Conflict, NotFound
from speculative_operator.shard import Shard

log = logging.getLogger(__name__)

INSTALLATION: Final = "speculative.dev/installation"
"""Annotation of the Lease: namespace of the operator that wrote it last."""


SHARD: Final = "speculative.dev/shard"
"""Annotation of the Lease: which shard its last writer acts on, as in 1/3; absent: all."""


@dataclass(slots=True)
class Observed:
    """A Lease of somebody else, and since when it has not changed."""

    version: str = ""
    since: float = 0.0
    """Loop time."""

    def see(self, live: JSON) -> None:
        """Notes the present version."""
        version = str(live["metadata"]["resourceVersion"])
        if version != self.version:
            self.version, self.since = version, asyncio.get_running_loop().time()

    def left(self, live: JSON, *, installation: str, foreign_seconds: float) -> float:
        """Seconds until its holder counts as gone; 0 when it does already."""
        spec = live.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        writer = installation_of(live)
        wait = float(spec.get("leaseDurationSeconds") or 0) if holder else 0.0
        if writer and writer != installation:
            if not holder and _age(spec.get("renewTime")) >= foreign_seconds:
                return 0.0
            wait = max(wait, foreign_seconds)
        return max(0.0, self.since + wait - asyncio.get_running_loop().time())


def installation_of(live: JSON) -> str:
    """Namespace of the operator that wrote the Lease last; empty when it does not say."""
    return str((live["metadata"].get("annotations") or {}).get(INSTALLATION, ""))


def shard_of(live: JSON) -> Shard:
    """The shard of the operator that wrote the Lease last."""
    return Shard.parse(str((live["metadata"].get("annotations") or {}).get(SHARD, "")))


def _age(text: str | None) -> float:
    """Seconds since a time on somebody's wall clock: for politeness only, never for safety."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(text or "")).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


class Lease:
    """`acquire`, then `hold` in a task of its own, then `release`; `acquire` again after a loss."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        installation: str = "",
        shard: Shard | None = None,
        duration: float = 5.0,
        foreign_seconds: float = 300.0,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._installation = installation
        self._annotations = {INSTALLATION: installation} if installation else {}
        if shard is not None and not shard.is_whole:
            self._annotations[SHARD] = str(shard)
        self._duration = duration
        self._foreign_seconds = foreign_seconds
        self._period = duration / 6
        self._deadline = duration * 3 / 4
        self._patience = duration * 5 / 12
        """Longest single request: slower servers are endured, and a second one still fits."""
        self._live: JSON | None = None
        self._observed = Observed()
        self._renewed_at = float("-inf")
        self.held = False
        self.foreign_holder = ""
        """Who of another installation holds it, as last seen; empty when nobody does."""

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold it at this moment."""
        return self.held and asyncio.get_running_loop().time() < self._renewed_at + self._deadline

    async def acquire(self) -> None:
        """Waits until the lease is ours."""
        while True:
            left = await self._attempt()
            if left is None:
                break
            await self._changes(left)
        self.held = True
        log.info("event=lease-acquired identity=%s", self._identity)

    async def _changes(self, left: float) -> None:
        """Until it is worth another attempt: given away, expired after `left` seconds without a
        change, or not to be watched."""
        pause = min(self._period, max(0.01, left))
        if self._live is None or left <= self._period:
            # At its expiry and not a period later: that is downtime.
            await asyncio.sleep(pause)
            return
        events = self._client.watch(
            LEASE,
            self._namespace,
            resource_version=str(self._live["metadata"]["resourceVersion"]),
            field=f"metadata.name={self._name}",
        )
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(left) as limit, contextlib.aclosing(events):
                async for event, live in events:
                    if event == "DELETED":
                        return
                    if event != "BOOKMARK":
                        if (left := self._left(live)) <= 0:
                            return
                        limit.reschedule(clock() + left)
        except TimeoutError:
            return
        except ApiError as error:
            # Asking now and then does as well, only later.
            log.debug("event=lease-not-watched why=%r", str(error))
        await asyncio.sleep(pause)

    def _left(self, live: JSON) -> float:
        """Seconds until the Lease of somebody else, as it is now, may be taken."""
        self._observed.see(live)
        left = self._observed.left(
            live, installation=self._installation, foreign_seconds=self._foreign_seconds
        )
        foreign = installation_of(live) not in ("", self._installation)
        holder = live.get("spec", {}).get("holderIdentity") or ""
        self.foreign_holder = (holder or installation_of(live)) if foreign and left else ""
        return left

    async def hold(self) -> None:
        """Renews until that did not succeed in time, and returns then."""
        clock = asyncio.get_running_loop().time
        while self.valid:
            left = self._renewed_at + self._deadline - clock()
            await asyncio.sleep(max(0.0, min(self._period, left)))
            left = self._renewed_at + self._deadline - clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left)):
                    if await self._attempt() is not None and self._is_anothers():
                        break
        self.held = False
        log.error("event=lease-lost identity=%s", self._identity)

    def _is_anothers(self) -> bool:
        spec = (self._live or {}).get("spec", {})
        return bool(spec) and spec.get("holderIdentity") != self._identity

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

    async def _attempt(self) -> float | None:
        """One attempt to take or renew: None when it is ours, else seconds to wait at least."""
        started = asyncio.get_running_loop().time()
        try:
            left = await self._take()
        except Conflict:
            self._live = None
            return 0.0
        except ApiError as error:
            self._live = None
            log.warning("event=lease-request-failed why=%r", str(error))
            return self._period
        if left is None:
            # From the start of the request: the others count from no earlier.
            self._renewed_at = started
        return left

    async def _take(self) -> float | None:
        seconds = self._patience
        if self.held and self._live is not None and not self._is_anothers():
            # The version says whether it is still as we left it: no need to read first.
            body = self._body(self._live, holder=self._identity)
            self._live = await self._client.replace(LEASE, body, timeout_seconds=seconds)
            return None
        try:
            live = await self._client.get(
                LEASE, self._namespace, self._name, timeout_seconds=seconds
            )
        except NotFound:
            body = self._body({"metadata": {}}, holder=self._identity)
            self._live = await self._client.create(LEASE, body, timeout_seconds=seconds)
            return None
        self._live = live
        if self._is_anothers() and (left := self._left(live)) > 0:
            return left
        body = self._body(live, holder=self._identity)
        self._live = await self._client.replace(LEASE, body, timeout_seconds=seconds)
        return None

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
        metadata: JSON = {"name": self._name, "namespace": self._namespace}
        if self._annotations:
            metadata["annotations"] = self._annotations
        version = live["metadata"].get("resourceVersion")
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata | ({"resourceVersion": version} if version else {}),
            "spec": spec,
        }
