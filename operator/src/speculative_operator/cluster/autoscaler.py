"""The live HorizontalPodAutoscaler of a resource becomes a view of it; reads the store only."""

from collections.abc import Mapping

from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import AUTOSCALER, JSON, Key, controller_uid
from speculative_operator.snapshot import AutoscalerView


def autoscaler_of(stores: Mapping[str, Store], key: Key, uid: str) -> AutoscalerView | None:
    """What it says about itself; None when there is none of ours."""
    thing = stores[AUTOSCALER.kind].of(key).get(key[1])
    if thing is None or controller_uid(thing) != uid:
        return None
    conditions = {str(c.get("type")): c for c in thing.get("status", {}).get("conditions") or []}
    able, active = conditions.get("AbleToScale"), conditions.get("ScalingActive")
    for condition in (able, active):
        if condition is not None and condition.get("status") == "False":
            return AutoscalerView(is_active=False, message=_words(condition))
    if active is None or active.get("status") != "True":
        return AutoscalerView(is_active=None, message=_words(active) if active else "")
    return AutoscalerView(is_active=True, message=_words(active))


def _words(condition: JSON) -> str:
    return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:1024]
