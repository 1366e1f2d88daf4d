"""How gateways know a revision's engines: from its own words, whatever the spec says now."""

from speculative_api import gateway as api
from speculative_api.v1alpha1 import WorkerTls
from speculative_operator.decision import Decision
from speculative_operator.desired.native import native_lane
from speculative_operator.desired.revision import parse
from speculative_operator.snapshot import Snapshot


def backend_tls(snapshot: Snapshot, hash_: str) -> api.BackendTls | None:
    """What the route says about a revision; what it said where the revision's record is lost."""
    record = snapshot.revisions.get(hash_)
    if record is not None:
        return _said(parse(record.words).engine.tls)
    if snapshot.words.hash == hash_:
        return _said(snapshot.spec.engine.tls)
    before = snapshot.route
    known = [*before.backends, before.native] if before is not None else []
    return next((each.tls for each in known if each is not None and each.hash == hash_), None)


def authorities(snapshot: Snapshot, decision: Decision) -> tuple[str, ...]:
    """Secrets that vouch for the engines of the route and of the spec, sorted.

    The spec's is there before its revision has pods, so that gateways are replaced while
    these start; the former one's as long as its revision is in the route.
    """
    lane = native_lane(snapshot, decision)
    hashes = [share.hash for share in decision.shares]
    hashes += [lane.serving] if lane.serving else []
    found = [backend_tls(snapshot, hash_) for hash_ in hashes]
    found.append(_said(snapshot.spec.engine.tls))
    return tuple(sorted({each.authority for each in found if each is not None}))


def _said(tls: WorkerTls | None) -> api.BackendTls | None:
    if tls is None:
        return None
    return api.BackendTls(authority=tls.secret_name, server_name=tls.server_name)
