"""Latency as a share above a bucket: limits, buckets, warm-up, load, dry runs, restarts."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, NEEDED

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import Analysis, MetricCheck
from speculative_api.worker import Digest, Latency
from speculative_operator.analysis import Evidence, Sample, assess, begin, continues, observe
from speculative_operator.analysis.contrast import NO_SPREAD
from speculative_operator.analysis.latency import SlowTest
from speculative_operator.analysis.sequential import Contrast
from speculative_operator.decision import MetricVerdict, Outcome
from speculative_operator.snapshot import WorkerPod

BOUNDS = (0.1, 0.25, 0.5, 1.0)
PER_REQUEST = "vllm:request_time_per_output_token_seconds"


@dataclass
class Engine:
    """One warm worker pod with one histogram."""

    revision: str
    uid: str
    bounds: tuple[float, ...] = BOUNDS
    source: str = PER_REQUEST
    ready_at: float | None = 0.0
    started_at: float = 0.0
    requests: int = 20
    counts: list[int] = field(default_factory=list)
    count: int = 0
    reports: bool = True

    def serve(self, requests: int, slow: int, *, seconds: float = 0.5) -> None:
        """So many requests of 0.1 s and less, `slow` of them just above `seconds`."""
        self.counts = self.counts or [0] * len(self.bounds)
        self.requests += requests
        self.count += requests
        for index, bound in enumerate(self.bounds):
            self.counts[index] += requests - (slow if bound <= seconds else 0)

    def pod(self, at: float) -> WorkerPod:
        histogram = Latency(
            source=self.source,
            bounds_seconds=self.bounds,
            counts=tuple(self.counts or [0] * len(self.bounds)),
            count=self.count,
        )
        digest = Digest(
            ready=True,
            engine_started_at=self.started_at,
            sampled_at=at,
            method="NGram",
            requests_finished=self.requests,
            ttft=histogram if self.reports else None,
            itl=histogram if self.reports else None,
            e2e=histogram if self.reports else None,
        )
        return WorkerPod(
            name=self.uid,
            uid=self.uid,
            revision=self.revision,
            ready=True,
            ready_at=self.ready_at,
            digest=digest,
        )


def a_check(**fields: object) -> MetricCheck:
    base = {"name": "TimeToFirstToken", "thresholdMilliseconds": 500}
    return MetricCheck.model_validate(base | fields)


class Trial:
    """Looks every 10 s at two engines or more."""

    def __init__(self, *checks: MetricCheck, engines: list[Engine] | None = None) -> None:
        self.engines = engines or [Engine(CANDIDATE, "new"), Engine(CONTROL, "old")]
        self.at = 1000.0
        self.analysis = Analysis(metrics=list(checks or [a_check()]))
        self.evidence: Evidence = begin("r2", self.analysis, at=self.at)
        self.look(0)

    def look(self, seconds: float = 10.0) -> None:
        self.at += seconds
        pods = tuple(engine.pod(self.at) for engine in self.engines)
        sample = Sample(self.at, 50, CANDIDATE, CONTROL, pods, ())
        self.evidence = observe(self.evidence, sample)

    def blocks(self, count: int, *, slow: int, stable_slow: int = 2, requests: int = 40) -> None:
        """Blocks of 30 s; every second one has one slow request more on stable."""
        for number in range(count):
            self.engines[0].serve(requests, slow + number % 2 * (slow > 0))
            self.engines[1].serve(40, stable_slow + number % 2)
            for _ in range(3):
                self.look()

    @property
    def verdict(self) -> MetricVerdict:
        return assess(self.evidence).metrics[0]


def test_three_times_as_many_slow_ones_fail_with_the_arithmetic():
    trial = Trial()
    trial.blocks(20, slow=9)
    found = trial.verdict
    assert (found.outcome, found.reason) == (Outcome.FAILED, Reason.LATENCY_WORSE)
    assert assess(trial.evidence).failed == found
    assert found.worse >= found.needed_worse == NEEDED / 2
    assert "TimeToFirstToken: 24 % of" in found.message
    assert "above 500 ms on the candidate, 6.1 % of" in found.message
    assert "limit 150 % of stable's share" in found.message


def test_equal_latency_passes_and_never_fails():
    trial = Trial()
    trial.blocks(60, slow=2)
    assert trial.verdict.outcome == Outcome.PASSED
    assert trial.verdict.worse < 1
    assert not trial.verdict.outside_limit


def test_one_slow_request_in_each_of_a_few_blocks_proves_nothing():
    """Steady by chance: the binomial floor of the variance keeps it from looking certain."""
    trial = Trial()
    for _ in range(5):
        trial.engines[0].serve(3, 1)
        trial.engines[1].serve(3, 0)
        for _ in range(3):
            trial.look()
    assert trial.evidence.latencies[0].blocks == 5
    assert trial.verdict.worse < 10


def test_an_absolute_bound_fails_a_candidate_that_is_no_worse_than_stable():
    trial = Trial(a_check(maxExceedPercent=10))
    trial.blocks(20, slow=12, stable_slow=12)
    found = trial.verdict
    assert found.outcome == Outcome.FAILED
    assert "limit 150 % of stable's share and 10 %" in found.message
    without = Trial()
    without.blocks(20, slow=12, stable_slow=12)
    assert without.verdict.outcome != Outcome.FAILED


def test_to_pass_both_bounds_must_be_shown():
    trial = Trial(a_check(maxExceedPercent=6))
    trial.blocks(60, slow=2)
    assert trial.evidence.latencies[0].tests[0].not_worse_side.not_worse >= 20
    assert trial.verdict.outcome == Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "checks, needed",
    [
        ([a_check()], 100),
        ([a_check(maxExceedPercent=5)], 200),
        ([MetricCheck(name="AcceptanceLength"), a_check(maxExceedPercent=5)], 300),
        ([MetricCheck(name="ErrorRate"), a_check(dryRun=True)], 200),
    ],
)
def test_every_bound_is_a_test_of_its_own(checks, needed):
    assert begin("r2", Analysis(metrics=checks), at=0).needed_worse == pytest.approx(
        NEEDED * needed / 200
    )


def test_the_threshold_is_rounded_up_to_a_bucket_of_both_arms_and_says_so():
    engines = [
        Engine(CANDIDATE, "new", bounds=(0.1, 0.3, 0.5, 1.0)),
        Engine(CONTROL, "old", bounds=(0.1, 0.25, 0.5, 1.0)),
    ]
    trial = Trial(a_check(thresholdMilliseconds=200), engines=engines)
    trial.blocks(2, slow=1)
    assert trial.evidence.latencies[0].bound_seconds == 0.5
    assert "above 500 ms (threshold 200 ms, rounded up to a bucket)" in trial.verdict.message


def test_the_bucket_is_frozen_once_it_is_known():
    trial = Trial()
    trial.blocks(1, slow=1)
    trial.engines.append(Engine(CANDIDATE, "newer", bounds=(2.0,)))
    trial.blocks(1, slow=1)
    assert trial.evidence.latencies[0].bound_seconds == 0.5


NOT_MEASURED = {
    "no histogram on the candidate": (
        [Engine(CANDIDATE, "new", reports=False), Engine(CONTROL, "old")],
        "no digest of the candidate has this histogram",
    ),
    "no histogram on stable": (
        [Engine(CANDIDATE, "new"), Engine(CONTROL, "old", reports=False)],
        "no digest of stable has this histogram",
    ),
    "per request against per step": (
        [Engine(CANDIDATE, "new", source="vllm:inter_token_latency_seconds"), Engine(CONTROL, "o")],
        "the engines count different things: vllm:inter_token_latency_seconds, vllm:request",
    ),
    "no bucket so high": (
        [Engine(CANDIDATE, "new", bounds=(0.1, 0.2)), Engine(CONTROL, "old", bounds=(0.1, 0.2))],
        "no bucket of both arms reaches 500 ms",
    ),
    "not ready for long enough": (
        [Engine(CANDIDATE, "new", ready_at=5000.0), Engine(CONTROL, "old")],
        "no block with enough requests of both arms yet",
    ),
    "never ready": (
        [Engine(CANDIDATE, "new", ready_at=None), Engine(CONTROL, "old")],
        "no block with enough requests of both arms yet",
    ),
}


@pytest.mark.parametrize("engines, why", NOT_MEASURED.values(), ids=NOT_MEASURED)
def test_what_cannot_be_compared_is_not_measured_and_never_passes(engines, why):
    trial = Trial(engines=[replace(engine, counts=[]) for engine in engines])
    trial.blocks(12, slow=30)
    found = trial.verdict
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    assert not found.measured
    assert why in found.message


def test_the_warm_up_of_a_new_pod_does_not_count():
    engines = [Engine(CANDIDATE, "new", ready_at=1000.0, requests=0), Engine(CONTROL, "old")]
    trial = Trial(engines=engines)
    trial.engines[0].serve(40, 40)
    for _ in range(6):
        trial.look()
    trial.blocks(3, slow=1)
    assert 0 < trial.evidence.latencies[0].total.candidate_hits <= 6


def test_the_first_requests_of_a_pod_do_not_count():
    engines = [Engine(CANDIDATE, "new", requests=0), Engine(CONTROL, "old")]
    trial = Trial(engines=engines)
    for _ in range(19):
        trial.engines[0].serve(1, 1)
        trial.engines[1].serve(40, 2)
        trial.look()
    trial.blocks(3, slow=1)
    assert 0 < trial.evidence.latencies[0].total.candidate_hits <= 6


def test_blocks_are_half_a_minute():
    trial = Trial()
    for _ in range(9):
        trial.engines[0].serve(20, 1)
        trial.engines[1].serve(20, 1)
        trial.look()
    assert trial.evidence.latencies[0].blocks == 3


def test_slower_at_more_load_is_not_held_against_the_candidate():
    """H27: at 50 percent on half the pods the canary has twice stable's load."""
    engines = [Engine(CANDIDATE, "new"), Engine(CONTROL, "old"), Engine(CONTROL, "older")]
    trial = Trial(engines=engines)
    engines[2].serve(4, 0)
    trial.blocks(20, slow=15, requests=80)
    found = trial.verdict
    assert found.outcome == Outcome.INCONCLUSIVE
    assert not found.outside_limit
    assert "load per pod 160.0 requests a minute on the candidate, 40.0 on stable" in found.message


