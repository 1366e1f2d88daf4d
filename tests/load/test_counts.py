"""The arithmetic of a report."""

import json

import pytest
from e2e.load.counts import Outcome, Result, report_of, spread_of


def ok(start: float, *chunks: float, tokens: int = 4, revision: str = "a") -> Outcome:
    return Outcome(
        Result.OK,
        started_at=start,
        ended_at=chunks[-1],
        status=200,
        revision=revision,
        tokens=tokens,
        chunk_times=chunks,
    )


def test_percentiles_are_values_that_occurred() -> None:
    spread = spread_of([0.4, 0.1, 0.3, 0.2])
    assert (spread.count, spread.p50_seconds, spread.p99_seconds) == (4, 0.2, 0.4)


def test_nothing_measured_is_null_not_zero() -> None:
    report = report_of([])
    assert json.loads(json.dumps(report.to_json()))["interChunk"]["p50Seconds"] is None
    assert report.tokens_per_second == 0


def test_times_are_taken_from_starts_and_chunks() -> None:
    report = report_of([ok(0.0, 1.0, 1.5, 2.5, tokens=7), ok(1.0, 1.25, 3.0, tokens=3)])
    assert report.seconds == 3.0
    assert report.tokens_per_second == pytest.approx(10 / 3)
    assert report.time_to_first_token.p50_seconds == 0.25
    assert report.time_to_first_token.p99_seconds == 1.0
    assert report.inter_chunk.count == 3
    assert report.per_token.p50_seconds == 0.25
    assert report.per_token.p99_seconds == 0.875


def test_results_are_counted_by_revision_and_failures_keep_out_of_the_times() -> None:
    broken = Outcome(Result.CUT, 0.0, 9.0, 200, "b", 1, (0.5,), "broke off")
    refused = Outcome(Result.FAILED, 0.0, 0.1, 503, "", error="503: no")
    report = report_of([ok(0.0, 1.0, 2.0), broken, refused, refused])
    assert (report.ok, report.failed, report.cut, report.requests) == (1, 2, 1, 4)
    assert report.by_revision == {"a": {"ok": 1}, "b": {"cut": 1}, "": {"failed": 2}}
    assert report.statuses == {"200": 2, "503": 2}
    assert report.time_to_first_token.count == 1
    assert report.errors == ("broke off", "503: no")
    assert report.line().startswith("1 ok, 2 failed, 1 cut")
