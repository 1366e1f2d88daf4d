"""The value of one metric of one resource, measured when somebody asks.

Nothing is measured while nobody asks. Called by `server`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from speculative_api.v1alpha1 import ScalingMetric, ScalingMetricName
from speculative_operator.cluster.resources import SPECULATIVE_DEPLOYMENT, Key
from speculative_operator.desired.autoscaling import METRIC_NAMES
from speculative_operator.gather import Stores, gather, targets_of
from speculative_operator.metrics.source import Source
from speculative_operator.rollout.trial import had_copies_only
from speculative_operator.rollout.unaided import unaided_share
from speculative_operator.scaling.signals import (
    Sample,
    Unmeasured,
    Value,
    guarded,
    kept,
    sample_of,
    value,
)
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot, WorkerPod
from speculative_operator.specs import Unreadable

NAMES: Final = {name: metric for metric, name in METRIC_NAMES.items()}
"""By the name in the API."""
MOST_RESOURCES: Final = 10_000
"""Of so many resources samples are kept; beyond that they begin anew."""


class Gpus(Protocol):
    """How busy GPUs are; Prometheus in production."""

    async def utilization_percent(self, namespace: str, pods: tuple[str, ...]) -> Value:
        """Mean over the GPUs of these pods."""


@dataclass(slots=True)
class _Memory:
    samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict)
    loading_since: float | None = None


class Values:
    """Answers for all resources; keeps samples for rates, all of which may be lost."""

    def __init__(
        self,
        stores: Stores,
        source: Source,
        settings: Settings,
        gpus: Gpus,
        *,
        clock: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stores = stores
        self._source = source
        self._settings = settings
        self._gpus = gpus
        self._clock = clock
        self._utc_now = utc_now
        self._memories: dict[Key, _Memory] = {}

    async def of(self, key: Key, name: str) -> Value:
        """The present value of a metric that the resource's spec asks for."""
        metric_name = NAMES.get(name)
        if metric_name is None:
            return Unmeasured(f"{name} is not a metric of ours")
        await self._source.ask(t for t in targets_of(self._stores, key) if t.role == "worker")
        snapshot = self._snapshot(key)
        if snapshot is None:
            return Unmeasured("there is no such resource, or its spec can't be read")
        metric = _asked_for(snapshot, metric_name)
        if metric is None:
            return Unmeasured(f"spec.autoscaling does not ask for {metric_name}")
        memory = self._memory(key)
        pods = serving_pods(snapshot)
        found = await self._measured(metric_name, snapshot, pods, memory)
        if isinstance(found, Unmeasured):
            return found
        loading = self._is_loading(snapshot, memory)
        return guarded(found, metric, asked=snapshot.spec.replicas, loading=loading)

    async def _measured(
        self,
        name: ScalingMetricName,
        snapshot: Snapshot,
        pods: tuple[WorkerPod, ...],
        memory: _Memory,
    ) -> Value:
        if name == ScalingMetricName.GPU_UTILIZATION:
            ready = tuple(sorted(pod.name for pod in pods if pod.ready))
            if not ready:
                return Unmeasured("no pod is ready")
            return await self._gpus.utilization_percent(snapshot.namespace, ready)
        memory.samples = _with_new(memory.samples, pods)
        return value(name, pods, memory.samples)

    def _is_loading(self, snapshot: Snapshot, memory: _Memory) -> bool:
        """Whether pods that were asked for are not ready yet, and may still become so."""
        stable = snapshot.status.stable
        ready = snapshot.ready_pods(stable.hash) if stable else 0
        if ready >= snapshot.spec.replicas:
            memory.loading_since = None
            return False
        now = self._clock()
        if memory.loading_since is None:
            memory.loading_since = now
        # A pod that can't start must not hold the others at their number for ever.
        return now - memory.loading_since <= snapshot.spec.engine.startup_deadline_seconds

    def _snapshot(self, key: Key) -> Snapshot | None:
        parent = self._stores[SPECULATIVE_DEPLOYMENT.kind].of(key).get(key[1])
        if parent is None:
            self._memories.pop(key, None)
            return None
        found = gather(
            key,
            parent,
            stores=self._stores,
            source=self._source,
            settings=self._settings,
            now=self._utc_now(),
        )
        return None if isinstance(found, Unreadable) else found

    def _memory(self, key: Key) -> _Memory:
        if len(self._memories) >= MOST_RESOURCES:
            self._memories.clear()
        return self._memories.setdefault(key, _Memory())


def serving_pods(snapshot: Snapshot) -> tuple[WorkerPod, ...]:
    """Pods of the accelerated lane that may have requests: stable's, a canary's, a guard's.

    Copies are nobody's load: what answers them is asked for by the rollout alone.
    """
    status = snapshot.status
    canary = None if status.canary and had_copies_only(status.canary) else status.canary
    parts = [part.hash for part in (status.stable, canary, status.guard) if part]
    unaided = unaided_share(snapshot)
    if unaided is not None:
        # Idle pods would halve a mean, and the autoscaler would take busy ones away.
        parts = [unaided.hash] if unaided.weight == 100 else [*parts, unaided.hash]
    return tuple(pod for part in parts for pod in snapshot.pods_of(part))


def _asked_for(snapshot: Snapshot, name: ScalingMetricName) -> ScalingMetric | None:
    autoscaling = snapshot.spec.autoscaling
    metrics = autoscaling.metrics if autoscaling else ()
    return next((metric for metric in metrics if metric.name == name), None)


def _with_new(
    samples: Mapping[str, tuple[Sample, ...]], pods: tuple[WorkerPod, ...]
) -> dict[str, tuple[Sample, ...]]:
    found: dict[str, tuple[Sample, ...]] = {}
    for pod in pods:
        new = sample_of(pod.digest) if pod.digest is not None else None
        before = samples.get(pod.uid, ())
        if new is not None:
            found[pod.uid] = kept(before, new)
        elif before:
            found[pod.uid] = before
    return found
