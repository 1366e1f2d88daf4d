"""Tokens per second and pod, at like load: how much a pod gets done.

In: tokens and running requests of the workers' digests. Out: e-values for
`verdict`. The speed of a pod grows with the requests that it has at a time, so
a block says something only where those are alike, or where the difference
speaks against what is seen (docs/analysis.md). Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from speculative_operator.analysis.bounds import Floors
from speculative_operator.analysis.contrast import spread_of
from speculative_operator.analysis.sequential import Contrast
from speculative_operator.analysis.windows import (
    ALONE,
    CANDIDATE,
    CONTROL,
    Block,
    Reading,
    Sample,
    Window,
    advance,
)
from speculative_operator.snapshot import WorkerPod

BLOCK_SECONDS: Final = 30.0
"""Shortest block: requests straddle shorter ones, and a slow moment hits a whole batch."""
WARM_UP_SECONDS: Final = 60.0
"""After a pod got ready: cold caches make an identical new pod slower."""
LIKE_LOAD: Final = 1.25
"""Running requests per pod of one arm over those of the other up to which speeds compare."""
LEAST_RUNNING: Final = 0.5
"""Running requests per pod below which a pod mostly waits for work, not the work for it."""
WIDTH: Final = 3


@dataclass(frozen=True, slots=True)
class Load:
    """Looks at the pods of one arm in the open block, and what they had to do."""

    looks: int = 0
    running: int = 0
    full: int = 0
    """Looks at which requests waited: the pod could not have done more."""

    @property
    def per_pod(self) -> float:
        """Mean running requests of a pod."""
        return self.running / self.looks if self.looks else 0.0

    def seen(self, pods: list[WorkerPod]) -> "Load":
        """With one more look at these pods."""
        digests = [pod.digest for pod in pods if pod.digest is not None]
        return Load(
            self.looks + len(digests),
            self.running + sum(digest.running or 0 for digest in digests),
            self.full + sum(bool(digest.waiting) for digest in digests),
        )


NO_LOAD: Final = Load()


class SpeedFigures(NamedTuple):
    """What words about the speed are made of."""

    relative: Floors
    absolute: Floors
    load: tuple[float, float]
    missing: str


@dataclass(frozen=True, slots=True)
class SpeedEvidence:
    """What is remembered of the speed; `absolute` counts blocks of full pods only."""

    relative: Floors
    absolute: Floors
    window: Window
    open_load: tuple[Load, Load] = (NO_LOAD, NO_LOAD)
    load: tuple[float, float] = (0.0, 0.0)
    """Running requests per pod in the last block, candidate and control."""
    missing: str = "no digest with running requests yet"

    @property
    def limits(self) -> tuple[object, object]:
        """What makes it another test when it changes."""
        return self.relative.limits, self.absolute.limits

    @property
    def worse(self) -> float:
        """The larger e-value of the bounds."""
        return max(self.relative.worse, self.absolute.worse)

    @property
    def not_worse(self) -> float:
        """The smaller one."""
        return min(self.relative.not_worse, self.absolute.not_worse)

    @property
    def figures(self) -> SpeedFigures:
        """For `messages`."""
        return SpeedFigures(self.relative, self.absolute, self.load, self.missing)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal value."""
        return {
            "relative": self.relative.to_json(),
            "absolute": self.absolute.to_json(),
            "window": self.window.to_json(),
            "openLoad": [[a.looks, a.running, a.full] for a in self.open_load],
            "load": self.load,
            "missing": self.missing,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SpeedEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        ours, theirs = data["openLoad"]
        return cls(
            relative=Floors.from_json(data["relative"]),
            absolute=Floors.from_json(data["absolute"]),
            window=Window.from_json(data["window"]),
            open_load=(Load(*ours), Load(*theirs)),
            load=(data["load"][0], data["load"][1]),
            missing=data["missing"],
        )


def begin(name: str, *, factor: float, least: float | None) -> SpeedEvidence:
    """No evidence yet; `least` is in tokens per second and pod."""
    return SpeedEvidence(
        relative=Floors.of(name, factor=factor, absolute=None),
        absolute=Floors.of(name, factor=None, absolute=least),
        window=Window.empty(WIDTH),
    )


def observe(evidence: SpeedEvidence, sample: Sample) -> SpeedEvidence:
    """The evidence after one more look."""
    pods = {arm: list(_warm(sample, arm)) for arm in (CANDIDATE, CONTROL)}
    before = evidence.window
    window, block = advance(
        before,
        [reading for arm, found in pods.items() for reading in _readings(arm, found)],
        at=sample.at,
        weight=sample.weight,
        present={pod.uid for pod in sample.pods if not pod.terminating},
        closable=lambda found: sample.at - found.began_at >= BLOCK_SECONDS,
        silent_seconds=sample.silent_seconds,
        arms=sample.arms,
    )
    load = tuple(
        known.seen(pods[arm])
        for arm, known in zip((CANDIDATE, CONTROL), evidence.open_load, strict=True)
    )
    after = replace(
        evidence,
        window=window,
        open_load=(load[0], load[1]),
        missing=_missing(pods, evidence, sample),
    )
    if block is not None:
        after = _with_block(after, block)
    begins = window.block is not None and (
        before.block is None or before.block.began_at != window.block.began_at
    )
    return replace(after, open_load=(NO_LOAD, NO_LOAD)) if begins else after


def _with_block(evidence: SpeedEvidence, block: Block) -> SpeedEvidence:
    _, tokens, milliseconds = block.candidate
    _, their_tokens, their_milliseconds = block.control
    contrast = Contrast(tokens, milliseconds / 1000, their_tokens, their_milliseconds / 1000)
    ours, theirs = evidence.open_load
    after = replace(evidence, load=(ours.per_pod, theirs.per_pod))
    if min(ours.per_pod, theirs.per_pod) >= LEAST_RUNNING:
        relative = evidence.relative.add(
            contrast,
            spread=spread_of((made, lived / 1000) for _, made, lived in block.pods),
            # More work at a time makes a pod faster: slow at less of it, or fast at more, says
            # nothing about the revision.
            for_worse=LIKE_LOAD * ours.per_pod >= theirs.per_pod,
            for_not_worse=ours.per_pod <= LIKE_LOAD * theirs.per_pod,
        )
        after = replace(after, relative=relative)
    if ours.looks and ours.full == ours.looks:
        after = replace(after, absolute=evidence.absolute.add(contrast))
    return after


def _warm(sample: Sample, arm: str) -> Iterator[WorkerPod]:
    for pod in sample.pods:
        digest = pod.digest
        if sample.arm(pod.revision) != arm or pod.terminating or digest is None:
            continue
        if None in (digest.requests_finished, digest.generated_tokens, digest.running):
            continue
        if pod.ready_at is not None and sample.at - pod.ready_at >= WARM_UP_SECONDS:
            yield pod


def _readings(arm: str, pods: list[WorkerPod]) -> Iterator[Reading]:
    """(requests, tokens, milliseconds since the engine's start) of every warm pod."""
    for pod in pods:
        digest = pod.digest
        if digest is None:
            continue
        lived = max(round(1000 * (digest.sampled_at - digest.engine_started_at)), 0)
        counters = (digest.requests_finished or 0, digest.generated_tokens or 0, lived)
        yield Reading(pod.uid, arm, digest.engine_started_at, digest.sampled_at, counters)


def _missing(pods: dict[str, list[WorkerPod]], evidence: SpeedEvidence, sample: Sample) -> str:
    if sample.arms == ALONE and not evidence.absolute.tests:
        return "only min could be judged without the old revision"
    for arm, words in ((CANDIDATE, "the candidate"), (CONTROL, "stable")):
        if arm in sample.arms and not pods[arm]:
            return (
                f"no digest of {words} with running requests yet (pods count from "
                f"{WARM_UP_SECONDS:.0f} s after ready on)"
            )
    ours, theirs = evidence.load
    if sample.arms == ALONE:
        return "no block yet in which every pod had requests waiting"
    if min(ours, theirs) < LEAST_RUNNING and max(ours, theirs) > 0:
        return (
            f"{ours:.1f} requests at a time in a pod of the candidate, {theirs:.1f} in one of "
            f"stable; both need {LEAST_RUNNING}"
        )
    return "no block with enough requests of both arms yet"
