"""The one source of all engines' figures is away: time holds, what failed stays failed."""

import pytest
from tests.analysis.looks import Trial

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import Sample, assess, observe
from speculative_operator.decision import Assessment, Outcome
from speculative_operator.rollout.step_gates import _nothing_points_to_worse

METRICS = [{"name": "AcceptanceLength"}, {"name": "ErrorRate"}, {"name": "Restarts"}]


def away(trial: Trial, problem: str) -> Assessment:
    sample = trial.sample()
    fields = {name: getattr(sample, name) for name in Sample.__slots__}
    return assess(observe(trial.evidence, Sample(**{**fields, "problem": problem})))


def judged(accepted: int) -> Trial:
    trial = Trial(analysis=Analysis.model_validate({"metrics": METRICS}))
    for _ in range(20):
        trial.new.serve(4, 100, accepted)
        trial.old.serve(4, 100, 150)
        trial.proxies[0].answer(trial.new.revision, good=20)
        trial.proxies[0].answer(trial.old.revision, good=20)
        trial.look()
    return trial


@pytest.mark.parametrize("problem", ["", "Prometheus answered 503"])
def test_only_metrics_of_engines_hold_while_it_is_away(problem: str) -> None:
    trial = judged(150)
    found = {metric.name: metric for metric in away(trial, problem).metrics}
    length = found["AcceptanceLength"]
    assert length.holds is bool(problem)
    assert (length.outcome == Outcome.ERRORED) is bool(problem)
    assert length.message.startswith(problem)
    assert not found["ErrorRate"].holds
    assert not found["Restarts"].holds


def test_time_does_not_advance_a_canary_meanwhile() -> None:
    trial = judged(150)
    assert _nothing_points_to_worse(away(trial, ""))
    assert not _nothing_points_to_worse(away(trial, "Prometheus answered 503"))
    assert not away(trial, "Prometheus answered 503").all_passed


def test_what_has_failed_stays_failed() -> None:
    trial = judged(20)
    found = away(trial, "Prometheus answered 503").failed
    assert found is not None
    assert found.name == "AcceptanceLength"
