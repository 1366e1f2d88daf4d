"""The HTTPRoute and InferencePools that the API server has become plain views.

Called by `gather`. Their status is written by whoever runs the Gateway: hostile until
looked at. What it says of a Gateway that the spec does not name (any more) is left out:
who no longer has a route often leaves his words in it, and nobody else may take them away.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from speculative_api.v1alpha1 import ParentRef
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    HTTP_ROUTE,
    INFERENCE_POOL,
    JSON,
    Key,
    controller_uid,
)
from speculative_operator.desired import names
from speculative_operator.snapshot import HttpRoute, Pool, RouteParent


def http_route_of(
    stores: Mapping[str, Store], key: Key, uid: str, at: ParentRef | None
) -> HttpRoute | None:
    """The resource's HTTPRoute, if there is one and it is ours."""
    store = stores.get(HTTP_ROUTE.kind)
    thing = store.of(key).get(names.gateway(key[1])) if store is not None else None
    if thing is None or controller_uid(thing) != uid:
        return None
    rules = thing.get("spec", {}).get("rules") or [{}]
    prefix = names.revision(key[1], "")
    return HttpRoute(
        generation=int(thing["metadata"].get("generation", 0)),
        # The last rule is the accelerated lane's (see `desired.http_route`).
        weights={
            str(backend.get("name", "")).removeprefix(prefix): int(backend.get("weight", 1))
            for backend in rules[-1].get("backendRefs") or ()
        },
        parents=tuple(_parents(thing, key, at, listener=at.section_name if at else None)),
    )


def pools_of(
    stores: Mapping[str, Store], key: Key, uid: str, at: ParentRef | None
) -> dict[str, Pool]:
    """The resource's own InferencePools, by revision."""
    store = stores.get(INFERENCE_POOL.kind)
    prefix = names.revision(key[1], "")
    return {
        name.removeprefix(prefix): Pool(
            generation=int(thing["metadata"].get("generation", 0)),
            parents=tuple(_parents(thing, key, at)),
        )
        for name, thing in (store.of(key).items() if store is not None else ())
        if controller_uid(thing) == uid
    }


def _parents(
    thing: JSON, key: Key, at: ParentRef | None, *, listener: str | None = None
) -> Iterator[RouteParent]:
    """What is said about it at one Gateway; a pool's parents have no listener."""
    for parent in thing.get("status", {}).get("parents") or ():
        ref = parent.get("parentRef") or {}
        place = (ref.get("namespace") or key[0], ref.get("name"))
        if (
            at is None
            or ref.get("kind", "Gateway") != "Gateway"
            or place != (at.namespace or key[0], at.name)
            or (listener is not None and ref.get("sectionName") != listener)
        ):
            continue
        yield _said_of(parent)


def _said_of(parent: JSON) -> RouteParent:
    conditions: dict[str, Any] = {
        str(condition.get("type")): condition for condition in parent.get("conditions") or ()
    }
    needed = [conditions.get(kind, {}) for kind in ("Accepted", "ResolvedRefs")]
    wrong = [c for c in needed if c.get("status") != "True"]
    # With it a route may be accepted of which a rule was dropped.
    partly = conditions.get("PartiallyInvalid", {})
    if partly.get("status") == "True":
        wrong.append(partly)
    said = "; ".join(f"{c.get('reason', '')}: {c.get('message', '')}" for c in wrong if c)
    return RouteParent(
        controller=str(parent.get("controllerName", ""))[:253],
        accepted=not wrong,
        observed_generation=min(int(c.get("observedGeneration", 0)) for c in needed),
        message=said[:1024],
    )
