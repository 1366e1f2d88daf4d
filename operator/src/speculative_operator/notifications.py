"""What receivers are told: which events count, what waits in status, and the bodies. Pure.

A notification is part of the status write of its transition, so that a crash
loses none; it leaves status once it was delivered or given up. Called by
`reconcile` and `notify`.
"""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final, assert_never

from speculative_api.conditions import Reason
from speculative_api.labels import GROUP, PLURAL, VERSION
from speculative_api.v1alpha1 import (
    NotificationEvent,
    NotificationFormat,
    PendingNotification,
    SpeculativeDeploymentStatus,
)
from speculative_operator.decision import Decision, Event
from speculative_operator.rollout.times import stamp
from speculative_operator.snapshot import Snapshot

LONGEST_QUEUE: Final = 16
"""Notifications of one resource that wait in status at most."""

_KINDS: Final = {
    Reason.CANARY_STARTING: NotificationEvent.STARTED,
    Reason.PROMOTED: NotificationEvent.PROMOTED,
    Reason.ROLLED_BACK: NotificationEvent.ROLLED_BACK,
    Reason.ABORTED: NotificationEvent.ROLLED_BACK,
    Reason.ACCEPTANCE_DRIFTED: NotificationEvent.DRIFTED,
    Reason.PODS_RECYCLED: NotificationEvent.DRIFTED,
    Reason.SPECULATION_DISABLED: NotificationEvent.DRIFTED,
    Reason.RECYCLING_IN_VAIN: NotificationEvent.DRIFTED,
    Reason.ACCEPTANCE_STEADY: NotificationEvent.DRIFTED,
}
_HELD: Final = (Reason.CANARY_PAUSED, Reason.PAUSED_ON_REQUEST, Reason.ANALYSIS_INCONCLUSIVE)


def kind_of(event: Event, after: SpeculativeDeploymentStatus) -> NotificationEvent | None:
    """What an event of a transition is to receivers; None if they are not told of it."""
    held = after.canary is not None and after.canary.held is not None
    if event.reason in _HELD and held:
        return NotificationEvent.PAUSED
    return next((kind for reason, kind in _KINDS.items() if reason == event.reason), None)


def with_pending(snapshot: Snapshot, decision: Decision, *, told: Collection[str]) -> Decision:
    """The decision with what waits to be told: new ones added, those in `told` taken away."""
    receivers = snapshot.spec.rollout.notifications
    before = snapshot.status.pending_notifications
    waiting = [item for item in before if item.id not in told] if receivers else []
    wanted = {kind for receiver in receivers for kind in receiver.events}
    for event in decision.events if decision.transition else ():
        kind = kind_of(event, decision.status)
        if kind is not None and kind in wanted:
            waiting.append(_pending(snapshot, decision, event, kind))
    waiting = waiting[-LONGEST_QUEUE:]
    if waiting == before:
        return decision
    changes = {"pending_notifications": waiting}
    return replace(decision, status=decision.status.model_copy(update=changes))


def _pending(
    snapshot: Snapshot, decision: Decision, event: Event, kind: NotificationEvent
) -> PendingNotification:
    canary, verdict = decision.status.canary, decision.status.verdict
    about = canary.hash if canary else verdict.hash if verdict else ""
    if kind is NotificationEvent.DRIFTED and decision.status.stable is not None:
        about = decision.status.stable.hash
    now = stamp(snapshot.now)
    return PendingNotification(
        id=f"{now}-{kind.value}",
        event=kind.value,
        hash=about,
        reason=str(event.reason)[:64],
        message=event.message[:1024],
        happened_at=now,
    )


def body_of(
    item: PendingNotification, form: NotificationFormat, *, namespace: str, name: str, uid: str
) -> tuple[str, bytes]:
    """Content type and body of one notification."""
    match form:
        case NotificationFormat.SLACK:
            text = f"{namespace}/{name}: {item.event}: {item.message}"
            return "application/json", _json({"text": _escaped(text)})
        case NotificationFormat.CLOUD_EVENTS:
            return "application/cloudevents+json; charset=utf-8", _json(
                _cloud_event(item, namespace=namespace, name=name, uid=uid)
            )
        case _:
            assert_never(form)


def _escaped(text: str) -> str:
    """The text without what Slack reads as markup: an engine's last words page nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cloud_event(
    item: PendingNotification, *, namespace: str, name: str, uid: str
) -> dict[str, Any]:
    """Source: CloudEvents 1.0.2, JSON event format, structured content mode."""
    data = {
        "namespace": namespace,
        "name": name,
        "event": item.event,
        "revision": item.hash or None,
        "reason": item.reason,
        "message": item.message,
    }
    return {
        "specversion": "1.0",
        "id": f"{uid}/{item.id}",
        "source": f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}",
        "type": f"dev.speculative.rollout.{item.event.lower()}",
        "time": item.happened_at,
        "datacontenttype": "application/json",
        "data": data,
    } | ({"subject": item.hash} if item.hash else {})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
