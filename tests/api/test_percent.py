"""Percentages with decimals: what is taken, and that the API server's pattern says the same."""

import re

import pytest
from pydantic import ValidationError
from tests.api.test_crd import SPEC

from speculative_api.schema import INT_OR_STRING
from speculative_api.v1alpha1 import Analysis, MetricCheck
from speculative_api.v1alpha1.percent import share_of

ANALYSIS = SPEC["properties"]["rollout"]["properties"]["analysis"]["properties"]
METRIC = ANALYSIS["metrics"]["items"]["properties"]
GOOD = {
    "maxPercent": (1, 100, "1", "0.1", "0.0001", "0.10", "2.5", "99.9999", "100", "100.0"),
    "minPercent": (1, 100, "0.5", "100"),
    "minPercentOfStable": (1, 100, "99.5", "9.25"),
    "maxExceedPercent": (1, 99, "0.5", "98.9", "99", "99.00"),
    "maxPercentOfStable": (100, 10_000, "100", "112.5", "9999.9999", "10000"),
}
BAD = {
    "maxPercent": (
        0,
        101,
        -1,
        0.1,
        True,
        "0",
        "0.0",
        "0.00000",
        "101",
        "100.1",
        "-1",
        "1e1",
        "1 %",
        "0.12345",
        ".5",
        "1.",
        "01",
        " 1",
        "1\n",
        "",
        "NaN",
        [1],
    ),
    "minPercentOfStable": ("100.5",),
    "maxExceedPercent": (100, "99.1", "100"),
    "maxPercentOfStable": (99, "99.9", "10000.1", "10001"),
}
OWNER = {
    "maxPercent": {"name": "ErrorRate"},
    "minPercent": {"name": "AcceptanceRate"},
    "minPercentOfStable": {"name": "AcceptanceLength"},
    "maxExceedPercent": {"name": "TimeToFirstToken", "thresholdMilliseconds": 500},
    "maxPercentOfStable": {"name": "TimeToFirstToken", "thresholdMilliseconds": 500},
}


def cases(table):
    return [pytest.param(f, v, id=f"{f} {v!r}") for f, values in table.items() for v in values]


@pytest.mark.parametrize(("field", "value"), cases(GOOD))
def test_it_is_taken_and_stays_as_written(field, value):
    check = MetricCheck.model_validate(OWNER[field] | {field: value})
    assert check.model_dump(by_alias=True, mode="json")[field] == value
    assert share_of(value) == pytest.approx(float(value) / 100)


@pytest.mark.parametrize(("field", "value"), cases(BAD))
def test_it_is_refused_with_the_field_s_name_and_what_to_write(field, value):
    with pytest.raises(ValidationError) as caught:
        MetricCheck.model_validate(OWNER[field] | {field: value})
    (error,) = caught.value.errors()
    assert error["loc"] == (field,)
    assert "a whole number, or one with at most four decimals in quotes" in error["msg"]


@pytest.mark.parametrize(("field", "value"), cases(GOOD) + cases(BAD))
def test_the_schema_says_the_same(field, value):
    node = METRIC[field]
    assert node[INT_OR_STRING] is True
    if isinstance(value, str):
        # Go's $ is the end of the text, as \Z is.
        pattern = node["pattern"].replace("$", r"\Z")
        assert bool(re.search(pattern, value)) is (value in GOOD[field])
        assert len(value) <= node["maxLength"] or value not in GOOD[field]
    elif isinstance(value, int) and not isinstance(value, bool):
        assert (node["minimum"] <= value <= node["maximum"]) is (value in GOOD[field])


@pytest.mark.parametrize(
    ("value", "good"), [(1, True), ("0.1", True), ("50", True), ("50.1", False)]
)
def test_the_chance_of_a_false_rollback_too(value, good):
    try:
        found = Analysis(max_false_rollback_percent=value).max_false_rollback_percent
    except ValidationError:
        found = None
    assert found == (value if good else None)
    pattern = ANALYSIS["maxFalseRollbackPercent"]["pattern"]
    assert bool(re.search(pattern, str(value))) is good


def test_a_float_is_told_how_to_write_it():
    with pytest.raises(ValidationError, match=r'write "0\.1"'):
        MetricCheck.model_validate({"name": "ErrorRate", "maxPercent": 0.1})