def test_fast_at_little_load_is_no_proof():
    """H27: a canary with 8 running looks fine beside pods with 20."""
    trial = Trial()
    trial.blocks(60, slow=0, requests=12)
    assert trial.verdict.outcome == Outcome.INCONCLUSIVE
    assert trial.verdict.not_worse == 1


def test_an_absolute_bound_holds_at_any_load():
    engines = [Engine(CANDIDATE, "new"), Engine(CONTROL, "old"), Engine(CONTROL, "older")]
    trial = Trial(a_check(maxExceedPercent=5), engines=engines)
    trial.blocks(20, slow=15, requests=80)
    assert trial.verdict.outcome == Outcome.FAILED


def test_a_dry_run_is_judged_and_shown_and_never_fails():
    trial = Trial(a_check(dryRun=True), MetricCheck(name="ErrorRate"))
    trial.blocks(20, slow=9)
    assessment = assess(trial.evidence)
    assert assessment.metrics[0].outcome == Outcome.FAILED
    assert assessment.metrics[0].message.startswith("dry run, not acted on: TimeToFirstToken")
    assert assessment.failed is None
    assert [metric.name for metric in assessment.acted_on] == ["ErrorRate"]


@pytest.mark.parametrize(
    "fields, advisory",
    [
        ({"name": "EndToEndLatency"}, True),
        ({"name": "EndToEndLatency", "dryRun": False}, False),
        ({"name": "InterTokenLatency"}, False),
        ({"name": "InterTokenLatency", "dryRun": True}, True),
    ],
)
def test_whole_requests_are_advisory_unless_said_otherwise(fields, advisory):
    trial = Trial(a_check(**fields))
    assert trial.verdict.dry_run is advisory


