"""Latency as a share: how many are slower than a bucket, against stable and against a bound.

In: the histograms of the workers' digests. Out: e-values per bound, for
`verdict`. A percentile interpolated in an engine's buckets is mostly bucket
edges; the share above one bucket is a plain count (docs/analysis.md). Pure.
"""

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from speculative_api.v1alpha1 import MetricCheck, MetricName
from speculative_api.v1alpha1.percent import share_of
from speculative_api.worker import Digest, Latency
from speculative_operator.analysis.bounds import at_bound
from speculative_operator.analysis.contrast import spread_of
from speculative_operator.analysis.sequential import (
    NO_SPREAD,
    NOTHING,
    Contrast,
    MeanEvidence,
    Spread,
    joined,
    numbers,
)
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

FIELDS: Final[dict[str, str]] = {
    MetricName.TIME_TO_FIRST_TOKEN: "ttft",
    MetricName.INTER_TOKEN_LATENCY: "itl",
    MetricName.END_TO_END_LATENCY: "e2e",
}
"""Metric to field of the digest."""
MAX_PERCENT_OF_STABLE: Final = 150
"""Default limit of the slow share, in percent of stable's."""
BLOCK_SECONDS: Final = 30.0
"""Shortest block: a slow moment hits a whole batch, so that shorter ones hang together."""
WARM_UP_SECONDS: Final = 60.0
"""After a pod got ready: cold caches make an identical new pod slower."""
WARM_UP_REQUESTS: Final = 20
"""First requests of a pod that do not count, its own warm-up included."""
EXPECTED_SLOW: Final = 4.0
"""Slow ones expected at the limit before a block counts for 'not worse'; with fewer, a block
without any says nothing and would count as much as the others."""
LIKE_LOAD: Final = 1.25
"""Requests per pod of one arm over those of the other up to which latencies compare."""
WIDTH: Final = 3


@dataclass(frozen=True, slots=True)
class SlowTest:
    """One bound on the share of slow ones.

    `limit` is a factor on control's share, or the share itself if `is_absolute`.
    Blocks may count for one side only, so the two sides are kept apart.
    """

    limit: float
    is_absolute: bool
    worse_side: MeanEvidence
    not_worse_side: MeanEvidence
    waiting: Contrast = NOTHING
    """Blocks that are to be one block of 'not worse'."""
    waiting_spread: Spread = NO_SPREAD

    @classmethod
    def of(cls, limit: float, *, is_absolute: bool) -> "SlowTest":
        """A test with no evidence yet."""
        factor = 1.0 if is_absolute else limit
        nothing = MeanEvidence(limit=factor, sign=1, is_share=True)
        return cls(limit, is_absolute, nothing, nothing)

    def add(
        self,
        block: Contrast,
        *,
        spread: Spread,
        known_share: float,
        for_worse: bool,
        for_not_worse: bool,
    ) -> "SlowTest":
        """Takes one more block; `known_share` is control's share of slow ones before it."""
        after = self
        if self.is_absolute:
            spread = NO_SPREAD  # the candidate moves with control against a fixed bound
        if for_worse:
            seen = self.worse_side.add(self._against(block), spread=spread)
            after = replace(after, worse_side=seen)
        if not for_not_worse:
            return after
        waiting, seen_spread = joined(self.waiting, block), self.waiting_spread.plus(spread)
        share = self.limit if self.is_absolute else self.limit * known_share
        if share * waiting.candidate_exposure < EXPECTED_SLOW:
            return replace(after, waiting=waiting, waiting_spread=seen_spread)
        shown = self.not_worse_side.add(self._against(waiting), spread=seen_spread)
        return replace(after, not_worse_side=shown, waiting=NOTHING, waiting_spread=NO_SPREAD)

    def _against(self, block: Contrast) -> Contrast:
        return at_bound(block, self.limit) if self.is_absolute else block

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "limit": self.limit,
            "isAbsolute": self.is_absolute,
            "worse": self.worse_side.to_json(),
            "notWorse": self.not_worse_side.to_json(),
            "waiting": numbers(self.waiting),
            "waitingSpread": [self.waiting_spread.squares, self.waiting_spread.freedom],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SlowTest":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            limit=data["limit"],
            is_absolute=data["isAbsolute"],
            worse_side=MeanEvidence.from_json(data["worse"]),
            not_worse_side=MeanEvidence.from_json(data["notWorse"]),
            waiting=Contrast(*data["waiting"]),
            waiting_spread=Spread(*data.get("waitingSpread", ())),
        )


class LatencyFigures(NamedTuple):
    """What words about a latency are made of: nothing that moves at looks that end no block."""

    name: str
    threshold_milliseconds: int
    bound_seconds: float | None
    tests: tuple[SlowTest, ...]
    total: Contrast
    blocks: int
    load: tuple[float, float]
    missing: str


