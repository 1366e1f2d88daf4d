"""Writes status and events of one SpeculativeDeployment.

A transition is written with the version it was decided from, before its
effects. Observations follow the rules of `is_due`, so that a quiet world sees no write.
"""

import logging
from datetime import datetime
from typing import Final

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import Condition, SpeculativeDeploymentStatus
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import EVENT, JSON, SPECULATIVE_DEPLOYMENT
from speculative_operator.decision import Event
from speculative_operator.errors import ApiError

log = logging.getLogger(__name__)

FIGURES_SECONDS: Final = 60.0
"""Live figures and sentences are written at most this often."""
MOVED: Final = 0.02
"""Share by which a live figure must have moved to be worth a write."""
TOLD_BY_OTHERS: Final = frozenset({Reason.ROUTE_NOT_ACCEPTED, Reason.POOL_NOT_ACCEPTED})
"""Reasons whose sentence is somebody else's and has no figures: each new one is news to whoever
just mended what the last one said."""
LONGEST_MESSAGE: Final = 1024
"""Bytes of an event's message that the API server takes."""


def is_due(
    live: SpeculativeDeploymentStatus,
    wanted: SpeculativeDeploymentStatus,
    *,
    seconds_since_write: float,
) -> bool:
    """Whether `wanted` is to be written over `live` now.

    Counts, weights, states of conditions and what a Gateway's controller says: at
    once. Acceptance lengths and other sentences: at most once a minute, the former
    only when moved by 2 %.
    """
    if live == wanted:
        return False
    if _facts(live) != _facts(wanted):
        return True
    if seconds_since_write < FIGURES_SECONDS:
        return False
    return _sentences(live) != _sentences(wanted) or _moved(live, wanted)


def _facts(status: SpeculativeDeploymentStatus) -> SpeculativeDeploymentStatus:
    quiet = {"acceptance_length": None}
    return status.model_copy(
        update={
            "message": "",
            "conditions": [
                c if c.reason in TOLD_BY_OTHERS else c.model_copy(update={"message": ""})
                for c in status.conditions
            ],
            "stable": status.stable.model_copy(update=quiet) if status.stable else None,
            "canary": status.canary.model_copy(update=quiet) if status.canary else None,
        }
    )


def _sentences(status: SpeculativeDeploymentStatus) -> list[str]:
    return [status.message, *(condition.message for condition in status.conditions)]


def _moved(live: SpeculativeDeploymentStatus, wanted: SpeculativeDeploymentStatus) -> bool:
    for before, after in ((live.stable, wanted.stable), (live.canary, wanted.canary)):
        old = before.acceptance_length if before else None
        new = after.acceptance_length if after else None
        if old is None or new is None:
            # A pod that is silent for a moment does not take the figure away.
            if new is not None:
                return True
        elif abs(float(new) - float(old)) > MOVED * float(old):
            return True
    return False


async def write_status(
    client: Client, store: Store, parent: JSON, status: SpeculativeDeploymentStatus
) -> JSON:
    """Writes status over exactly this version of the resource, else Conflict; gives the new one."""
    body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    written = await client.set_status(SPECULATIVE_DEPLOYMENT, parent, body)
    store.put(written)
    return written


def with_condition(
    status: SpeculativeDeploymentStatus, condition: Condition
) -> SpeculativeDeploymentStatus:
    """The status with one condition replaced; its time moves only with its state."""
    before = next((c for c in status.conditions if c.type == condition.type), None)
    if before is not None and before.status == condition.status:
        time = before.last_transition_time
        condition = condition.model_copy(update={"last_transition_time": time})
    if before is None:
        return status.model_copy(update={"conditions": [condition, *status.conditions]})
    conditions = [condition if c is before else c for c in status.conditions]
    return status.model_copy(update={"conditions": conditions})


async def emit(client: Client, parent: JSON, event: Event, *, now: datetime) -> None:
    """Creates a Kubernetes event about the resource.

    An event is a courtesy: when it can't be written, the log says so and the pass goes on.
    """
    metadata = parent["metadata"]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
    body = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['name']}.{int(now.timestamp() * 1e6):x}.{event.reason.lower()}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
            "kind": SPECULATIVE_DEPLOYMENT.kind,
            **about,
        },
        "reason": event.reason,
        "message": event.message.encode()[:LONGEST_MESSAGE].decode(errors="ignore"),
        "type": event.type,
        "count": 1,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "source": {"component": "speculative-operator"},
    }
    try:
        await client.emit(body)
    except ApiError as error:
        log.warning(
            "event=event-not-written object=%s/%s reason=%s why=%r",
            metadata["namespace"],
            metadata["name"],
            event.reason,
            str(error),
        )
