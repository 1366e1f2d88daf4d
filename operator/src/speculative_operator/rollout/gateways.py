"""What the data plane was seen to do: the questions asked before capacity is taken away.

Every gateway pod that exists counts, terminating ones too. One that is silent
and not a ready endpoint no longer blocks; after a minute none does, and removal
proceeds on the pods' own drain.
"""

from collections.abc import Iterator

from speculative_api.v1alpha1 import GatewayMode
from speculative_operator.rollout.times import seconds_since
from speculative_operator.snapshot import GatewayPod, HttpRoute, Pool, Snapshot

SILENT_SECONDS = 15.0
"""A gateway that is not ready and has not answered for this long no longer blocks."""
GIVEN_UP_SECONDS = 60.0
"""After this long even a ready gateway that does not answer no longer blocks."""
UNSEEN_SECONDS = 30.0
"""Where no gateway of ours can be asked, a change counts as followed after this long."""


def is_silent(gateway: GatewayPod) -> bool:
    """Whether nobody waits for this gateway's answer any more."""
    if gateway.silent_seconds >= GIVEN_UP_SECONDS:
        return True
    return gateway.silent_seconds >= SILENT_SECONDS and not gateway.ready


def is_unseen(snapshot: Snapshot, since: str) -> bool:
    """Whether a change made then may still not be followed, there being nobody to ask."""
    if snapshot.spec.gateway.mode.reads_back:
        return False
    return seconds_since(since, snapshot.now) < UNSEEN_SECONDS


def _counting(snapshot: Snapshot) -> Iterator[GatewayPod]:
    return (gateway for gateway in snapshot.gateways if not is_silent(gateway))


def weight_at(gateway: GatewayPod, revision: str) -> int | None:
    """Percent this gateway gives a revision; None while it has not answered."""
    if gateway.state is None:
        return None
    for cluster in gateway.state.clusters:
        if cluster.hash == revision:
            return cluster.weight
    return 0


def highest_weight(snapshot: Snapshot, revision: str) -> int:
    """The highest percent that any gateway reports for a revision.

    A Gateway that is not ours reports nothing: what its route says has to do.
    """
    if snapshot.spec.gateway.mode is GatewayMode.GATEWAY_API:
        return snapshot.http_route.weights.get(revision, 0) if snapshot.http_route else 0
    weights = (weight_at(gateway, revision) for gateway in snapshot.gateways)
    return max((weight for weight in weights if weight is not None), default=0)


def lowest_weight(snapshot: Snapshot, revision: str, *, unknown: int) -> int:
    """The lowest percent that any gateway gives a revision; `unknown` where nobody says.

    A gateway that never had a route sends nothing to anybody.
    """
    found = []
    for gateway in _counting(snapshot):
        weight = weight_at(gateway, revision)
        if gateway.state is not None and gateway.state.sequence < 0 and not gateway.ready:
            continue
        found.append(unknown if weight is None else weight)
    return min(found, default=unknown)


def copied_at(gateway: GatewayPod, revision: str) -> int:
    """Percent of its requests that this gateway is known to copy to a revision."""
    clusters = gateway.state.clusters if gateway.state is not None else ()
    return next((c.shadow.percent for c in clusters if c.hash == revision and c.shadow), 0)


def highest_copied(snapshot: Snapshot, revision: str) -> int:
    """The highest percent that any gateway copies to a revision."""
    return max((copied_at(gateway, revision) for gateway in snapshot.gateways), default=0)


def everyone_copies(snapshot: Snapshot, revision: str, percent: int) -> bool:
    """Whether every gateway that counts copies exactly so much; false without any."""
    counting = list(_counting(snapshot))
    return bool(counting) and all(
        _uses_newest(snapshot, gateway) and copied_at(gateway, revision) == percent
        for gateway in counting
    )


def nobody_copies(snapshot: Snapshot, revision: str) -> bool:
    """Whether every gateway that counts has stopped to; true without any."""
    return not any(_counting(snapshot)) or everyone_copies(snapshot, revision, 0)


def _uses_newest(snapshot: Snapshot, gateway: GatewayPod) -> bool:
    """Whether its answer is about the newest route: an older one says nothing about what comes."""
    newest = snapshot.route.sequence if snapshot.route is not None else -1
    return gateway.state is not None and gateway.state.sequence >= newest


def everyone_uses(snapshot: Snapshot, revision: str, weight: int) -> bool:
    """Whether every gateway that counts gives exactly this weight; false without any."""
    counting = list(_counting(snapshot))
    return bool(counting) and all(
        _uses_newest(snapshot, gateway) and weight_at(gateway, revision) == weight
        for gateway in counting
    )


def is_accepted(route: HttpRoute | Pool | None) -> bool:
    """Whether every Gateway that this version of it is at has taken it; false for none."""
    return (
        route is not None
        and bool(route.parents)
        and all(
            parent.accepted and parent.observed_generation >= route.generation
            for parent in route.parents
        )
    )


def is_reachable(snapshot: Snapshot, revision: str) -> bool:
    """Whether a Gateway would find the pods of a revision, as far as it says so.

    A pool whose picker is missing is no reason for a Gateway to refuse the route.
    """
    pools = snapshot.spec.gateway.endpoint_picker_ref is not None
    return not pools or is_accepted(snapshot.pools.get(revision))


def is_followed(snapshot: Snapshot, revision: str, weight: int, *, since: str) -> bool:
    """Whether a weight that was decided then is in use, as far as that can be known."""
    if snapshot.spec.gateway.mode.reads_back:
        return everyone_uses(snapshot, revision, weight)
    reachable = weight == 0 or is_reachable(snapshot, revision)
    accepted = is_accepted(snapshot.http_route) and reachable
    written = highest_weight(snapshot, revision) == weight
    return accepted and written and not is_unseen(snapshot, since)


def nobody_sends(snapshot: Snapshot, revision: str) -> bool:
    """Whether every gateway that counts reads weight 0 for a revision, and copies nothing."""
    if highest_weight(snapshot, revision) > 0 and not snapshot.spec.gateway.mode.reads_back:
        return False
    return nobody_copies(snapshot, revision) and all(
        _uses_newest(snapshot, gateway) and weight_at(gateway, revision) == 0
        for gateway in _counting(snapshot)
    )


def active_requests(snapshot: Snapshot, revision: str) -> int:
    """Requests in flight to a revision, copies too, over all gateways that count."""
    return sum(
        cluster.active + (cluster.shadow.active if cluster.shadow else 0)
        for gateway in _counting(snapshot)
        if gateway.state is not None
        for cluster in gateway.state.clusters
        if cluster.hash == revision
    )


def nobody_knows(snapshot: Snapshot, revision: str) -> bool:
    """Whether no gateway that counts has a cluster for a revision any more."""
    return all(
        gateway.state is not None
        and all(cluster.hash != revision for cluster in gateway.state.clusters)
        for gateway in _counting(snapshot)
    )


def endpoints_seen(snapshot: Snapshot, revision: str) -> int:
    """The fewest endpoints that any gateway that counts would send to; 0 without a gateway."""
    found = [
        next((c.endpoints for c in gateway.state.clusters if c.hash == revision), 0)
        if gateway.state is not None
        else 0
        for gateway in _counting(snapshot)
    ]
    return min(found, default=0)
