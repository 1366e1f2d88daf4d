"""Pure: what stands behind a revision while it has no healthy endpoint.

Stable falls back to native, if that is wanted, and where pods may be released
while nobody asks every request ends at the agent, which wakes them. Which
clusters that takes and what they are called, for `render` and `routes`.
A canary never falls back: that would hide what is being judged.
"""

from dataclasses import dataclass

from speculative_api import gateway

from .configuration import AS_FALLBACK, WAY

ANSWERED = "speculative.answered"
"""Metadata key of an endpoint with its revision."""
ANSWERING = f"%UPSTREAM_METADATA({ANSWERED}:revision)%"
"""The revision that answered, where a cluster leads to two."""


@dataclass(frozen=True, slots=True)
class Spare:
    """Native in its second part, as what stable falls back to."""

    native: gateway.Backend
    per_endpoint: int
    """Most requests in flight for each of its endpoints."""
    cluster: str


def spare_of(route: gateway.Route) -> Spare | None:
    """What stable falls back to; None where the route has no such thing."""
    if route.fallback is None or route.native is None or not route.backends:
        return None
    cluster = route.native.hash + AS_FALLBACK
    return Spare(route.native, route.fallback.requests_per_endpoint, cluster)


def has_ways(route: gateway.Route) -> bool:
    """Whether every backend has an aggregate cluster.

    The canary's too: what stable has must not begin to exist, and its counters
    from 0, at a promotion.
    """
    return spare_of(route) is not None or route.waiting is not None


def destination(route: gateway.Route, backend: gateway.Backend) -> str:
    """The cluster that the weighted route names for a backend."""
    return backend.hash + WAY if has_ways(route) else backend.hash


def native_destination(route: gateway.Route, native: gateway.Backend) -> str:
    """The cluster of the native lane: the agent stands behind it, and nothing else."""
    return native.hash + WAY if route.waiting is not None else native.hash


def ways(route: gateway.Route) -> dict[str, tuple[str, ...]]:
    """Clusters of workers that each revision's requests may go to, in order."""
    spare = spare_of(route)
    found: dict[str, tuple[str, ...]] = {each.hash: (each.hash,) for each in route.backends}
    if spare is not None:
        stable = route.backends[0].hash
        found[stable] = (stable, spare.cluster)
    if route.native is not None and route.waiting is not None:
        found[route.native.hash] = (route.native.hash,)
    return found
