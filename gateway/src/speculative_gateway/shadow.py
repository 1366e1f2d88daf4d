"""Pure: copies of the accelerated lane's requests for a revision that has no users yet.

Which clusters, bounds and route fields that takes, for `render` and `routes`.
The copies have a cluster of their own, so that neither their answers nor their
number mix with users' requests; Envoy throws the answers away. The percentage
is a runtime value: changing it rewrites no route, which would fill every bucket
of the limits anew (measured).
"""

from collections.abc import Mapping
from typing import Any

from speculative_api import gateway

from .configuration import SHADOW, SHADOW_PREFIX

COPIED_BODY_BYTES = 32 * 1024 * 1024
"""So much of a copy's body is held for a canary that does not read it, so that the
upload of the original goes on; as long as the longest limit that a route may set."""


def cluster_of(shadow: gateway.Shadow) -> str:
    """The cluster that its copies go to."""
    return shadow.hash + SHADOW


def copied_to(route: gateway.Route) -> gateway.Backend | None:
    """The backend whose endpoints answer copies, in the way that they answer requests."""
    shadow = route.shadow
    return next((each for each in route.backends if shadow and each.hash == shadow.hash), None)


def copies(route: gateway.Route) -> dict[str, int]:
    """Percent of requests that are copied, by cluster."""
    return {} if route.shadow is None else {cluster_of(route.shadow): route.shadow.percent}


def bounds(route: gateway.Route) -> dict[str, int]:
    """Most copies in flight, by cluster; of more none is made, and nobody notices."""
    return {} if route.shadow is None else {cluster_of(route.shadow): route.shadow.most_requests}


def mirroring(route: gateway.Route) -> Mapping[str, Any]:
    """Fields of the accelerated lane's route action. Without a runtime value nothing is copied.

    Envoy appends `-shadow` to a copy's Host; its other headers are those that
    the worker of the original gets, so without keys.
    """
    if route.shadow is None:
        return {}
    cluster = cluster_of(route.shadow)
    policy = {
        "cluster": cluster,
        "runtime_fraction": {
            "default_value": {"numerator": 0, "denominator": "HUNDRED"},
            "runtime_key": f"{SHADOW_PREFIX}.{cluster}",
        },
    }
    return {"request_mirror_policies": [policy]}
