"""Whether somebody is adding a node for a pod that waits for room: read when it matters. IO.

The Cluster Autoscaler and Karpenter say so in events about the pod. Events are
many and watched by nobody here: they are read for a few pods of one canary,
shortly before its deadline.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import EVENT
from speculative_operator.errors import ApiError
from speculative_operator.snapshot import NodeNews

log = logging.getLogger(__name__)

SAYING_SO: Final = {"TriggeredScaleUp": "cluster-autoscaler", "Nominated": "karpenter"}
"""Reasons of events, and who gives them."""
MOST_PODS: Final = 4
"""Of one canary: one node that comes is reason enough."""


async def node_news(client: Client, namespace: str, uids: Iterable[str]) -> NodeNews | None:
    """The newest word of a node on its way for one of these pods; None where nobody says so.

    Where events may not be read nobody does.
    """
    found: list[NodeNews] = []
    for uid in sorted(uids)[:MOST_PODS]:
        try:
            events, _ = await client.list_all(EVENT, namespace, field=f"involvedObject.uid={uid}")
        except ApiError as error:
            log.debug("event=no-node-news namespace=%s why=%r", namespace, str(error))
            return None
        found += [news for event in events if (news := _of(event)) is not None]
    return max(found, key=lambda news: news.at, default=None)


def _of(event: dict[str, Any]) -> NodeNews | None:
    reason = str(event.get("reason", ""))
    source = event.get("source") or {}
    who = str(source.get("component") or event.get("reportingComponent") or "")
    if SAYING_SO.get(reason) != who:
        return None
    series = event.get("series") or {}
    said_at = (
        series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    )
    try:
        at = datetime.fromisoformat(str(said_at)).timestamp()
    except ValueError:
        return None
    return NodeNews(at=at, words=f"{who}: {event.get('message', '')}"[:300])
