"""Readings of the engines' metrics: the samples state in their headers what is right."""

import pathlib

import pytest

from speculative_api.engine_metrics import Histogram, Load, cache_usage, reading

SAMPLES = pathlib.Path(__file__).parent / "samples"


def sample(name):
    return reading((SAMPLES / f"{name}.txt").read_text())


def percentile(histogram: Histogram, share: float) -> float:
    """As Prometheus does it: linear inside the bucket."""
    rank = share * histogram.count
    lower, before = 0.0, 0
    for bound, count in histogram.buckets:
        if count >= rank:
            return lower + (bound - lower) * (rank - before) / (count - before)
        lower, before = bound, count
    raise AssertionError("no bucket holds the rank")


@pytest.mark.parametrize(
    "name, drafts, draft_tokens, accepted, running, waiting",
    [
        ("v0-gauges", None, 4000, 2400, 6, 1),
        ("v1-counters", 5000, 15000, 9000, 9, 2),
        ("v1-dp4-engines", 10500, 31500, 9765, 34, 14),
        ("v1-nan-inf", 0, 0, 0, 0, 0),
        ("v1-reset-1-before", 200, 600, 480, 3, 0),
        ("v1-reset-2-after-lower", 100, 300, 180, 3, 0),
        ("v1-reset-3-after-higher", 900, 2700, 540, 3, 0),
        ("v1-spec-off-both-latency-names", None, None, None, 4, 0),
    ],
)
def test_counters_are_those_of_the_header(name, drafts, draft_tokens, accepted, running, waiting):
    found = sample(name)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (
        drafts,
        draft_tokens,
        accepted,
    )
    assert (found.running, found.waiting) == (running, waiting)


def test_whole_names_are_matched_so_positions_are_not_added():
    assert sample("v1-counters").accepted_tokens == 9000


def test_finished_requests_of_every_reason_are_summed():
    assert sample("v1-counters").requests_finished == 291 + 7 + 2


def test_exponent_notation_is_read():
    assert sample("v1-counters").generated_tokens == 12345678


def test_created_series_are_no_counters():
    assert sample("v1-counters").prompt_tokens == 1_830_000


@pytest.mark.parametrize(
    "name, usage",
    [("v0-gauges", 0.42), ("v1-counters", 0.371), ("v1-dp4-engines", 0.93), ("v1-nan-inf", None)],
)
def test_cache_usage_is_the_fullest_engines_under_old_and_new_name(name, usage):
    assert sample(name).kv_cache_usage == usage


@pytest.mark.parametrize(
    "name, seconds",
    [
        ("v0-gauges", 0.0780),
        ("v1-counters", 0.0467),
        ("v1-dp4-engines", 0.0926),
        ("v1-spec-off-both-latency-names", 0.0639),
    ],
)
def test_inter_token_time_comes_from_one_histogram_summed_over_engines(name, seconds):
    histogram = sample(name).inter_token_seconds
    assert percentile(histogram, 0.95) == pytest.approx(seconds, abs=6e-5)


def test_two_names_for_one_latency_are_not_added():
    assert sample("v1-spec-off-both-latency-names").inter_token_seconds.count == 10000


@pytest.mark.parametrize(
    "name, seconds",
    [("v0-gauges", 0.5), ("v1-counters", 0.15), ("v1-spec-off-both-latency-names", 0.095)],
)
def test_time_to_first_token(name, seconds):
    assert percentile(sample(name).time_to_first_token_seconds, 0.95) == pytest.approx(seconds)


def test_loads_are_kept_per_engine():
    loads = sample("v1-dp4-engines").loads
    assert sorted(loads) == ["0", "1", "2", "3"]
    assert (loads["0"].running, loads["0"].waiting) == (31, 14)
    assert loads["3"].running == 0


def test_a_label_may_hold_braces_spaces_and_quotes():
    found = reading(
        'vllm:num_requests_running{engine="0",model_name="a} \\"b\\", c"} 3\n'
        'vllm:num_requests_waiting{engine="0",model_name="a} \\"b\\", c"} 2\n'
        'vllm:generation_tokens_total{engine="0",model_name="a} \\"b\\", c"} 7 1700000000\n'
    )
    assert found.loads == {"0": Load(running=3, waiting=2, generated=7)}


@pytest.mark.parametrize("text", ["", "\n\n", "vllm:num_requests_running", "<html>busy</html>"])
def test_text_that_says_nothing_is_absent_not_zero(text):
    found = reading(text)
    assert found.running is None
    assert found.generated_tokens is None
    assert found.loads == {}


def test_time_per_token_of_a_request_is_preferred_to_that_of_a_step():
    lines = [
        f'vllm:{name}_bucket{{le="0.1"}} {count}\nvllm:{name}_count {count + 1}\n'
        for name, count in (
            ("inter_token_latency_seconds", 500),
            ("request_time_per_output_token_seconds", 30),
        )
    ]
    found = reading("".join(lines)).output_token_seconds
    assert (found.source, found.count) == ("vllm:request_time_per_output_token_seconds", 31)
    assert found.buckets == ((0.1, 30),)


def test_without_it_the_step_s_time_counts_under_its_own_name():
    found = sample("v1-counters").output_token_seconds
    assert found.source == "vllm:inter_token_latency_seconds"
    assert found.count == sample("v1-counters").inter_token_seconds.count


def test_whole_requests_are_absent_where_the_engine_has_no_such_histogram():
    assert sample("v1-counters").request_seconds is None


def test_a_bucket_without_a_readable_bound_is_left_out():
    text = 'vllm:e2e_request_latency_seconds_bucket{le="?"} 3\n'
    assert reading(text).request_seconds is None


@pytest.mark.parametrize(
    "name, share", [("v1-dp4-engines", 0.93), ("v1-nan-inf", None)], ids=["fullest", "no number"]
)
def test_share_of_the_cache_in_use_is_the_fullest_engines(name, share):
    assert cache_usage(sample(name)) == {"kv_cache_usage": share}
