"""Whether every shard is somebody's: looked at now and then by every replica of every shard.

A resource whose shard nobody holds is written by nobody, so that no condition of its
own can say so: a metric of the others does, and a line in their logs. During a
hand-over an old shard still covers what a new one waits for.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from speculative_operator.cluster.claims import leases_of_shards
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.lease import Observed, installation_of, shard_of
from speculative_operator.errors import ApiError
from speculative_operator.shard import Shard

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""Between two looks, each one request; longer than a Lease of the default duration."""

Show = Callable[[Shard, bool], None]


class Ring:
    """All shards of as many as ours; does nothing where ours is the whole."""

    def __init__(
        self,
        client: Client,
        own: Shard,
        *,
        show: Show,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._client = client
        self._shards = [Shard(index, own.count) for index in range(own.count)]
        self._show = show
        self._look_seconds = look_seconds
        self._observed: dict[str, Observed] = {}
        self._uncovered: frozenset[Shard] = frozenset()
        """As of the last look; every start and hand-over begins with some."""
        self._told: frozenset[Shard] = frozenset()

    async def run(self) -> None:
        """Looks until cancelled."""
        while len(self._shards) > 1:
            try:
                await self.look()
            except ApiError as error:
                # The last figures stay: whoever acts goes by its Lease, not by these.
                log.warning("event=shards-not-seen why=%r", str(error))
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """One look.

        Raises:
            ApiError: the Leases can't be read.
        """
        held = []
        for lease in await leases_of_shards(self._client):
            observed = self._observed.setdefault(lease["metadata"]["name"], Observed())
            observed.see(lease)
            left = observed.left(lease, installation=installation_of(lease), foreign_seconds=0)
            if left > 0:
                held.append(shard_of(lease))
        found = frozenset(shard for shard in self._shards if not shard.is_covered(held))
        for shard in self._shards:
            self._show(shard, shard not in found)
        lasting = found & self._uncovered
        for shard in self._shards:
            if shard in lasting - self._told:
                log.error("event=shard-without-operator shard=%s", shard)
            elif shard in self._told - found:
                log.info("event=shard-has-an-operator shard=%s", shard)
        self._uncovered, self._told = found, lasting
