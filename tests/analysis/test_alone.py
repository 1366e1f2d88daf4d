"""Without a control (`guard.keep: None`) absolute bounds are judged, and nothing else."""

from dataclasses import replace

from tests.analysis import test_latency as latency
from tests.analysis.looks import CANDIDATE, Engine, Trial

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import assess, observe
from speculative_operator.analysis.windows import Sample
from speculative_operator.decision import Outcome


class Alone(Trial):
    """A promoted revision of which nothing older is left."""

    def sample(self) -> Sample:
        return replace(super().sample(), control="")


def alone(**fields: object) -> Alone:
    analysis = Analysis.model_validate({"metrics": [{"name": "ErrorRate"}], **fields})
    return Alone(engines=[Engine(CANDIDATE, "new")], analysis=analysis)


def test_failures_beyond_the_bound_fail_it() -> None:
    trial = alone()
    for _ in range(12):
        trial.proxies[0].answer(CANDIDATE, good=20, bad=6)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.FAILED
    assert "72 of 312" not in found.message, "a metric that failed takes no more data"
    assert "there is no old revision to compare with" in found.message
    assert found.outside_limit


def test_failures_within_the_bound_pass_in_the_end() -> None:
    trial = alone()
    for _ in range(60):
        trial.proxies[0].answer(CANDIDATE, good=100)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.PASSED


def test_acceptance_has_nothing_to_be_compared_with() -> None:
    trial = alone(metrics=[{"name": "AcceptanceLength"}])
    for _ in range(30):
        trial.new.serve(4, 60, 0)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.INCONCLUSIVE
    assert "nothing of the old revision is kept" in found.message


def test_a_restarted_operator_goes_on_alone() -> None:
    trial = alone()
    trial.proxies[0].answer(CANDIDATE, good=20, bad=6)
    trial.look()
    before = trial.evidence
    trial.reload()
    assert trial.evidence == before
    assert trial.evidence.alone


def test_a_latency_needs_a_bound_of_its_own() -> None:
    metric = {"name": "TimeToFirstToken", "thresholdMilliseconds": 500}
    trial = alone(metrics=[metric])
    trial.look()
    (found,) = assess(trial.evidence).metrics
    assert "only maxExceedPercent could be judged" in found.message


class AloneAndSlow(latency.Trial):
    """The same with histograms."""

    def look(self, seconds: float = 10.0) -> None:
        self.at += seconds
        pods = tuple(engine.pod(self.at) for engine in self.engines)
        sample = Sample(
            at=self.at, weight=100, candidate=CANDIDATE, control="", pods=pods, gateways=()
        )
        self.evidence = observe(self.evidence, sample)


def test_a_latency_beyond_its_own_bound_fails() -> None:
    trial = AloneAndSlow(
        latency.a_check(maxExceedPercent=5), engines=[latency.Engine(CANDIDATE, "new")]
    )
    for _ in range(60):
        trial.engines[0].serve(40, 20)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.FAILED
    assert found.reason == "LatencyWorse"


def test_acceptance_below_a_bound_of_its_own_fails() -> None:
    trial = alone(metrics=[{"name": "AcceptanceLength", "min": "2"}])
    for block in range(30):
        trial.new.serve(4, 60, 20 + block % 5)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.FAILED
    assert "limit 2 tokens per step (there is no old revision" in found.message


def test_a_rate_below_a_bound_of_its_own_fails() -> None:
    trial = alone(metrics=[{"name": "AcceptanceRate", "minPercent": 60}])
    for block in range(30):
        trial.new.serve(4, 60, 80 + block % 5)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.FAILED


def test_a_full_pod_below_a_bound_of_its_own_fails() -> None:
    trial = alone(metrics=[{"name": "TokensPerSecond", "min": "100"}])
    trial.new.running, trial.new.waiting = 8, 2
    trial.look(100)
    for block in range(90):
        trial.new.serve(9, 500 + block % 5, 0)
        trial.look()
    (found,) = assess(trial.evidence).metrics
    assert found.outcome == Outcome.FAILED


def test_restarts_need_no_old_revision() -> None:
    trial = alone(metrics=[{"name": "Restarts"}])
    trial.look(100)
    assert assess(trial.evidence).metrics[0].outcome == Outcome.PASSED
    trial.new.restarts = 1
    trial.look()
    assert assess(trial.evidence).metrics[0].outcome == Outcome.FAILED
