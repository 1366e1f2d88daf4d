"""Evidence of a made-up trial."""

from tests.analysis.looks import Trial

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import Evidence, Sample, begin, observe

TRIAL = "a01c000000/canary/2026-01-02T03:00:00.000Z"


def a_failed_trial() -> Evidence:
    """A canary that accepts nothing, beside a stable that accepts 2 tokens per step."""
    trial = Trial()
    trial.evidence = begin(TRIAL, Analysis(), at=trial.at)
    sample: Sample = trial.sample()
    trial.evidence = observe(trial.evidence, sample)
    for block in range(6):
        trial.new.serve(4, 60, 0)
        trial.old.serve(6, 50, 100 + block % 4)
        trial.look()
    return trial.evidence
