"""Collects, keeps and shows what is known of stable beside its own first hours.

`reconcile` asks between trials; what is decided from it is `rollout.drifting`'s.
All of the memory here may be lost: it is read again from the cluster.
"""

import logging
from dataclasses import dataclass

from speculative_operator.analysis import drift
from speculative_operator.cluster import drift as store
from speculative_operator.cluster.apply import Applier, words_of
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import Key
from speculative_operator.decision import Assessment
from speculative_operator.errors import Refused
from speculative_operator.rollout.decide import IDLE_SECONDS
from speculative_operator.rollout.drifting import drift_of, question
from speculative_operator.snapshot import Snapshot
from speculative_operator.telemetry import Telemetry

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Memory:
    evidence: drift.DriftEvidence | None = None
    written: tuple[str, int] = ("", 0)


class Drifts:
    """Of all resources."""

    def __init__(self, config_maps: Store, applier: Applier, telemetry: Telemetry | None) -> None:
        self._config_maps, self._applier, self._telemetry = config_maps, applier, telemetry
        self._memories: dict[Key, _Memory] = {}

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._memories.pop(key, None)
        if self._telemetry is not None:
            self._telemetry.forget_drift(key)

    def judge(self, snapshot: Snapshot) -> Assessment | None:
        """One more look; None where nothing is asked at this moment."""
        key, asked = (snapshot.namespace, snapshot.name), question(snapshot)
        found = None
        if asked is None:
            self._memories.pop(key, None)
        else:
            memory = self._memories.setdefault(key, _Memory())
            period = min(IDLE_SECONDS, asked.block_seconds)
            memory.evidence = store.look(
                memory.evidence, asked, snapshot, self._config_maps, period_seconds=period
            )
            found = Assessment(drift=drift.assess(memory.evidence))
        self._show(snapshot, found)
        return found

    def _show(self, snapshot: Snapshot, assessment: Assessment | None) -> None:
        if self._telemetry is None:
            return
        key, known = (snapshot.namespace, snapshot.name), drift_of(snapshot)
        if known is None or known.baseline is None:
            self._telemetry.forget_drift(key)
            return
        found = assessment.drift if assessment is not None else None
        self._telemetry.drift(
            key,
            is_drifted=known.state not in ("Measuring", "Steady"),
            percent=found.percent if found is not None else None,
        )

    async def save(self, snapshot: Snapshot) -> None:
        """Writes what would be a pity to lose, now and then."""
        key = (snapshot.namespace, snapshot.name)
        memory = self._memories.get(key)
        if memory is None or memory.evidence is None:
            return
        if not store.is_due(memory.evidence, memory.written):
            return
        memory.written = (memory.evidence.question.identity, memory.evidence.blocks)
        body = store.config_map(snapshot, memory.evidence)
        try:
            await self._applier.ensure(body, key=key, owner_uid=snapshot.uid)
        except Refused as error:
            # Kept in memory alone: a restart of the operator then costs what was seen so far.
            log.warning("event=drift-not-kept object=%s/%s why=%r", *key, words_of(error))
