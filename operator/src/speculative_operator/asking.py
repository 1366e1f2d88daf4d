"""When the pods of a resource are asked how they are, and when nobody waits for the answers.

In: the caches. Out: questions to a `Source`, which keeps the answers. All of the
memory here may be lost. Called by `reconcile` at the beginning of a pass.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from speculative_api.v1alpha1 import AnalysisSource
from speculative_operator.cluster.companions import gateway_key
from speculative_operator.cluster.resources import (
    CONFIG_MAP,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    Key,
    uid_of,
)
from speculative_operator.gather import Stores, targets_of
from speculative_operator.metrics.pages import FromPrometheus, Pages
from speculative_operator.metrics.source import Source
from speculative_operator.readings import Readings
from speculative_operator.rollout.asking import is_abort_waiting
from speculative_operator.specs import Specs, Unreadable

QUIET_SCRAPE_SECONDS: Final = 15.0
"""Time between two questions to the pods of a resource where nothing is going on."""


@dataclass(slots=True)
class _Memory:
    """Of one resource."""

    asked_at: float = float("-inf")
    """Loop time."""
    asking: asyncio.Task[None] | None = None
    """The questions that its pass waits for."""


class Asking:
    """Of all resources; one pass at a time asks for a key."""

    def __init__(
        self,
        stores: Stores,
        source: Source,
        pages: Pages | None,
        specs: Specs,
        readings: Readings,
    ) -> None:
        self._stores, self._source, self._pages = stores, source, pages
        self._parents = stores[SPECULATIVE_DEPLOYMENT.kind]
        self._specs, self._readings = specs, readings
        self._memories: dict[Key, _Memory] = {}

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._memories.pop(key, None)

    def source_of(self, key: Key, parent: JSON) -> Source:
        """Whom the spec wants to be asked about engines."""
        found = self._specs.read(key, parent.get("spec", {}))
        if self._pages is None or isinstance(found, Unreadable):
            return self._source
        analysis = found.spec.rollout.analysis
        if analysis.source is not AnalysisSource.PROMETHEUS:
            return self._source
        return FromPrometheus(self._source, self._pages, key, analysis)

    async def ask(self, key: Key, parent: JSON, source: Source) -> None:
        """Asks the pods, in every pass while something moves, else each 15 s.

        Returns without their answers where an abort waits, or comes: none changes what is to be
        done, and a pod that hangs would delay it.
        """
        if self._is_abort_waiting(key):
            return
        memory, now = self._memories.setdefault(key, _Memory()), asyncio.get_running_loop().time()
        targets = list(targets_of(self._stores, key))
        gateways = [source.state(t.uid) for t in targets if t.role == "gateway"]
        route = self._readings.route(
            key,
            self._stores[CONFIG_MAP.kind],
            uid_of(parent),
            shared=gateway_key(key[0], parent) is not None,
        )
        status = self._readings.status(key, parent)
        lags = any(s is None or route is None or s.sequence != route.sequence for s in gateways)
        starting = status.stable is None or status.stable.available_at is None
        moves = bool(status.canary or status.guard or status.retiring or starting or lags)
        moves = moves or status.idle is not None
        moves = moves or (status.preflight is not None and status.preflight.outcome is None)
        if not moves and now - memory.asked_at < QUIET_SCRAPE_SECONDS:
            return
        memory.asked_at = now
        memory.asking = asyncio.ensure_future(source.ask(targets))
        try:
            await memory.asking
        except asyncio.CancelledError:
            if _is_ending() or not self._is_abort_waiting(key):
                raise
        finally:
            memory.asking = None

    def hear(self, key: Key) -> None:
        """A person changed something of it."""
        memory = self._memories.get(key)
        if memory is not None and memory.asking is not None and self._is_abort_waiting(key):
            memory.asking.cancel()

    def _is_abort_waiting(self, key: Key) -> bool:
        parent = self._parents.of(key).get(key[1])
        if parent is None:
            return False
        annotations = parent["metadata"].get("annotations") or {}
        return is_abort_waiting(self._readings.status(key, parent), annotations)


def _is_ending() -> bool:
    """Whether it is the pass itself that was told to stop."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