@dataclass(frozen=True, slots=True)
class LatencyEvidence:
    """What is remembered of one latency; the bucket and its source are frozen when first known."""

    name: str
    threshold_milliseconds: int
    tests: tuple[SlowTest, ...]
    window: Window
    source: str = ""
    bound_seconds: float | None = None
    total: Contrast = NOTHING
    blocks: int = 0
    load: tuple[float, float] = (0.0, 0.0)
    """Requests per pod and minute in the last block, candidate and control."""
    missing: str = "no digest with this histogram yet"
    """Why nothing is measured, as long as nothing is."""

    @property
    def limits(self) -> tuple[str, int, tuple[tuple[float, bool], ...]]:
        """What makes it another test when it changes."""
        tests = tuple((test.limit, test.is_absolute) for test in self.tests)
        return self.name, self.threshold_milliseconds, tests

    @property
    def worse(self) -> float:
        """The larger e-value of the bounds: each of them alone may fail a candidate."""
        return max(test.worse_side.worse for test in self.tests)

    @property
    def not_worse(self) -> float:
        """The smaller one: to pass, every bound must be shown."""
        return min(test.not_worse_side.not_worse for test in self.tests)

    @property
    def figures(self) -> LatencyFigures:
        """For `messages`."""
        return LatencyFigures(
            self.name,
            self.threshold_milliseconds,
            self.bound_seconds,
            self.tests,
            self.total,
            self.blocks,
            self.load,
            self.missing,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal value."""
        return {
            "name": self.name,
            "thresholdMilliseconds": self.threshold_milliseconds,
            "tests": [test.to_json() for test in self.tests],
            "window": self.window.to_json(),
            "source": self.source,
            "boundSeconds": self.bound_seconds,
            "total": numbers(self.total),
            "blocks": self.blocks,
            "load": self.load,
            "missing": self.missing,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "LatencyEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            name=data["name"],
            threshold_milliseconds=data["thresholdMilliseconds"],
            tests=tuple(SlowTest.from_json(test) for test in data["tests"]),
            window=Window.from_json(data["window"]),
            source=data["source"],
            bound_seconds=data["boundSeconds"],
            total=Contrast(*data["total"]),
            blocks=data["blocks"],
            load=(data["load"][0], data["load"][1]),
            missing=data["missing"],
        )


def begin(check: MetricCheck) -> LatencyEvidence:
    """No evidence yet, with the limits of a check that has a threshold."""
    factor = share_of(check.max_percent_of_stable or MAX_PERCENT_OF_STABLE)
    tests = [SlowTest.of(factor, is_absolute=False)]
    if check.max_exceed_percent is not None:
        tests.append(SlowTest.of(share_of(check.max_exceed_percent), is_absolute=True))
    return LatencyEvidence(
        name=str(check.name),
        threshold_milliseconds=check.threshold_milliseconds or 0,
        tests=tuple(tests),
        window=Window.empty(WIDTH),
    )


def observe(
    latencies: Sequence[LatencyEvidence], sample: Sample, *, failed: Collection[str]
) -> tuple[LatencyEvidence, ...]:
    """The evidence of every latency after one more look; `failed` ones take no more data."""
    # All of them are read from the same pods, which are looked at once.
    warm = tuple(_warm(sample))
    present = {pod.uid for pod in sample.pods if not pod.terminating}
    return tuple(
        found if found.name in failed else _observe(found, sample, warm=warm, present=present)
        for found in latencies
    )


def _observe(
    evidence: LatencyEvidence, sample: Sample, *, warm: Sequence["_Warm"], present: Set[str]
) -> LatencyEvidence:
    if evidence.bound_seconds is None:
        evidence = _with_bucket(evidence, sample)
    bound = evidence.bound_seconds
    if bound is None:
        return evidence
    window, block = advance(
        evidence.window,
        _readings(evidence, bound, warm),
        at=sample.at,
        weight=sample.weight,
        present=present,
        closable=lambda found: sample.at - found.began_at >= BLOCK_SECONDS,
        silent_seconds=sample.silent_seconds,
        arms=sample.arms,
    )
    after = replace(evidence, window=window)
    return after if block is None else _with_block(after, block, at=sample.at, arms=sample.arms)


def _with_block(
    evidence: LatencyEvidence, block: Block, *, at: float, arms: frozenset[str]
) -> LatencyEvidence:
    contrast = Contrast(block.candidate[2], block.candidate[1], block.control[2], block.control[1])
    alone = contrast.control_exposure <= 0
    if contrast.candidate_exposure <= 0 or (alone and arms != ALONE):
        return evidence
    load = _load(evidence.window, block, seconds=at - block.began_at)
    known = evidence.total
    share = known.control_hits / known.control_exposure if known.control_exposure else 0.0
    spread = spread_of((slow, all_) for _, all_, slow in block.pods)
    tests = tuple(
        test.add(
            contrast,
            spread=spread,
            known_share=share,
            # Slower than stable at more load, or fast at less, says nothing about the revision;
            # an absolute bound holds at the load that there is.
            for_worse=test.is_absolute or load[0] <= LIKE_LOAD * load[1],
            for_not_worse=LIKE_LOAD * load[0] >= load[1],
        )
        if test.is_absolute or not alone
        else test
        for test in evidence.tests
    )
    return replace(
        evidence,
        tests=tests,
        total=joined(known, contrast),
        blocks=evidence.blocks + 1,
        load=load,
    )


def _load(window: Window, block: Block, *, seconds: float) -> tuple[float, float]:
    """Requests per pod and minute of both arms."""
    pods = [seen.arm for seen in window.seen.values() if seen.since <= block.began_at]
    minutes = seconds / 60
    return (
        block.candidate[0] / max(pods.count(CANDIDATE), 1) / minutes,
        block.control[0] / max(pods.count(CONTROL), 1) / minutes,
    )


def _histograms(name: str, sample: Sample) -> Iterator[tuple[str, WorkerPod, Latency]]:
    field, arms = FIELDS[name], {sample.control: CONTROL, sample.candidate: CANDIDATE}
    for pod in sample.pods:
        arm = arms.get(pod.revision)
        if arm is None or pod.terminating or pod.digest is None:
            continue
        found: Latency | None = getattr(pod.digest, field)
        if found is not None:
            yield arm, pod, found


def _with_bucket(evidence: LatencyEvidence, sample: Sample) -> LatencyEvidence:
    """The lowest bucket at or above the threshold that every engine of both arms has."""
    found = list(_histograms(evidence.name, sample))
    if sample.arms == ALONE and not any(test.is_absolute for test in evidence.tests):
        why = "only maxExceedPercent could be judged without the old revision"
        return replace(evidence, missing=why)
    for arm, words in ((CANDIDATE, "the candidate"), (CONTROL, "stable")):
        if arm in sample.arms and arm not in {one for one, _, _ in found}:
            return replace(evidence, missing=f"no digest of {words} has this histogram")
    sources = sorted({histogram.source for _, _, histogram in found})
    if len(sources) > 1:
        why = f"the engines count different things: {', '.join(sources)}"
        return replace(evidence, missing=why)
    shared = set.intersection(*(set(histogram.bounds_seconds) for _, _, histogram in found))
    least = evidence.threshold_milliseconds / 1000
    bound = min((bound for bound in shared if bound >= least), default=None)
    if bound is None:
        why = f"no bucket of both arms reaches {evidence.threshold_milliseconds} ms"
        return replace(evidence, missing=why)
    why = (
        "no block with enough requests of both arms yet (pods count from "
        f"{WARM_UP_SECONDS:.0f} s after ready and {WARM_UP_REQUESTS} requests on)"
    )
    return replace(evidence, source=sources[0], bound_seconds=bound, missing=why)


class _Warm(NamedTuple):
    """A pod whose latencies count."""

    arm: str
    uid: str
    requests: int
    digest: Digest


def _warm(sample: Sample) -> Iterator[_Warm]:
    since, arms = sample.at - WARM_UP_SECONDS, {sample.control: CONTROL}
    arms[sample.candidate] = CANDIDATE
    for pod in sample.pods:
        arm, digest, ready_at = arms.get(pod.revision), pod.digest, pod.ready_at
        if arm is None or pod.terminating or digest is None or ready_at is None or ready_at > since:
            continue
        requests = digest.requests_finished
        if requests is not None and requests >= WARM_UP_REQUESTS:
            yield _Warm(arm, pod.uid, requests, digest)


def _readings(
    evidence: LatencyEvidence, bound_seconds: float, warm: Sequence[_Warm]
) -> list[Reading]:
    """(requests, observations, slow ones) of every warm pod that counts the same thing."""
    field, source, readings = FIELDS[evidence.name], evidence.source, []
    for arm, uid, requests, digest in warm:
        histogram: Latency | None = getattr(digest, field)
        if histogram is None or histogram.source != source:
            continue
        slow = histogram.slow(bound_seconds)
        if slow is not None:
            counters = (requests, histogram.count, slow)
            readings.append(
                Reading(uid, arm, digest.engine_started_at, digest.sampled_at, counters)
            )
    return readings
