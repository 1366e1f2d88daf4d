"""Which fetched models the resources of a namespace name. Called by `gather`.

A claim belongs to a namespace, and so does every resource that may share it. Kept
revisions count, not only those that run: an undo is to find its models.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from speculative_api.model_sources import is_fetched
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import CONTROLLER_REVISION, SPECULATIVE_DEPLOYMENT


def fetched_models(stores: Mapping[str, Store], namespace: str) -> tuple[str, ...]:
    """Every source in any spec and any recorded revision, whatever shape these have."""
    found = set[str]()
    for kind in (SPECULATIVE_DEPLOYMENT.kind, CONTROLLER_REVISION.kind):
        here = [key for key in stores[kind].keys() if key[0] == namespace]  # noqa: SIM118 (a store)
        for thing in (each for key in here for each in stores[kind].of(key).values()):
            found.update(_sources(thing.get("spec")))
            found.update(_sources(thing.get("data")))
    return tuple(sorted(found))


def _sources(value: Any) -> Iterator[str]:
    """Anywhere: one that this version does not know the field of must not be lost."""
    if isinstance(value, str):
        if is_fetched(value):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _sources(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _sources(each)
