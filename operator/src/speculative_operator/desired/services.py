"""Services: the one that users ask, and a headless one for each live revision.

The EndpointSlices of the headless ones feed the gateways.
"""

from typing import Any, Final

from speculative_api import labels
from speculative_api.v1alpha1 import Gateway, GatewayMode
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
    own_labels = names.component_labels(snapshot.name, labels.COMPONENT_GATEWAY)
    shown = {**metadata, "name": names.gateway(snapshot.name), "labels": own_labels}
    if snapshot.spec.gateway.mode is GatewayMode.NONE:
        stable = decision.status.stable
        selected = names.worker_labels(snapshot.name, stable.hash if stable else "")
        return service_of(snapshot.spec.gateway, shown, selected, port=labels.ENGINE_PORT)
    return service_of(snapshot.spec.gateway, shown, own_labels)


def service_of(
    gateway: Gateway,
    shown: dict[str, Any],
    selected: dict[str, str],
    *,
    port: int = labels.GATEWAY_PORT,
) -> dict[str, Any]:
    """The Service that `gateway` asks for.

    Args:
        shown: its metadata.
        selected: labels of the pods that it leads to.
    """
    wanted = gateway.service
    reached = _HTTPS if gateway.tls else _HTTP
    spec: dict[str, Any] = {
        "type": wanted.type,
        "selector": names.selector(selected),
        "ports": [{**reached, "targetPort": port}],
    }
    if wanted.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(wanted.load_balancer_source_ranges)
    if wanted.annotations:
        shown = {**shown, "annotations": dict(wanted.annotations)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": shown, "spec": spec}


def revision_service(
    hash_: str, *, name: str, metadata: dict[str, Any], shared_gateway: str = ""
) -> dict[str, Any]:
    """A headless Service that lists the ready pods of one revision.

    EndpointSlices inherit its labels, so a gateway finds them by the
    resource's name, or a shared one by its own.
    """
    own_labels = names.worker_labels(name, hash_)
    shown = {**own_labels, labels.SHARED_GATEWAY: shared_gateway} if shared_gateway else own_labels
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "name": names.revision(name, hash_), "labels": shown},
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
