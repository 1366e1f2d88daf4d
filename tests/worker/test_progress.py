"""The stall rule: work waiting, nothing running, not one token over four samples."""

import pytest

from speculative_api.engine_metrics import Load
from speculative_worker.progress import kept_samples, stall


def samples(*loads):
    return [{"0": Load(*load)} for load in loads]


STUCK = [(0, 3, 50000), (0, 5, 50000), (0, 9, 50000), (0, 12, 50000)]


def test_waiting_work_without_a_token_is_a_stall_by_the_fourth_sample():
    found = stall(samples(*STUCK), period_seconds=15)
    assert found == (
        "engine 0: 12 requests waiting, 0 running, no token generated in 45 s (4 samples)"
    )


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param(STUCK[:3], id="only three samples"),
        pytest.param([(0, 0, 50000)] * 4, id="idle"),
        pytest.param([(1, 0, 50000)] * 3 + [(1, 0, 50003)], id="one long prefill"),
        pytest.param([(1, 4, 50000)] * 4, id="a prefill with others waiting behind it"),
        pytest.param([*STUCK[:3], (0, 12, 50001)], id="a token came"),
        pytest.param([(0, 0, 50000), *STUCK[1:]], id="nothing waited at first"),
    ],
)
def test_is_not_a_stall(loads):
    assert stall(samples(*loads), period_seconds=15) is None


def test_only_the_last_samples_count():
    assert stall(samples((4, 0, 49000), *STUCK), period_seconds=15)
    assert stall(samples(*STUCK, (4, 0, 50400)), period_seconds=15) is None


def test_a_stuck_engine_is_found_behind_a_busy_one():
    both = [{"0": Load(31, 0, 1000 * index), "1": Load(*load)} for index, load in enumerate(STUCK)]
    assert stall(both, period_seconds=15).startswith("engine 1:")


def test_an_engine_that_never_answers_is_stalled():
    assert stall([None] * 4, period_seconds=15) == (
        "the engine's metrics did not answer 4 times in 45 s"
    )


def test_one_missing_answer_proves_nothing():
    assert stall([*samples(*STUCK[:3]), None], period_seconds=15) is None


@pytest.mark.parametrize(
    "loads, hung",
    [
        pytest.param([(2, 1, 50)] * 81, True, id="running for twenty minutes"),
        pytest.param([(2, 1, 50)] * 80, False, id="not yet"),
        pytest.param([(2, 1, 49), *[(2, 1, 50)] * 80], False, id="a token at first"),
        pytest.param([(0, 0, 50), *[(2, 1, 50)] * 80], False, id="idle at first"),
        pytest.param([*[(2, 1, 50)] * 80, (2, 1, 51)], False, id="a token at last"),
        pytest.param([(0, 0, 50)] * 81, False, id="idle"),
    ],
)
def test_requests_that_run_and_never_get_a_token_are_a_stall(loads, hung):
    found = stall(samples(*loads), period_seconds=15)
    says = "engine 0: 2 requests running, no token generated in 1200 s"
    assert found == (says if hung else None)


def test_a_look_without_an_answer_does_not_hide_one_that_hangs():
    looks = [*samples(*[(2, 1, 50)] * 40), None, *samples(*[(2, 1, 50)] * 40)]
    assert stall(looks, period_seconds=15) is not None
    assert stall([None, *samples(*[(2, 1, 50)] * 80)], period_seconds=15) is None
    assert kept_samples(15) == 81
    assert kept_samples(1200) == 4
