"""Feeds the evidence of trials with what each pass saw, and keeps it in the cluster.

`reconcile` asks in every pass; what is decided from it is `rollout`'s. All of the
memory here may be lost: the evidence is read again from the cluster.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from speculative_api.v1alpha1 import AnalysisSource
from speculative_operator.analysis.queried import Measurement
from speculative_operator.analysis.verdict import Evidence, Sample, Told, tell
from speculative_operator.cluster import evidence as store
from speculative_operator.cluster.apply import Applier, words_of
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import Key
from speculative_operator.decision import Assessment
from speculative_operator.desired import names
from speculative_operator.drifts import Drifts
from speculative_operator.errors import Refused
from speculative_operator.metrics.pages import Pages, unknown_pod
from speculative_operator.metrics.prometheus import Queries
from speculative_operator.rollout.gateways import highest_copied, highest_weight
from speculative_operator.rollout.trial import Trial, trial_of, trials_of
from speculative_operator.snapshot import Snapshot

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Memory:
    """Of one resource, of the UID that it had."""

    uid: str
    evidence: Evidence | None = None
    told: Told | None = None
    saved_at: float = float("-inf")
    """Loop time of the last write."""


class Judging:
    """Of all resources; between trials it is stable that is looked at (`drifts`)."""

    def __init__(
        self,
        config_maps: Store,
        applier: Applier,
        drifts: Drifts,
        *,
        queries: Queries | None,
        pages: Pages | None,
        write_seconds: float,
    ) -> None:
        self._config_maps, self._applier, self._drifts = config_maps, applier, drifts
        self._queries, self._pages = queries, pages
        self._write_seconds = write_seconds
        self._memories: dict[Key, _Memory] = {}

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._memories.pop(key, None)
        self._drifts.forget(key)

    def judge(self, snapshot: Snapshot) -> Assessment | None:
        """One more look; None where nobody is judged."""
        memory, trial = self._memory(snapshot), trial_of(snapshot.status)
        if trial is None:
            memory.evidence = memory.told = None
            return self._drifts.judge(snapshot)
        memory.evidence = store.look(
            memory.evidence,
            self._sample(snapshot, trial),
            trial=trial.identity,
            analysis=snapshot.spec.rollout.analysis,
            trials=trials_of(snapshot.spec.rollout),
            store=self._config_maps,
            key=(snapshot.namespace, snapshot.name),
        )
        memory.told = tell(memory.evidence, memory.told)
        return memory.told.assessment

    def _memory(self, snapshot: Snapshot) -> _Memory:
        key = (snapshot.namespace, snapshot.name)
        memory = self._memories.get(key)
        if memory is None or memory.uid != snapshot.uid:
            memory = self._memories[key] = _Memory(snapshot.uid)
        return memory

    def _sample(self, snapshot: Snapshot, trial: Trial) -> Sample:
        return Sample(
            at=snapshot.now.timestamp(),
            weight=(highest_copied if trial.shadow else highest_weight)(snapshot, trial.candidate),
            candidate=trial.candidate,
            control=trial.control,
            pods=snapshot.pods,
            gateways=snapshot.gateways,
            period_seconds=snapshot.spec.rollout.analysis.period_seconds,
            # Whose request is copied is decided by chance for each.
            sticky=not trial.shadow and snapshot.spec.gateway.session_affinity_header is not None,
            shadow=trial.shadow,
            measurements=self._measured(snapshot, trial),
            problem=self._problem(snapshot, trial),
        )

    def _problem(self, snapshot: Snapshot, trial: Trial) -> str:
        """Why figures of engines are missing, where one source has all of them."""
        analysis = snapshot.spec.rollout.analysis
        if self._pages is None or analysis.source is not AnalysisSource.PROMETHEUS:
            return ""
        place = (snapshot.namespace, snapshot.name)
        return self._pages.problem(place) or unknown_pod(snapshot, trial.candidate, trial.control)

    def _measured(self, snapshot: Snapshot, trial: Trial) -> Mapping[str, Measurement]:
        """The newest answers to the queries of this trial; what is due is asked meanwhile."""
        if self._queries is None:
            return {}
        words = {
            "canary": trial.candidate,
            "stable": trial.control,
            "name": snapshot.name,
            "namespace": snapshot.namespace,
        }
        place, analysis = (snapshot.namespace, snapshot.name), snapshot.spec.rollout.analysis
        return self._queries.ask(place, analysis, words, at=snapshot.now.timestamp())

    async def save(self, snapshot: Snapshot, *, at_once: bool) -> None:
        """Writes what would be a pity to lose, now and then, or at once."""
        await self._save_evidence(snapshot, at_once=at_once)
        if not at_once:
            await self._drifts.save(snapshot)

    async def _save_evidence(self, snapshot: Snapshot, *, at_once: bool) -> None:
        now, memory = asyncio.get_running_loop().time(), self._memory(snapshot)
        due = now - memory.saved_at >= self._write_seconds
        if memory.evidence is None or not (due or at_once):
            return
        key = (snapshot.namespace, snapshot.name)
        before = self._config_maps.of(key).get(names.evidence(snapshot.name))
        body = store.config_map(snapshot, memory.evidence, before)
        try:
            await self._applier.ensure(body, key=key, owner_uid=snapshot.uid)
        except Refused as error:
            # Kept in memory alone: a restart then begins anew, which costs time and no user.
            log.warning("event=evidence-not-kept object=%s/%s why=%r", *key, words_of(error))
        memory.saved_at = now
