"""Operators with different scopes: one for every namespace, one for a single namespace.

Whoever acts holds the Lease of its scope: in `kube-public` for every namespace,
else in the namespace itself. Two operators of one scope exclude each other by that
Lease alone. Across scopes each one first takes its own Lease and then looks for
the other kind: whoever comes second sees the first, gives its Lease back and waits.
"""

import asyncio
from typing import Final

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.lease import Observed
from speculative_operator.cluster.resources import JSON, LEASE
from speculative_operator.errors import NotFound

LEASE_NAME: Final = "speculative-operator"
CLUSTER_NAMESPACE: Final = "kube-public"
"""Exists in every cluster and can't be deleted, so there is one such Lease per cluster."""


def namespace_of(watch_namespace: str) -> str:
    """Where the Lease of an operator with this scope lives."""
    return watch_namespace or CLUSTER_NAMESPACE


class Claims:
    """Leases of operators whose scope overlaps ours."""

    def __init__(
        self, client: Client, *, watch_namespace: str, installation: str, foreign_seconds: float
    ) -> None:
        self._client = client
        self._watch_namespace = watch_namespace
        self._installation = installation
        self._foreign_seconds = foreign_seconds
        self._observed: dict[str, Observed] = {}

    async def hindrance(self) -> str:
        """Who else acts on our namespaces and what to do about it; empty when nobody does."""
        live = await self._leases()
        names = {str(lease["metadata"]["namespace"]) for lease in live}
        self._observed = {n: self._observed.get(n, Observed()) for n in names}
        for lease in live:
            if (held := self._holder(lease)) is not None:
                return self._sentence(lease, held)
        return ""

    async def wait(self, seconds: float) -> None:
        """Until it is worth asking again; who acts on all namespaces gives way longer."""
        await asyncio.sleep(seconds if self._watch_namespace else 2 * seconds)

    async def _leases(self) -> list[JSON]:
        if self._watch_namespace:
            try:
                return [await self._client.get(LEASE, CLUSTER_NAMESPACE, LEASE_NAME)]
            except NotFound:
                return []
        found, _ = await self._client.list_all(LEASE, field=f"metadata.name={LEASE_NAME}")
        return [lease for lease in found if lease["metadata"]["namespace"] != CLUSTER_NAMESPACE]

    def _holder(self, lease: JSON) -> str | None:
        """Who holds it; None when it is free or its holder is long gone."""
        observed = self._observed[str(lease["metadata"]["namespace"])]
        observed.see(lease)
        left = observed.left(
            lease, installation=self._installation, foreign_seconds=self._foreign_seconds
        )
        if left <= 0:
            return None
        return str(lease["spec"].get("holderIdentity") or "an operator that just ended")

    def _sentence(self, lease: JSON, holder: str) -> str:
        namespace = lease["metadata"]["namespace"]
        if self._watch_namespace:
            return (
                f"{holder} acts on every namespace (Lease {CLUSTER_NAMESPACE}/{LEASE_NAME}), "
                f"so also on {self._watch_namespace}: uninstall one of the two"
            )
        return (
            f"{holder} acts on namespace {namespace} (Lease {namespace}/{LEASE_NAME}): uninstall "
            f"it, or install this one with watchNamespace"
        )
