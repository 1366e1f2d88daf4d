"""Queries are judged by counting; what is not known holds, and never decides."""

import json
from typing import Any

import pytest
from tests.analysis.looks import NEEDED, Trial

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import assess, begin, continues, observe
from speculative_operator.analysis.queried import Measurement
from speculative_operator.decision import MetricVerdict, Outcome

NAN = Measurement(0, problem="the query yields NaN")
AWAY = Measurement(0, problem="Prometheus answered 503", is_away=True)


def asks(**bounds: str) -> Analysis:
    return Analysis.model_validate(
        {
            "metrics": [{"name": "gpu", "prometheus": {"query": "up", **bounds}}],
            "prometheus": {"address": "http://prometheus:9090"},
        }
    )


class Asking(Trial):
    """A trial whose looks come with the answer that the test chooses."""

    found: Measurement | None = None

    def sample(self) -> Any:
        sample = super().sample()
        if self.found is not None:
            sample.measurements["gpu"] = self.found
        return sample


def after(*answers: float | Measurement, **bounds: str) -> MetricVerdict:
    trial = Asking(analysis=asks(**(bounds or {"min": "0.5", "max": "0.9"})))
    for answer in answers:
        at = trial.at + 9
        if isinstance(answer, Measurement):
            trial.found = Measurement(at, None, answer.problem, answer.is_away)
        else:
            trial.found = Measurement(at, answer)
        trial.look()
    return assess(trial.evidence).metrics[0]


@pytest.mark.parametrize(
    "answers, outcome, holds",
    [
        pytest.param([], Outcome.INCONCLUSIVE, True, id="nothing yet"),
        pytest.param([0.7, 0.7], Outcome.INCONCLUSIVE, False, id="two good ones"),
        pytest.param([0.7, 0.7, 0.7], Outcome.PASSED, False, id="three good ones"),
        pytest.param([0.4, 0.4], Outcome.INCONCLUSIVE, False, id="two bad ones"),
        pytest.param([0.4, 0.4, 0.4], Outcome.FAILED, False, id="too little"),
        pytest.param([0.95, 0.95, 0.95], Outcome.FAILED, False, id="too much"),
        pytest.param([0.4, 0.95, 0.4], Outcome.FAILED, False, id="beyond either bound"),
        pytest.param(
            [0.4, 0.4, 0.7, 0.4, 0.4], Outcome.INCONCLUSIVE, False, id="a good one between"
        ),
        pytest.param([0.4, NAN, 0.4, AWAY, 0.4], Outcome.FAILED, False, id="gaps do not save it"),
        pytest.param([0.5, 0.9, 0.5], Outcome.PASSED, False, id="the bounds themselves"),
        pytest.param([NAN] * 50, Outcome.INCONCLUSIVE, True, id="NaN for ever"),
        pytest.param([AWAY] * 50, Outcome.ERRORED, True, id="away for ever"),
        pytest.param([0.7] * 9 + [NAN], Outcome.INCONCLUSIVE, True, id="good, then NaN"),
        pytest.param([0.7] * 9 + [AWAY], Outcome.ERRORED, True, id="good, then away"),
        pytest.param([0.4, 0.4, AWAY], Outcome.ERRORED, True, id="bad, then away"),
        pytest.param([0.4, 0.4, 0.4, AWAY], Outcome.FAILED, True, id="failed stays failed"),
        pytest.param([AWAY, NAN, 0.7, 0.7, 0.7], Outcome.PASSED, False, id="back again"),
    ],
)
def test_three_in_a_row_decide_and_nothing_else(
    answers: list[Any], outcome: str, holds: bool
) -> None:
    found = after(*answers)
    assert found.outcome == outcome
    assert found.holds is holds or outcome == Outcome.FAILED


@pytest.mark.parametrize(
    "bounds, value, outcome",
    [
        ({"min": "0.5"}, 1e9, Outcome.PASSED),
        ({"max": "0.5"}, -1e9, Outcome.PASSED),
        ({"max": "-2.5"}, -2.0, Outcome.FAILED),
    ],
)
def test_one_bound_is_enough(bounds: dict[str, str], value: float, outcome: str) -> None:
    assert after(value, value, value, **bounds).outcome == outcome


def test_the_message_has_the_arithmetic() -> None:
    assert after(0.4).message == (
        "gpu is 0.4, wanted at least 0.5 and at most 0.9; 1 in a row beyond it, 3 fail"
    )
    assert after(0.7).message.endswith("1 in a row within it, 3 pass")
    assert after(0.7, AWAY).message == (
        "gpu not measured: Prometheus answered 503 (wanted at least 0.5 and at most 0.9; 0.7 "
        "before that)"
    )
    assert (after(AWAY).reason, after(NAN).reason) == (Reason.SOURCE_AWAY, Reason.NOT_MEASURED)


def test_the_same_answer_again_counts_once() -> None:
    trial = Asking(analysis=asks(min="0.5"))
    trial.found = Measurement(trial.at + 1, 0.1)
    for _ in range(5):
        trial.look(1)
    assert trial.evidence.queries[0].outside == 1


def test_an_old_number_says_nothing_any_more() -> None:
    trial = Asking(analysis=asks(min="0.5"))
    for _ in range(3):
        trial.found = Measurement(trial.at + 1, 0.7)
        trial.look()
    trial.look(70)
    found = assess(trial.evidence).metrics[0]
    assert (found.outcome, found.measured, found.holds) == (Outcome.INCONCLUSIVE, False, True)
    assert "no new number" in found.message


def test_an_answer_from_before_the_trial_does_not_count() -> None:
    trial = Asking(analysis=asks(min="0.5"))
    trial.found = Measurement(trial.evidence.began_at, 0.1)
    trial.look()
    assert trial.evidence.queries[0].outside == 0


def test_a_query_is_no_test_that_shares_the_chance() -> None:
    both = {"metrics": [{"name": "ErrorRate"}, *asks(min="1").model_dump(by_alias=True)["metrics"]]}
    analysis = Analysis.model_validate(both | {"prometheus": {"address": "http://prometheus:9090"}})
    assert begin("r2", analysis, at=0).needed_worse == NEEDED / 2
    assert begin("r2", asks(min="1"), at=0).needed_worse == NEEDED / 2


def test_changed_bounds_are_a_new_test() -> None:
    evidence = begin("r2", asks(min="1"), at=0)
    assert continues(evidence, "r2", asks(min="1"))
    assert not continues(evidence, "r2", asks(min="2"))


def test_it_goes_on_after_a_restart() -> None:
    trial = Asking(analysis=asks(min="0.5"))
    for _ in range(2):
        trial.found = Measurement(trial.at + 1, 0.1)
        trial.look()
    before = trial.evidence
    trial.reload()
    assert trial.evidence == before
    trial.found = Measurement(trial.at + 1, 0.1)
    assert assess(trial.look()).failed is not None


def test_what_is_kept_is_plain_json() -> None:
    evidence = begin("r2", asks(min="0.5"), at=1.0)
    trial = Asking(analysis=asks(min="0.5"))
    evidence = observe(evidence, trial.sample())
    assert json.loads(json.dumps(evidence.to_json()))["queries"][0]["least"] == 0.5
