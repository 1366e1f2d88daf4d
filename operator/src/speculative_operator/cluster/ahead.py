"""What belongs to one resource, read before everybody else's.

After a restart a thousand unchanged resources are listed for seconds. One that was edited
meanwhile needs its own children only, which a question by its name answers at once.
"""

import asyncio
from collections.abc import Mapping

from speculative_api import labels
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.companions import gateway_key
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import JSON, SPECULATIVE_DEPLOYMENT, Key
from speculative_operator.errors import NotFound, Refused


def stands_alone(parent: JSON) -> bool:
    """Whether its pass asks for nothing of other resources: no shared gateway, and no clean-up
    of a cache, which keeps what others use."""
    namespace = parent["metadata"].get("namespace", "")
    rollout = (parent.get("spec") or {}).get("rollout") or {}
    return gateway_key(namespace, parent) is None and not rollout.get("cleanUp")


async def read_children(client: Client, stores: Mapping[str, Store], key: Key) -> None:
    """Puts the children and pods of a resource into the stores; newer ones there stay.

    Raises:
        OperatorError: one kind could not be read; what came of the others is kept.
    """
    async with asyncio.TaskGroup() as group:
        for store in stores.values():
            if store.resource is not SPECULATIVE_DEPLOYMENT:
                group.create_task(_read(client, store, key))


async def _read(client: Client, store: Store, key: Key) -> None:
    resource, (namespace, name) = store.resource, key
    selector = f"{labels.MANAGED_BY}={labels.MANAGER},{labels.NAME}={name}"
    try:
        things, _ = await client.list_all(resource, namespace, selector=selector)
    except (NotFound, Refused):
        if not resource.optional:
            raise
        store.missing = True
        return
    for thing in things:
        # Items of a list come without these two.
        store.put(thing | {"apiVersion": resource.api_version, "kind": resource.kind})
