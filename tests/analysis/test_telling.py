"""Words said again at a later look are the words that it would have found itself."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, Engine, Proxy, Trial
from tests.analysis.test_latency import Engine as TimedEngine

from speculative_api.gateway import STRUCTURED, TOOLS
from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import Evidence, Sample, assess, begin, observe, tell
from speculative_operator.analysis.queried import Measurement
from speculative_operator.analysis.verdict import Told

ALL_METRICS = Analysis.model_validate(
    {
        "prometheus": {"address": "https://prometheus:9090"},
        "metrics": [
            {"name": "AcceptanceLength", "min": "1.2"},
            {"name": "AcceptanceRate", "minPercent": 5},
            {"name": "ErrorRate", "maxPercent": 1},
            {"name": "TokensPerSecond", "dryRun": True},
            {"name": "Restarts"},
            {"name": "TimeToFirstToken", "thresholdMilliseconds": 500, "maxExceedPercent": 30},
            {"name": "EndToEndLatency", "thresholdMilliseconds": 300},
            {"name": "utilisation", "prometheus": {"query": "avg(x)", "min": "70"}},
        ],
    }
)


def samples(seed: int, looks: int = 48) -> Iterator[Sample]:
    """A rollout in which everything that words speak of happens now and then."""
    rng = np.random.default_rng(seed)
    engines = [Engine(CANDIDATE, "new"), Engine(CONTROL, "old"), Engine(CONTROL, "other")]
    timed = [TimedEngine(each.revision, each.uid) for each in engines]
    proxy = Proxy()
    answer, kept = Measurement(0.0, value=80.0), (50, False)
    for look in range(looks):
        at = 1000.0 + 5 * look
        for engine, times in zip(engines, timed, strict=True):
            requests = int(rng.integers(0, 6))
            weak = engine.revision == CANDIDATE and seed % 2
            engine.serve(requests, 10 * requests, int(rng.integers(0, 6 if weak else 20)))
            engine.running, engine.waiting = int(rng.integers(0, 3)), int(rng.integers(0, 2))
            engine.restarts += int(rng.random() < 0.02)
            engine.silent = bool(rng.random() < 0.05)
            times.serve(requests, int(rng.integers(0, 1 + requests)))
            proxy.answer(engine.revision, good=requests, bad=int(rng.random() < 0.03))
            if rng.random() < 0.1:
                kind = (STRUCTURED, TOOLS)[int(rng.integers(0, 2))]
                proxy.answer_kind(engine.revision, kind, good=2, bad=int(rng.random() < 0.3))
        if rng.random() < 0.1:
            kept = (int(rng.choice([5, 50])), bool(rng.random() < 0.3))
        if rng.random() < 0.3:
            answer = Measurement(at, value=float(rng.choice([60.0, 80.0])))
        yield Sample(
            at=at,
            weight=kept[0],
            candidate=CANDIDATE,
            control="" if look > 38 and seed % 3 == 0 else CONTROL,
            pods=tuple(
                replace(pod, digest=pod.digest and pod.digest.model_copy(update=_times(clock, at)))
                for pod, clock in zip((e.pod(at) for e in engines), timed, strict=True)
            ),
            gateways=(proxy.pod(at),) if look > 4 else (),
            sticky=kept[1],
            measurements={"utilisation": answer},
            problem="prometheus is away" if rng.random() < 0.05 else "",
        )


def _times(engine: TimedEngine, at: float) -> dict[str, object]:
    digest = engine.pod(at).digest
    assert digest is not None
    return {field: getattr(digest, field) for field in ("ttft", "itl", "e2e")}


@pytest.mark.parametrize("seed", range(4))
def test_words_said_again_are_those_that_would_be_found(seed):
    evidence, told = begin("r2", ALL_METRICS, at=0.0), None
    for sample in samples(seed):
        evidence = observe(evidence, sample)
        told = tell(evidence, told)
        assert repr(told.assessment) == repr(assess(evidence))


def test_words_of_another_trial_are_not_said_of_this_one():
    evidence, told = begin("r2", ALL_METRICS, at=0.0), None
    for sample in samples(1):
        evidence = observe(evidence, sample)
        told = tell(evidence, told)
    for metrics in (Analysis(), ALL_METRICS):
        other = begin("r3", metrics, at=0.0)
        assert tell(other, told).assessment == assess(other)


def said_again(evidence: Evidence, told: Told) -> tuple[Told, list[bool]]:
    after = tell(evidence, told)
    pairs = zip(after.assessment.metrics, told.assessment.metrics, strict=True)
    return after, [new is old for new, old in pairs]


def test_a_look_that_ends_no_block_needs_no_new_words():
    trial = Trial()
    for _ in range(4):
        for engine in (trial.new, trial.old):
            engine.serve(4, 40, 60)
            trial.proxies[0].answer(engine.revision, good=4)
        trial.look()
    told = tell(trial.evidence)
    trial.look(5.0)
    told, again = said_again(trial.evidence, told)
    assert again == [True, True]
    for engine in (trial.new, trial.old):
        engine.serve(4, 40, 60)
        trial.proxies[0].answer(engine.revision, good=4)
    trial.look()
    assert said_again(trial.evidence, told)[1] == [False, False]
