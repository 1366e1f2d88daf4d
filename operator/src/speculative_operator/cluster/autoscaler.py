"""The live autoscaler of a resource becomes a view of it; reads the stores only."""

from collections.abc import Mapping

from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    AUTOSCALER,
    JSON,
    SCALED_OBJECT,
    Key,
    controller_uid,
)
from speculative_operator.snapshot import AutoscalerView


def autoscaler_of(stores: Mapping[str, Store], key: Key, uid: str) -> AutoscalerView | None:
    """What it says about itself; None when there is none of ours."""
    thing = _ours(stores, AUTOSCALER.kind, key, uid)
    if thing is None:
        other = _ours(stores, SCALED_OBJECT.kind, key, uid)
        return _of_keda(other) if other is not None else None
    conditions = {str(c.get("type")): c for c in thing.get("status", {}).get("conditions") or []}
    able, active = conditions.get("AbleToScale"), conditions.get("ScalingActive")
    for condition in (able, active):
        if condition is not None and condition.get("status") == "False":
            return AutoscalerView(is_active=False, message=_words(condition))
    if active is None or active.get("status") != "True":
        return AutoscalerView(is_active=None, message=_words(active) if active else "")
    return AutoscalerView(is_active=True, message=_words(active))


def _of_keda(thing: JSON) -> AutoscalerView:
    """KEDA's words, and those of the autoscaler that it made."""
    conditions = {str(c.get("type")): c for c in thing.get("status", {}).get("conditions") or []}
    for kind in ("Ready", "HPAActive"):
        condition = conditions.get(kind)
        if condition is not None and condition.get("status") == "False":
            return AutoscalerView(is_active=False, message=_words(condition))
    paused = conditions.get("Paused")
    if paused is not None and paused.get("status") == "True":
        return AutoscalerView(is_active=False, message=_words(paused))
    ready = conditions.get("Ready")
    if ready is None or ready.get("status") != "True":
        return AutoscalerView(is_active=None, message=_words(ready) if ready else "")
    return AutoscalerView(is_active=True, message=_words(ready))


def _ours(stores: Mapping[str, Store], kind: str, key: Key, uid: str) -> JSON | None:
    store = stores.get(kind)
    thing = store.of(key).get(key[1]) if store is not None else None
    return thing if thing is not None and controller_uid(thing) == uid else None


def _words(condition: JSON) -> str:
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:1024]