def test_an_engine_restart_gives_no_negative_increment():
    trial = Trial()
    trial.blocks(3, slow=1)
    before = trial.evidence.latencies[0].total
    engine = trial.engines[0]
    engine.started_at, engine.requests, engine.counts, engine.count = trial.at, 20, [], 0
    trial.blocks(3, slow=1)
    after = trial.evidence.latencies[0].total
    assert after.candidate_hits >= before.candidate_hits
    assert after.candidate_exposure > before.candidate_exposure


def test_reloading_after_every_block_gives_identical_bits():
    plain, reloaded = (Trial(a_check(maxExceedPercent=10)) for _ in range(2))
    for number in range(40):
        for trial in (plain, reloaded):
            trial.blocks(1, slow=2 + number % 3)
        text = json.dumps(reloaded.evidence.to_json())
        reloaded.evidence = Evidence.from_json(json.loads(text))
    assert reloaded.evidence == plain.evidence
    assert len(text) < 10_000


def test_evidence_of_another_schema_is_refused():
    data = begin("r2", Analysis(), at=0).to_json() | {"schema": 1}
    with pytest.raises(ValueError, match="schema 1, 3 is known"):
        Evidence.from_json(data)


@pytest.mark.parametrize(
    "change", [{"maxExceedPercent": 5}, {"thresholdMilliseconds": 400}, {"dryRun": True}]
)
def test_changed_limits_are_a_new_test(change):
    evidence = begin("r2", Analysis(metrics=[a_check()]), at=0)
    assert not continues(evidence, "r2", Analysis(metrics=[a_check(**change)]))


