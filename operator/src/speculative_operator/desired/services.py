"""The headless Service of one live revision: its EndpointSlices feed the gateways."""

from typing import Any

from speculative_api import labels
from speculative_operator.desired import names


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
