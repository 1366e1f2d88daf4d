"""What pruning spares though nothing asks for it. Pure."""

from speculative_api.labels import REVISION
from speculative_operator.cluster.resources import (
    AUTOSCALER,
    DEPLOYMENT,
    HTTP_ROUTE,
    INFERENCE_POOL,
    JSON,
    LEADER_WORKER_SET,
    SCALED_OBJECT,
    SERVICE,
)
from speculative_operator.decision import Decision
from speculative_operator.desired import names, objects
from speculative_operator.snapshot import Snapshot


def is_protected(live: JSON, snapshot: Snapshot, decision: Decision) -> bool:
    """Whether an object of ours stays though `desired` does not name it.

    Revisions that keep pods stay even when they can't be rendered, stable above
    all; evidence stays until the next trial begins, for whoever asks why; while a
    spec is refused the autoscaler goes on as it was.
    """
    if live["kind"] in (AUTOSCALER.kind, SCALED_OBJECT.kind):
        return bool(snapshot.findings)
    pools = snapshot.spec.gateway.endpoint_picker_ref is not None
    if live["kind"] == HTTP_ROUTE.kind:
        # Where pools can't be written or seen, users go on by the last route.
        return pools and INFERENCE_POOL.kind in snapshot.missing_kinds
    if live["kind"] == INFERENCE_POOL.kind and not pools:
        return False
    if live["kind"] in (
        DEPLOYMENT.kind,
        LEADER_WORKER_SET.kind,
        SERVICE.kind,
        INFERENCE_POOL.kind,
    ):
        revision = (live["metadata"].get("labels") or {}).get(REVISION)
        stable = {s.stable.hash for s in (snapshot.status, decision.status) if s.stable}
        if not stable:
            # Status was emptied and nobody knows what serves.
            return bool(revision)
        return revision in stable or revision in objects.untouched(snapshot, decision)
    if live["metadata"]["name"] == names.drift(snapshot.name):
        return snapshot.spec.rollout.drift is not None
    return bool(live["metadata"]["name"] == names.evidence(snapshot.name))
