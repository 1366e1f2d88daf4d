"""Services: the one that users ask, and a headless one for each live revision.

The EndpointSlices of the headless ones feed the gateways.
"""

from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import GatewayMode
from speculative_operator.decision import Decision
from speculative_operator.desired import names
from speculative_operator.snapshot import Snapshot

_HTTP: Final = {"name": "http", "port": 80}
_HTTPS: Final = {"name": "https", "port": 443}


def users_service(
    snapshot: Snapshot, decision: Decision, *, metadata: dict[str, Any]
) -> dict[str, Any]:
    """The Service with the address that users know, the same in every mode.

    It leads to the gateway's pods; without a gateway to stable's, and before
    there is a stable to nobody.
    """
    wanted = snapshot.spec.gateway.service
    own_labels = names.component_labels(snapshot.name, labels.COMPONENT_GATEWAY)
    selected, port = own_labels, labels.GATEWAY_PORT
    if snapshot.spec.gateway.mode is GatewayMode.NONE:
        stable = decision.status.stable
        selected = names.worker_labels(snapshot.name, stable.hash if stable else "")
        port = labels.ENGINE_PORT
    reached = _HTTPS if snapshot.spec.gateway.tls else _HTTP
    spec: dict[str, Any] = {
        "type": wanted.type,
        "selector": names.selector(selected),
        "ports": [{**reached, "targetPort": port}],
    }
    if wanted.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(wanted.load_balancer_source_ranges)
    shown = {**metadata, "name": names.gateway(snapshot.name), "labels": own_labels}
    if wanted.annotations:
        shown["annotations"] = dict(wanted.annotations)
    return {"apiVersion": "v1", "kind": "Service", "metadata": shown, "spec": spec}


def revision_service(hash_: str, *, name: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """A headless Service that lists the ready pods of one revision.

    EndpointSlices inherit its labels, so a gateway finds them by the
    resource's name.
    """
    own_labels = names.worker_labels(name, hash_)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "name": names.revision(name, hash_), "labels": own_labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": names.selector(own_labels),
            "ports": [
                {"name": "http", "port": labels.ENGINE_PORT, "targetPort": labels.ENGINE_PORT},
                {"name": "worker", "port": labels.WORKER_PORT, "targetPort": labels.WORKER_PORT},
            ],
        },
    }
