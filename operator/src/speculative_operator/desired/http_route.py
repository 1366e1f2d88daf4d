"""The HTTPRoute of `gateway.mode: GatewayAPI`: lanes and weights at somebody else's Gateway.

Weights are always written, as integers, for every revision that is in the
route; a missing one would mean 1. The last rule is the accelerated lane's:
`cluster.http_routes` reads its weights back. Backends are Services or InferencePools of
revisions, by the same names.
"""

from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import EndpointPickerRef, ParentRef
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.desired.native import NativeLane
from speculative_operator.snapshot import Snapshot

GROUP: Final = "gateway.networking.k8s.io"
POOLS: Final = "inference.networking.k8s.io"
POOL_KIND: Final = "InferencePool"


def http_route(
    snapshot: Snapshot, decision: Decision, lane: NativeLane, *, metadata: dict[str, Any]
) -> dict[str, Any] | None:
    """The route; None before there is a revision to send to, or a Gateway to be at."""
    parent = snapshot.spec.gateway.parent_ref
    if parent is None or not decision.shares:
        return None
    # Without a lane nobody, which is an error: never another lane's answer. An empty list would
    # mean the same, but Contour refuses it and then follows the next rule.
    native = (lane.serving, 1) if lane.serving else (decision.shares[0].hash, 0)
    accelerated = [_backend(snapshot, share.hash, share.weight) for share in decision.shares]
    named = [{"type": "Exact", "name": labels.LANE_HEADER, "value": "native"}]
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "HTTPRoute",
        "metadata": {
            **metadata,
            "name": names.gateway(snapshot.name),
            "labels": names.component_labels(snapshot.name, labels.COMPONENT_GATEWAY),
        },
        "spec": {
            "parentRefs": [_parent(parent)],
            **({"hostnames": list(hosts)} if (hosts := snapshot.spec.gateway.hosts) else {}),
            "rules": [
                _rule(snapshot, [_backend(snapshot, *native)], headers=named),
                _rule(snapshot, accelerated),
            ],
        },
    }


def _parent(parent: ParentRef) -> dict[str, Any]:
    found = {"group": GROUP, "kind": "Gateway", "name": parent.name}
    if parent.namespace is not None:
        found["namespace"] = parent.namespace
    if parent.section_name is not None:
        found["sectionName"] = parent.section_name
    return found


def _rule(
    snapshot: Snapshot, backends: list[dict[str, Any]], **match: list[dict[str, str]]
) -> dict[str, Any]:
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}, **match}],
        # 0 is written out: where it is absent, some have a default that cuts long answers.
        "timeouts": {"request": f"{snapshot.spec.gateway.timeouts.request_seconds}s"},
        "backendRefs": backends,
    }


def _backend(snapshot: Snapshot, revision: str, weight: int) -> dict[str, Any]:
    name = names.revision(snapshot.name, revision)
    if snapshot.spec.gateway.endpoint_picker_ref is not None:
        # Without a port: a pool has its own.
        return {"group": POOLS, "kind": POOL_KIND, "name": name, "weight": weight}
    return {
        "group": "",
        "kind": "Service",
        "name": name,
        "port": labels.ENGINE_PORT,
        "weight": weight,
    }


def inference_pool(
    hash_: str, picker: EndpointPickerRef, *, name: str, metadata: dict[str, Any]
) -> dict[str, Any]:
    """The pods of one revision, of which its picker chooses."""
    own_labels = names.worker_labels(name, hash_)
    return {
        "apiVersion": f"{POOLS}/v1",
        "kind": POOL_KIND,
        "metadata": {**metadata, "name": names.revision(name, hash_), "labels": own_labels},
        "spec": {
            "selector": {"matchLabels": names.selector(own_labels)},
            "targetPorts": [{"number": labels.ENGINE_PORT}],
            "endpointPickerRef": {
                "group": "",
                "kind": "Service",
                "name": picker.of(hash_),
                "port": {"number": picker.port},
                "failureMode": picker.failure_mode.value,
            },
        },
    }
