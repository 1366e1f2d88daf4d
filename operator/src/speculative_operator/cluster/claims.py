"""Operators whose namespaces may overlap: of all, of a shard of them, of a single one.

Whoever acts holds the Lease of its scope: in the namespace itself where it acts on
one alone, else in `kube-public`, one for each index of a shard. Two operators of one
Lease exclude each other by it. All others first take their own and then look for
those that overlap: whoever comes second sees the first, gives its Lease back and waits.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.lease import Observed, installation_of, shard_of
from speculative_operator.cluster.resources import JSON, LEASE
from speculative_operator.shard import MOST_SHARDS, Shard

LEASE_NAME: Final = "speculative-operator"
CLUSTER_NAMESPACE: Final = "kube-public"
"""Exists in every cluster and can't be deleted, so there is one set of Leases per cluster."""
_OURS: Final = re.compile(rf"{LEASE_NAME}(-[1-9][0-9]*)?")


def namespace_of(watch_namespace: str) -> str:
    """Where the Lease of an operator with this scope lives."""
    return watch_namespace or CLUSTER_NAMESPACE


def lease_name(shard: Shard) -> str:
    """Name of the Lease of a shard, whatever their number."""
    return f"{LEASE_NAME}-{shard.index}" if shard.index else LEASE_NAME


async def leases_of_shards(client: Client) -> list[JSON]:
    """The Leases of operators for more than one namespace.

    Raises:
        ApiError: they can't be read.
    """
    found, _ = await client.list_all(LEASE, CLUSTER_NAMESPACE)
    return [lease for lease in found if _OURS.fullmatch(lease["metadata"]["name"])]


@dataclass(frozen=True, slots=True)
class InTheWay:
    """Another operator that acts on namespaces of ours."""

    words: str
    """Who, where, and what to do about it."""
    ours: bool = False
    """Whether it is of our own installation, so that it leaves by itself: a hand-over."""


class Claims:
    """Leases of operators whose scope overlaps ours."""

    def __init__(
        self,
        client: Client,
        *,
        watch_namespace: str,
        installation: str,
        foreign_seconds: float,
        shard: Shard | None = None,
    ) -> None:
        self._client = client
        self._watch_namespace = watch_namespace
        self._installation = installation
        self._foreign_seconds = foreign_seconds
        self._shard = shard or Shard()
        self._observed: dict[tuple[str, str], Observed] = {}

    async def hindrance(self) -> InTheWay | None:
        """Who else acts on our namespaces; None when nobody does."""
        live = {_place(lease): lease for lease in await self._leases()}
        self._observed = {place: self._observed.get(place, Observed()) for place in live}
        for place, lease in live.items():
            # All of them at each look: of several that died at once none is waited for in turn.
            self._observed[place].see(lease)
        for place, lease in live.items():
            if (held := self._holder(lease, self._observed[place])) is not None:
                ours = self._is_ours(lease)
                return InTheWay(self._sentence(lease, held, ours=ours), ours=ours)
        return None

    async def wait(self, seconds: float) -> None:
        """Until it is worth asking again; who acts on more gives way longer, so that two that
        come at the same moment do not do so again."""
        longer = 1 + self._shard.count / MOST_SHARDS
        await asyncio.sleep(seconds * (1 if self._watch_namespace else 2 * longer))

    async def _leases(self) -> list[JSON]:
        """Those that overlap our scope, apart from the one that is our own to take."""
        shards = await leases_of_shards(self._client)
        if self._watch_namespace:
            return [lease for lease in shards if shard_of(lease).owns(self._watch_namespace)]
        single, _ = await self._client.list_all(LEASE, field=f"metadata.name={LEASE_NAME}")
        return [
            lease
            for lease in shards
            if lease["metadata"]["name"] != lease_name(self._shard)
            and shard_of(lease).overlaps(self._shard)
        ] + [
            lease
            for lease in single
            if lease["metadata"]["namespace"] != CLUSTER_NAMESPACE
            and self._shard.owns(lease["metadata"]["namespace"])
        ]

    def _is_ours(self, lease: JSON) -> bool:
        # Of different scopes one is to be uninstalled by a person, whoever installed both.
        shards = not self._watch_namespace and _place(lease)[0] == CLUSTER_NAMESPACE
        return shards and installation_of(lease) == self._installation

    def _holder(self, lease: JSON, observed: Observed) -> str | None:
        """Who holds it; None when it is free or its holder is long gone."""
        left = observed.left(
            lease, installation=self._installation, foreign_seconds=self._foreign_seconds
        )
        if left <= 0:
            return None
        return str(lease["spec"].get("holderIdentity") or "an operator that just ended")

    def _sentence(self, lease: JSON, holder: str, *, ours: bool) -> str:
        namespace, name = _place(lease)
        shard = shard_of(lease)
        who = f"{holder} acts on " + (
            f"namespace {namespace}"
            if namespace != CLUSTER_NAMESPACE
            else "every namespace"
            if shard.is_whole
            else f"shard {shard} of the namespaces"
        )
        where = f"{who} (Lease {namespace}/{name})"
        if ours:
            return f"{where}, which overlaps our shard {self._shard}: until it leaves we wait"
        if self._watch_namespace:
            return f"{where}, so also on {self._watch_namespace}: uninstall one of the two"
        return f"{where}: uninstall it, or install this one with watchNamespace"


def _place(lease: JSON) -> tuple[str, str]:
    return str(lease["metadata"]["namespace"]), str(lease["metadata"]["name"])
