"""The table of engine versions: its shape, and what it says of versions that people run."""

import pytest

from speculative_api import engine_tables as tables
from speculative_api.v1alpha1 import Method

KINDS = {"boolean", "integer", "number", "text", "list", "map"}
LISTS = [
    *("methods", "aliases", "keys", "choices", "lossy_keys", "key_fields", "misnamed_keys"),
    *("flags", "refused_flags", "combinations", "metrics"),
]


@pytest.mark.parametrize("name", LISTS)
def test_every_row_has_a_source_and_a_range_that_holds_somewhere(name):
    known = {tables.series_of(version) for version in tables.known_versions()}
    for row in tables.table()[name]:
        assert row["source"], row
        since = tables.series_of(row.get("since", "0.6"))
        until = tables.series_of(row.get("until", "1000.0"))
        assert any(since <= series < until for series in known), row


def test_no_row_is_said_twice():
    for name in LISTS:
        rows = [str(row) for row in tables.table()[name]]
        assert len(rows) == len(set(rows)), name


def test_rows_of_one_meaning_do_not_overlap():
    for version in tables.known_versions():
        for name, key in (("methods", "method"), ("keys", "key"), ("flags", "flag")):
            series = tables.series_of(version)
            found = [
                row[key]
                for row in tables.table()[name]
                if tables.series_of(row["since"]) <= series
                and series < tables.series_of(row.get("until", "1000.0"))
            ]
            assert len(found) == len(set(found)), (version, name)


def test_the_table_speaks_of_methods_that_the_resource_has():
    methods = {method.value for method in Method}
    content = tables.table()
    assert {row["method"] for row in content["methods"]} == methods - {"None"}
    for row in content["combinations"]:
        assert set(row["methods"]) <= methods
        assert row["verdict"] in ("warn", "refuse")
    for row in content["keys"]:
        assert set(row.get("methods", ())) <= methods
        assert row["kind"] in KINDS


@pytest.mark.parametrize(
    "version, methods",
    [
        ("0.6.6", {"DraftModel", "NGram", "Eagle", "Medusa", "MLPSpeculator"}),
        ("0.12.0", {"NGram", "Suffix", "Eagle", "Eagle3", "MTP", "Medusa"}),
        (
            "0.32.0",
            {method.value for method in Method} - {"None", "MLPSpeculator"},
        ),
        (
            "0.33.0",
            {method.value for method in Method} - {"None", "MLPSpeculator", "Medusa"},
        ),
    ],
)
def test_methods_of_a_version(version, methods):
    assert tables.facts_of(version).methods.keys() == methods


@pytest.mark.parametrize(
    "version, known",
    [("0.32.0", True), ("0.32.1", True), ("0.7.3", False), ("0.99.0", False), ("latest", False)],
)
def test_known_versions(version, known):
    assert tables.is_known(version) is known


def test_an_unknown_version_gets_the_rows_of_the_nearest_older_one():
    assert tables.facts_of("0.7.3").series == (0, 6)
    assert tables.facts_of("0.99.0").series == (0, 33)
    assert tables.facts_of("nightly").series == (0, 33)


def test_metrics_are_tried_newest_first_whatever_the_version():
    names = tables.all_metrics()
    assert names["kv_cache_usage"] == ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert tables.facts_of("0.32.0").metrics["kv_cache_usage"] == ("vllm:kv_cache_usage_perc",)
