"""Tells the ReplicaSet which pods to spare, right before a revision shrinks. IO."""

import contextlib
from collections.abc import Mapping

from speculative_api import labels
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import JSON, POD, Key, uid_of
from speculative_operator.errors import Conflict, NotFound
from speculative_operator.gather import targets_of
from speculative_operator.metrics.source import Source
from speculative_operator.scaling.removal import DELETION_COST, cost


async def announce_costs(
    client: Client,
    source: Source,
    stores: Mapping[str, Store],
    key: Key,
    revisions: frozenset[str],
) -> None:
    """Asks the pods of these revisions once more and writes what each of them is worth.

    Raises:
        ApiError: the API server did not take it; nothing shrinks then until the next pass.
    """
    pods = [p for p in stores[POD.kind].of(key).values() if _revision(p) in revisions]
    uids = {uid_of(pod) for pod in pods}
    await source.ask(t for t in targets_of(stores, key) if t.uid in uids)
    for pod in pods:
        wanted = str(cost(source.digest(uid_of(pod))))
        if (pod["metadata"].get("annotations") or {}).get(DELETION_COST) != wanted:
            await _write(client, stores[POD.kind], pod, wanted)


async def _write(client: Client, store: Store, pod: JSON, wanted: str) -> None:
    metadata = pod["metadata"]
    # With the UID: a successor of the same name is another pod.
    body = {"metadata": {"uid": uid_of(pod), "annotations": {DELETION_COST: wanted}}}
    path = POD.path(metadata["namespace"], metadata["name"])
    with contextlib.suppress(NotFound, Conflict):
        _, answer = await client.request(
            "patch", POD, "PATCH", path, body=body, content_type=MERGE_PATCH
        )
        store.put(answer)


def _revision(pod: JSON) -> str:
    return str((pod["metadata"].get("labels") or {}).get(labels.REVISION, ""))
