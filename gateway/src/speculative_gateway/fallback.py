"""Pure: stable falls back to native while it has no healthy endpoint.

Which clusters that takes and what they are called, for `render` and `routes`.
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


def destination(route: gateway.Route, backend: gateway.Backend) -> str:
    """The cluster that the weighted route names for a backend.

    With a fallback every backend has an aggregate, the canary's too: what
    stable has must not begin to exist, and its counters from 0, at a promotion.
    """
    return backend.hash if spare_of(route) is None else backend.hash + WAY
