"""Pages of metrics, as prometheus_client writes and reads them, and as nobody should write them."""

import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.worker.a_worker import a_config

from speculative_api.engine_metrics import LOAD_SERIES, SERIES, reading
from speculative_api.metrics_page import series_by_name
from speculative_worker.probes import digest_of
from speculative_worker.settings import Settings
from speculative_worker.state import Phase, WorkerState

SAMPLES = sorted((pathlib.Path(__file__).parent / "samples").glob("*.txt"))
LABELS = some.text(max_size=20)
VALUES = some.floats(min_value=0) | some.just(float("nan"))


def theirs(page):
    """The same by prometheus_client: labels and value of every finite series, by name."""
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if abs(sample.value) < float("inf"):
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def ours(page, names):
    found = series_by_name(page, names)
    return {name: [(dict(one.labels), one.value) for one in each] for name, each in found.items()}


@settings(max_examples=20)
@given(some.dictionaries(some.tuples(LABELS, LABELS), VALUES, max_size=4), VALUES)
def test_whatever_prometheus_client_writes_is_read_as_by_its_own_parser(gauges, seconds):
    registry = CollectorRegistry()
    gauge = Gauge("vllm:a", "A { page }.\nOf two lines.", ["engine", "model"], registry=registry)
    for labels, value in gauges.items():
        gauge.labels(*labels).set(value)
    Counter("vllm:b", "B", registry=registry).inc(3)
    Histogram("vllm:c", "C", buckets=(0.1, 2.0), registry=registry).observe(seconds)
    page = generate_latest(registry).decode()
    expected = theirs(page)
    assert ours(page, set(expected)) == expected
    assert ours(page, {"vllm:b_total"}) == {"vllm:b_total": [({}, 3.0)]}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_are_read_as_by_prometheus_client(path):
    page = path.read_text()
    expected = theirs(page)
    assert ours(page, set(expected)) == expected


@pytest.mark.parametrize(
    "line, found",
    [
        ("a 1", [({}, 1.0)]),
        ("  a\t1  1700000000 ", [({}, 1.0)]),
        ('a {b="c",} 1\r', [({"b": "c"}, 1.0)]),
        ('a { b = "} 2" } 1', [({"b": "} 2"}, 1.0)]),
        ('a{b="\\\\n\\n\\""} 1', [({"b": '\\n\n"'}, 1.0)]),
        ('a{b="\x0b\x1c\u2028"} 1', [({"b": "\x0b\x1c\u2028"}, 1.0)]),
        ("a", None),
        ("a{", None),
        ("a{}", None),
        ("a}{ 1", None),
        ('a{b="c} 1', None),
        ('a{b="c"}} 1', None),
        ("a one", None),
        ("a 1 2 3", None),
        ("a NaN", None),
        ("a -Inf", None),
        ("ab 1", None),
        ("#a 1", None),
    ],
)
def test_a_line_is_read_or_absent(line, found):
    assert ours(line, {"a"}) == ({} if found is None else {"a": found})


NAMES = some.sampled_from(sorted(SERIES))
HOSTILE_VALUES = some.one_of(
    some.floats().map(repr),
    some.sampled_from(["1e308", "-1e308", "1e999", "9" * 400, "NaN", "+Inf", "", "{", "0x1p3"]),
)
HOSTILE_LABELS = some.sampled_from(
    ["", "{", "}", '{le="1e308"}', '{le="+Inf"}', '{le="-Inf"}', '{le="x"}', '{engine="1"}', '{"']
)
HOSTILE_LINES = some.one_of(
    some.text(max_size=30),
    some.builds(
        lambda *words: "".join((words[0], words[1], " ", words[2])),
        NAMES,
        HOSTILE_LABELS,
        HOSTILE_VALUES,
    ),
)


@settings(max_examples=50)
@given(some.lists(HOSTILE_LINES, max_size=12).map("\n".join))
def test_no_page_is_an_error(page):
    found = reading(page)
    digest_of(Settings(a_config()), WorkerState(0.0), found, sampled_at=1.0)


def test_figures_that_can_not_be_true_are_absent_and_the_rest_stands():
    running = 'vllm:num_requests_running{engine="%d"} 1e308\n'
    found = reading(running % 0 + running % 1 + 'vllm:num_requests_waiting{engine="0"} 1\n')
    state = WorkerState(0.0, phase=Phase.SERVING, engine_alive=True)
    digest = digest_of(Settings(a_config()), state, found, sampled_at=1.0)
    assert (digest.ready, digest.running, digest.waiting) == (True, None, None)


def test_few_series_say_the_load():
    assert set(LOAD_SERIES) < set(SERIES)
    page = SAMPLES[1].read_text()
    few = "\n".join(line for line in page.splitlines() if line.partition("{")[0] in LOAD_SERIES)
    assert reading(few).loads == reading(page).loads != {}
