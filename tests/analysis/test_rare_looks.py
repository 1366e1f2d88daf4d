"""A long period between looks makes judging slower, not impossible."""

import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, Trial

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import assess


@pytest.mark.parametrize("period", [5, 60, 61, 300])
def test_evidence_grows_at_any_period(period: int) -> None:
    trial = Trial(analysis=Analysis(period_seconds=period))
    for _ in range(10):
        for engine, revision in ((trial.new, CANDIDATE), (trial.old, CONTROL)):
            engine.serve(requests=20, steps=400, accepted=400)
            trial.proxies[0].answer(revision, good=20)
        trial.look(period)
    assert all(metric.measured for metric in assess(trial.evidence).metrics)


def test_a_pod_that_misses_three_looks_is_given_up() -> None:
    trial = Trial(analysis=Analysis(period_seconds=300))
    trial.look(300)
    trial.new.silent = True
    for _ in range(3):
        trial.look(300)
    assert "new" not in trial.evidence.workers.seen
