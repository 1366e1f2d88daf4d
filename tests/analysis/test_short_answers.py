"""Answers that end inside a draft: engines count all of it as accepted.

vLLM 0.32 asked for 12 tokens with 4 draft tokens a step, copying prompts (the demo's): 12
generated, 12 accepted, 3 drafts, in 4 steps. Generated less accepted are no steps at all.
"""

import pytest
from tests.analysis.looks import CONTROL, Engine, Trial

from speculative_api.worker import Digest
from speculative_operator.analysis import assess
from speculative_operator.decision import MetricVerdict, Outcome

COPIED = (0, 12, 12)
NOTHING_DRAFTED = (12, 0, 0)
PARTLY = (7, 5, 8)
"""(generated less accepted, accepted, drafted) of one answer of 12 tokens."""
ROUND = (COPIED, COPIED, NOTHING_DRAFTED, COPIED, COPIED, PARTLY, COPIED, COPIED)


def judged(trial: Trial) -> MetricVerdict:
    return assess(trial.evidence).metrics[0]


def useless_draft_beside_copies(*, blocks: int) -> Trial:
    """Three answers of stable a block, in the order in which they are asked for."""
    trial = Trial()
    for block in range(blocks):
        for answer in range(3):
            steps, accepted, drafted = ROUND[(3 * block + answer) % len(ROUND)]
            trial.old.serve(1, steps, accepted, drafted)
        trial.new.serve(4, 48, 0, drafted=4 * 44)
        trial.look()
    return trial


def test_a_useless_draft_is_called_after_a_few_blocks():
    trial = useless_draft_beside_copies(blocks=6)
    assert judged(trial).outcome == Outcome.FAILED


def test_every_block_counts_also_one_of_copies_alone():
    assert judged(useless_draft_beside_copies(blocks=4)).blocks == 4


def test_lengths_are_no_longer_than_a_step_can_be():
    trial = Trial()
    for _ in range(3):
        for engine in (trial.new, trial.old):
            engine.serve(4, 0, 48, drafted=48)
        trial.look()
    assert "5.00 tokens per step on the candidate, 5.00 on stable" in judged(trial).message


@pytest.mark.parametrize("uncounted", ["k", "drafted"])
def test_steps_are_known_by_drafts_only_where_engines_say_what_they_draft(uncounted):
    trial = Trial()
    for _ in range(4):
        trial.new.serve(4, 48, 0)
        trial.old.serve(4, 16, 32, drafted=4 * 40)
        setattr(trial.old, uncounted, None)
        trial.look()
    assert "3.00 on stable" in judged(trial).message


def test_the_same_answers_point_to_nothing():
    trial = Trial()
    for block in range(60):
        for answer in range(3):
            place = 3 * block + answer
            for engine, ahead in ((trial.new, 5), (trial.old, 0)):
                steps, accepted, drafted = ROUND[(place + ahead) % len(ROUND)]
                engine.serve(1, steps, accepted, drafted)
        trial.look()
    assert judged(trial).worse < 20
    assert not judged(trial).outside_limit


@pytest.mark.parametrize(
    ("generated", "accepted", "drafts", "steps"),
    [
        pytest.param(120, 90, 25, 30, id="answers that end outside a draft"),
        pytest.param(12, 12, 3, 3, id="inside one"),
        pytest.param(12, 14, 4, 4, id="more accepted than generated"),
        pytest.param(12, 6, None, 6, id="drafts not counted"),
        pytest.param(None, 6, 3, None, id="tokens not counted"),
        pytest.param(12, None, 3, None, id="accepted ones not counted"),
    ],
)
def test_steps_of_a_digest(generated, accepted, drafts, steps):
    digest = Engine(CONTROL, "stable").pod(1.0).digest
    assert isinstance(digest, Digest)
    counted = {"generated_tokens": generated, "accepted_tokens": accepted, "drafts": drafts}
    assert digest.model_copy(update=counted).steps == steps