@pytest.mark.slow
@pytest.mark.parametrize("is_absolute", [False, True])
@pytest.mark.parametrize("share", [0.02, 0.1])
def test_exactly_at_the_limit_is_rolled_back_as_rarely_as_promised(share, is_absolute):
    """Each block hits a whole batch: slow moments come in clusters (beta-binomial)."""
    rng = np.random.default_rng(5)
    runs, factor = 300, 1.5
    failed = 0
    for _ in range(runs):
        limit = share if is_absolute else factor
        test = SlowTest.of(limit, is_absolute=is_absolute)
        for _ in range(60):
            ours, theirs = max(3, rng.poisson(15)), max(3, rng.poisson(135))
            level = rng.beta(20 * share, 20 * (1 - share)) / (1 if is_absolute else factor)
            block = Contrast(
                rng.binomial(ours, min(level * (1 if is_absolute else factor), 1)),
                ours,
                rng.binomial(theirs, level),
                theirs,
            )
            test = test.add(
                block, spread=NO_SPREAD, known_share=share, for_worse=True, for_not_worse=True
            )
            if test.worse_side.worse >= 100:
                failed += 1
                break
    assert failed / runs <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / runs)


def test_latencies_read_from_the_same_pods_are_judged_as_each_alone():
    """One reading for all of them must be nobody's loss: not where one fails, a pod restarts, is
    cold or silent, or counts something else."""
    names = ("TimeToFirstToken", "InterTokenLatency", "EndToEndLatency")
    checks = [a_check(name=name, dryRun=False, maxExceedPercent=20) for name in names]
    engines = [Engine(CANDIDATE, "new"), Engine(CONTROL, "old"), Engine(CONTROL, "late")]
    trials = [Trial(*checks, engines=engines)]
    trials += [Trial(check, engines=engines) for check in checks]
    rng = np.random.default_rng(7)
    for look in range(75):
        for engine in engines:
            requests = int(rng.integers(5, 40))
            engine.serve(requests, int(rng.integers(0, 1 + requests // 4)))
        engines[2].reports = not 25 <= look < 32
        engines[2].ready_at = None if 36 <= look < 40 else 0.0
        engines[0].source = "other" if 45 <= look < 48 else PER_REQUEST
        if look == 15:
            engines[1].started_at, engines[1].requests = trials[0].at, 20
            engines[1].counts, engines[1].count = [], 0
        for trial in trials:
            trial.look()
    together, *alone = (trial.evidence.latencies for trial in trials)
    assert [found.to_json() for found in together] == [found.to_json() for (found,) in alone]
    assert min(found.blocks for found in together) > 5
