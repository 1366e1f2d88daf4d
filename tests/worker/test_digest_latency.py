"""A histogram in the digest: rising, finite, or absent."""

import pytest
from tests.worker.a_worker import some_settings

from speculative_api.engine_metrics import reading
from speculative_worker.probes import digest_of
from speculative_worker.state import WorkerState

NAME = "vllm:time_to_first_token_seconds"


def a_histogram(*buckets: tuple[str, str], count: str) -> str:
    lines = [f'{NAME}_bucket{{le="{bound}"}} {value}' for bound, value in buckets]
    return "\n".join([*lines, f"{NAME}_count {count}", ""])


def ttft(text, tmp_path):
    return digest_of(some_settings(tmp_path), WorkerState(0.0), reading(text), sampled_at=1.0).ttft


def test_bounds_are_finite_and_counts_are_cumulative(tmp_path):
    text = a_histogram(("0.1", "3"), ("+Inf", "5"), ("0.5", "4"), count="5")
    found = ttft(text, tmp_path)
    assert found.source == NAME
    assert (found.bounds_seconds, found.counts, found.count) == ((0.1, 0.5), (3, 4), 5)
    assert [found.slow(bound) for bound in (0.1, 0.5, 0.3)] == [2, 1, None]


@pytest.mark.parametrize(
    "text",
    [
        a_histogram(("0.1", "4"), ("0.5", "3"), count="5"),
        a_histogram(("0.1", "6"), count="5"),
        a_histogram(("0.1", "NaN"), count="5"),
        a_histogram(("0.1", "3"), count="NaN"),
        a_histogram(("+Inf", "5"), count="5"),
        "",
    ],
    ids=["falls", "above its count", "NaN", "count NaN", "no finite bucket", "absent"],
)
def test_one_that_contradicts_itself_is_absent(text, tmp_path):
    assert ttft(text, tmp_path) is None
