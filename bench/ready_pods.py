"""A pod that runs, made by nobody but us: what a scheduler and a kubelet would do, at once."""

from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import JSON, POD


async def a_ready_pod(
    client: Client, namespace: str, name: str, address: str, labels: JSON
) -> JSON:
    """Creates it, ready at this address; gives what the server has."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "containers": [{"name": "main", "image": "image"}],
            "automountServiceAccountToken": False,
        },
    }
    await client.create(POD, body)
    status = {
        "phase": "Running",
        "podIP": address,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    _, found = await client.request(
        "edit",
        POD,
        "PATCH",
        POD.path(namespace, name, "status"),
        body={"status": status},
        content_type=MERGE_PATCH,
    )
    return found
