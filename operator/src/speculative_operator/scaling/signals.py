"""What an autoscaler is told about the load of one resource.

Comes in: the ready pods with their last digests, earlier samples of each, and
the spec. Goes out: a value, or why there is none. A pod that does not answer
makes the whole value absent: a sum without it would look like less load and
shrink what is already in trouble.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from speculative_api.v1alpha1 import ScalingMetric, ScalingMetricName
from speculative_api.worker import Digest
from speculative_operator.snapshot import WorkerPod

SHORTEST_WINDOW_SECONDS: Final = 5.0
"""Rates over less time than this are noise."""
LONGEST_WINDOW_SECONDS: Final = 90.0
"""Rates over more than this are history."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of one pod at one moment (Unix seconds)."""

    at: float
    engine_started_at: float
    generated: int
    accepted: int | None


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """There is no value; says why, for whoever reads the autoscaler's events."""

    why: str


Value = float | Unmeasured
Samples = Mapping[str, Sequence[Sample]]
"""By pod UID, oldest first."""


def sample_of(digest: Digest) -> Sample | None:
    """What is kept of a digest for rates; None where the engine counts no tokens."""
    if digest.generated_tokens is None:
        return None
    return Sample(
        digest.sampled_at,
        digest.engine_started_at,
        digest.generated_tokens,
        digest.accepted_tokens,
    )


def kept(samples: Sequence[Sample], new: Sample) -> tuple[Sample, ...]:
    """The samples with one more, without what is too old or of a former engine."""
    same = [
        s
        for s in samples
        if s.engine_started_at == new.engine_started_at
        and new.at - LONGEST_WINDOW_SECONDS <= s.at < new.at
        and s.generated <= new.generated
    ]
    return (*same, new)


def value(name: ScalingMetricName, pods: Sequence[WorkerPod], samples: Samples) -> Value:
    """One metric over the serving pods; percentages for shares, plain sums otherwise."""
    ready = [pod for pod in pods if pod.ready and not pod.terminating]
    if not ready:
        return Unmeasured("no pod is ready")
    digests = {pod.name: pod.digest for pod in ready if pod.digest is not None}
    silent = sorted(pod.name for pod in ready if pod.name not in digests)
    if silent:
        return Unmeasured(f"{len(silent)} of {len(ready)} ready pods do not answer: {silent[0]}")
    if name == ScalingMetricName.TOKENS_PER_SECOND:
        return _steps_per_second(ready, samples)
    figures = {pod: _figure(name, digest) for pod, digest in digests.items()}
    lacking = sorted(pod for pod, figure in figures.items() if figure is None)
    if lacking:
        return Unmeasured(f"the engine of {lacking[0]} does not report it")
    total = sum(figure for figure in figures.values() if figure is not None)
    return total / len(ready) if name == ScalingMetricName.KV_CACHE_USAGE else total


def _figure(name: ScalingMetricName, digest: Digest) -> float | None:
    if name == ScalingMetricName.REQUESTS_WAITING:
        return digest.waiting
    if name == ScalingMetricName.REQUESTS_RUNNING:
        return digest.running
    usage = digest.kv_cache_usage
    return None if usage is None else 100.0 * usage


def _steps_per_second(ready: Sequence[WorkerPod], samples: Samples) -> Value:
    """Output tokens per second over the measured acceptance length.

    That length is generated / (generated - accepted), pooled over the pods, and 1
    where the engine does not count what was accepted. A pod seen for the first
    time adds nothing yet.
    """
    generated = accepted = 0.0
    measured = False
    for pod in ready:
        seen = samples.get(pod.uid, ())
        if len(seen) < 2 or seen[-1].at - seen[0].at < SHORTEST_WINDOW_SECONDS:
            continue
        first, last = seen[0], seen[-1]
        seconds, measured = last.at - first.at, True
        generated += (last.generated - first.generated) / seconds
        if first.accepted is not None and last.accepted is not None:
            accepted += max(0, last.accepted - first.accepted) / seconds
    if not measured:
        return Unmeasured("a rate needs two looks")
    return generated / acceptance_length(generated, accepted)


def acceptance_length(generated: float, accepted: float) -> float:
    """Tokens per decoding step; 1 where nothing was generated or the counters contradict."""
    return generated / (generated - accepted) if 0 <= accepted < generated else 1.0


def guarded(found: float, metric: ScalingMetric, *, asked: int, loading: bool) -> float:
    """The value, without asking for more pods than are asked for while some of those load.

    What was decided a moment ago is on its way; meanwhile the queue grows, and
    each look at it would ask for more (kubernetes#59975). Asking for fewer goes on.
    """
    if not loading:
        return found
    if metric.target_per_pod is not None:
        return min(found, float(metric.target_per_pod * max(1, asked)))
    return min(found, float(metric.target_percent or 0))
