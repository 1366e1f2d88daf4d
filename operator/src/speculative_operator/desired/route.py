"""The route: what the decision's shares mean to the gateways, and its ConfigMap.

The sequence rises only when the content changes, so that a pass over an
unchanged world writes nothing and an agent can refuse what is older.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from speculative_api import gateway as api
from speculative_api import labels
from speculative_api.v1alpha1 import Auth, Gateway, GatewayMode, LaneRule
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.engine_tls import backend_tls
from speculative_operator.desired.native import NativeLane, native_lane, words_of_stable
from speculative_operator.desired.revision import parse
from speculative_operator.scaling.idling import waiting
from speculative_operator.snapshot import Snapshot

_OF_THE_GATEWAY: Final = {
    "hosts": (),
    "auth": None,
    "rate_limit": None,
    "max_request_body_bytes": None,
    "allowed_cidrs": (),
}
"""What a member's route leaves to the shared gateway's own words."""


def next_route(snapshot: Snapshot, decision: Decision, lane: NativeLane | None = None) -> api.Route:
    """The route that follows from the decision.

    Raises:
        pydantic.ValidationError: the shares do not sum to 100 or name a
            revision twice, which is a defect of the decision.
    """
    lane = lane or native_lane(snapshot, decision)
    native = _backend(snapshot, decision, lane.serving, 100) if lane.serving else None
    backends = tuple(
        _backend(snapshot, decision, share.hash, share.weight) for share in decision.shares
    )
    timeouts = snapshot.spec.gateway.timeouts
    auth = snapshot.spec.gateway.auth
    wanted = api.Route(
        schema_version=_schema_version(snapshot.spec.gateway, [*backends, native]),
        owner_uid=snapshot.uid,
        sequence=0,
        model=_model_name(snapshot, decision),
        hosts=tuple(snapshot.spec.gateway.hosts),
        default=_default(decision),
        backends=backends,
        native=native,
        shadow=_shadow(snapshot, decision),
        lane_rules=tuple(_lane_rule(rule) for rule in snapshot.spec.lanes.rules),
        fallback=_fallback(snapshot, decision),
        waiting=waiting(snapshot),
        timeouts=api.Timeouts(
            request_seconds=timeouts.request_seconds, idle_seconds=timeouts.idle_seconds
        ),
        auth=auth_of(auth) if auth else None,
        rate_limit=rate_limit_of(snapshot.spec.gateway),
        affinity=_affinity(snapshot, decision),
        max_request_body_bytes=snapshot.spec.gateway.max_request_body_bytes,
        drain_seconds=drain_seconds(snapshot, decision),
        allowed_cidrs=tuple(snapshot.spec.gateway.allowed_cidrs),
        revision_headers=snapshot.spec.gateway.revision_headers,
    )
    if snapshot.spec.gateway.mode is GatewayMode.SHARED:
        version = _schema_version(Gateway(), [*backends, native])
        wanted = wanted.model_copy(update={**_OF_THE_GATEWAY, "schema_version": version})
    before = snapshot.route
    known = _highest_known(snapshot, decision)
    same = before is not None and wanted == before.model_copy(update={"sequence": 0})
    if before is not None and same and before.sequence >= known:
        return before
    return wanted.model_copy(update={"sequence": known + 1})


def drain_seconds(snapshot: Snapshot, decision: Decision) -> int:
    """How long a stopping gateway lets streams run: the longer of stable's and the spec's drain."""
    stable = words_of_stable(snapshot, decision)
    drains = [snapshot.spec.engine.drain_seconds]
    if stable is not None:
        drains.append(parse(stable.canonical).engine.drain_seconds)
    return max(drains)


def auth_of(wanted: Auth) -> api.Auth:
    """Who is let in, as agents read it."""
    if wanted.jwt is None:
        return api.Auth(api_keys_secret=wanted.api_keys_secret or "")
    return api.Auth(
        jwt=api.Jwt(
            issuer=wanted.jwt.issuer,
            audiences=tuple(wanted.jwt.audiences),
            jwks_uri=wanted.jwt.jwks_uri,
            jwks_config_map=wanted.jwt.jwks_config_map,
            client_claim=wanted.jwt.client_claim,
        )
    )


def _schema_version(
    wanted: Gateway, revisions: Sequence[api.Backend | None]
) -> Literal[1, 2, 3, 4]:
    """The first whose agents know everything that keeps people out, or that engines speak TLS."""
    if any(each is not None and each.tls is not None for each in revisions):
        return 4
    if wanted.allowed_cidrs or (wanted.auth and wanted.auth.jwt):
        return 3
    return 2 if wanted.auth else 1


def _highest_known(snapshot: Snapshot, decision: Decision) -> int:
    """The highest sequence that anybody knows of.

    The ConfigMap may have been deleted or edited by hand; an agent refuses
    what is older than the route it uses, for ever.
    """
    known = [decision.status.route_sequence, snapshot.status.route_sequence]
    known += [snapshot.route.sequence] if snapshot.route else []
    states = (gateway.state for gateway in snapshot.gateways if gateway.state is not None)
    known += [state.sequence for state in states if state.owner_uid == snapshot.uid]
    return max(known)


def _affinity(snapshot: Snapshot, decision: Decision) -> api.Affinity | None:
    """Salted with the revision on trial, which is stable once it was promoted.

    The salt thus changes only while everything goes to one revision.
    """
    header = snapshot.spec.gateway.session_affinity_header
    tried = decision.status.canary or decision.status.stable
    if header is None or tried is None:
        return None
    return api.Affinity(header=header.lower(), salt=tried.hash)


def _fallback(snapshot: Snapshot, decision: Decision) -> api.Fallback | None:
    """One gateway pod's part of what a native pod runs at once, rounded up."""
    if not snapshot.spec.lanes.native.fallback:
        return None
    share = -(-_running(snapshot, decision) // snapshot.spec.gateway.replicas)
    return api.Fallback(requests_per_endpoint=share)


def _lane_rule(rule: LaneRule) -> api.LaneRule:
    return api.LaneRule.model_validate(rule.model_dump())


def rate_limit_of(wanted: Gateway) -> api.RateLimit | None:
    """One pod's share, rounded up: the pods know nothing of each other."""
    limit = wanted.rate_limit
    if limit is None:
        return None

    def share(total: int | None) -> int | None:
        return None if total is None else -(-total // wanted.replicas)

    return api.RateLimit(
        requests_per_minute_per_key=share(limit.requests_per_minute_per_key),
        tokens_per_minute_per_key=share(limit.tokens_per_minute_per_key),
        concurrent_requests_per_key=share(limit.concurrent_requests_per_key),
    )


def _shadow(snapshot: Snapshot, decision: Decision) -> api.Shadow | None:
    """One gateway pod's part of the copies in flight, rounded up."""
    wanted, before = decision.copies, snapshot.route.shadow if snapshot.route else None
    if wanted is None:
        return None
    if wanted.most is not None:
        most = -(-wanted.most // snapshot.spec.gateway.replicas)
    else:
        most = before.most_requests if before else 1
    return api.Shadow(hash=wanted.hash, percent=wanted.percent, most_requests=most)


def _backend(snapshot: Snapshot, decision: Decision, hash_: str, weight: int) -> api.Backend:
    return api.Backend(
        hash=hash_,
        service=names.revision(snapshot.name, hash_),
        weight=weight,
        requests_per_endpoint=_most_requests(snapshot, decision, hash_),
        tls=backend_tls(snapshot, hash_),
    )


def _most_requests(snapshot: Snapshot, decision: Decision, hash_: str) -> int | None:
    """One gateway pod's part of what a pod of this revision runs and lets wait, rounded up."""
    overload = snapshot.spec.gateway.overload
    if overload is None:
        return None
    record = snapshot.revisions.get(hash_)
    most = overload.max_queued_requests_per_pod + (
        parse(record.words).engine.max_num_seqs if record else _running(snapshot, decision)
    )
    return -(-most // snapshot.spec.gateway.replicas)


def _running(snapshot: Snapshot, decision: Decision) -> int:
    """What a pod of stable runs at once."""
    stable = words_of_stable(snapshot, decision)
    engine = parse(stable.canonical).engine if stable else snapshot.spec.engine
    return engine.max_num_seqs


def _default(decision: Decision) -> str | None:
    """Stable, or the first share should stable not be in the route."""
    hashes = [share.hash for share in decision.shares]
    if not hashes:
        return None
    stable = decision.status.stable
    return stable.hash if stable is not None and stable.hash in hashes else hashes[0]


def _model_name(snapshot: Snapshot, decision: Decision) -> str:
    stable = words_of_stable(snapshot, decision)
    target = parse(stable.canonical).target if stable else snapshot.spec.target
    return target.served_model_name or snapshot.name


def route_config_map(
    route: api.Route, *, name: str, metadata: dict[str, Any], shared_gateway: str = ""
) -> dict[str, Any]:
    """The ConfigMap that the gateways' agents watch, its own ones or those of a shared gateway."""
    own_labels = names.component_labels(name, labels.COMPONENT_GATEWAY)
    if shared_gateway:
        own_labels = {**own_labels, labels.SHARED_GATEWAY: shared_gateway}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **metadata,
            "name": names.member_route(name) if shared_gateway else names.route(name),
            "labels": own_labels,
        },
        "data": {api.ROUTE_KEY: route.model_dump_json(by_alias=True)},
    }
