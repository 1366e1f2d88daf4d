"""The chance of a false rollback is one for the canary and its guard together."""

import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, NEEDED

from speculative_api.v1alpha1 import Analysis, Guard, Rollout
from speculative_operator.analysis import Sample, begin, continues
from speculative_operator.cluster.evidence import look
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import CONFIG_MAP
from speculative_operator.rollout.trial import trials_of

PLAIN = Analysis()


@pytest.mark.parametrize(("seconds", "needed"), [(1800, 400), (0, 200)])
def test_a_guard_takes_half_of_the_chance(seconds: int, needed: float) -> None:
    rollout = Rollout(guard=Guard(duration_seconds=seconds))
    sample = Sample(at=0.0, weight=5, candidate=CANDIDATE, control=CONTROL, pods=(), gateways=())
    evidence = look(
        None,
        sample,
        trial="t",
        analysis=PLAIN,
        trials=trials_of(rollout),
        store=Store(CONFIG_MAP),
        key=("llm", "chat"),
    )
    assert evidence.needed_worse == NEEDED * needed / 200


def test_evidence_for_another_share_of_the_chance_begins_anew() -> None:
    evidence = begin("t", PLAIN, at=0.0, trials=2)
    assert continues(evidence, "t", PLAIN, trials=2)
    assert not continues(evidence, "t", PLAIN, trials=1)
