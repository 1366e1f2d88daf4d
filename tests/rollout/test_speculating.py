"""SpeculationActive: drafting is proved, not configured; an adaptive length may go to 0."""

import pytest
from tests.builders import a_digest, a_pod, a_snapshot, a_status, some_words

from speculative_operator.rollout.speculating import LONG_ZERO_SECONDS, speculating

STABLE = some_words()
BUSY = {"generated_tokens": 500, "draft_tokens": 300, "accepted_tokens": 100}
SILENT = {"generated_tokens": 500, "draft_tokens": 0, "accepted_tokens": 0}
NEVER = {"generated_tokens": 0, "draft_tokens": 0, "accepted_tokens": 0}


def found(*digests):
    pods = [
        a_pod(STABLE, number=number, digest=a_digest(STABLE, pod=f"chat-{number}", **fields))
        for number, fields in enumerate(digests)
    ]
    return speculating(a_snapshot(status=a_status(stable=STABLE), pods=pods))[1:]


def adaptive(**state):
    return {"adaptive": {"mode": "Online", **state}}


@pytest.mark.parametrize(
    "digests, state, reason",
    [
        pytest.param([], "Unknown", "NotMeasured", id="no answer"),
        pytest.param([{"method": "None", **SILENT}], "Unknown", "NotConfigured", id="None"),
        pytest.param([NEVER], "Unknown", "NotMeasured", id="nothing generated"),
        pytest.param([SILENT], "False", "NotDrafting", id="configured and silent"),
        pytest.param([BUSY], "True", "Drafting", id="drafting"),
        pytest.param([BUSY | adaptive(tokens=3)], "True", "Drafting", id="adaptive, drafting"),
        pytest.param([BUSY | adaptive(tokens=0)], "True", "ReducedToZero", id="adaptive, at 0"),
        pytest.param(
            [BUSY | adaptive(tokens=0), BUSY | adaptive(tokens=2)],
            "True",
            "Drafting",
            id="adaptive, one pod at 0",
        ),
        pytest.param([BUSY | adaptive()], "True", "Drafting", id="adaptive, length unknown"),
        pytest.param([SILENT | adaptive(tokens=0)], "False", "NotDrafting", id="never proved"),
        pytest.param(
            [SILENT | {"adaptive": {"mode": "BatchSize"}}],
            "Unknown",
            "NotMeasured",
            id="a schedule that may be 0",
        ),
        pytest.param(
            [BUSY | adaptive(tokens=0, obeyed=False)], "False", "NotDrafting", id="not obeyed"
        ),
    ],
)
def test_what_the_digests_prove(digests, state, reason):
    assert found(*digests)[:2] == (state, reason)


@pytest.mark.parametrize(
    "seconds, recommends",
    [
        ((LONG_ZERO_SECONDS, LONG_ZERO_SECONDS), True),
        ((LONG_ZERO_SECONDS, 10.0), False),
        ((None, None), False),
    ],
)
def test_a_length_that_stays_0_everywhere_is_worth_a_recommendation(seconds, recommends):
    digests = [BUSY | adaptive(tokens=0, zero_seconds=each) for each in seconds]
    message = found(*digests)[2]
    assert ("native lane" in message) == recommends
    assert "plain decoding is faster" in message


def test_the_recommendation_does_not_change_from_look_to_look():
    messages = {
        found(BUSY | adaptive(tokens=0, zero_seconds=LONG_ZERO_SECONDS + more))[2]
        for more in (0, 10, 5000)
    }
    assert len(messages) == 1
