"""From single requests to a report. Pure: no IO, no clock.

Times are seconds of one monotonic clock, chosen by the caller.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Result(StrEnum):
    """What became of one request."""

    OK = "ok"
    """Status 200 and a whole answer: a finish reason and, streaming, `[DONE]`."""
    FAILED = "failed"
    """No answer, or a status other than 200."""
    CUT = "cut"
    """Status 200, but the answer broke off."""
    ABANDONED = "abandoned"
    """Still running when the generator itself was told to stop and had waited long enough."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request."""

    result: Result
    started_at: float
    ended_at: float
    status: int = 0
    """HTTP status; 0: there was none."""
    revision: str = ""
    """The revision that answered; empty: nobody said."""
    tokens: int = 0
    """Generated tokens as the engine counted them; 0 when the answer broke off before that."""
    chunk_times: tuple[float, ...] = ()
    """When each piece of text came; a piece may hold several tokens."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 99th percentile in seconds, of `count` values; nan of none."""

    count: int
    p50_seconds: float
    p99_seconds: float

    def to_json(self) -> dict[str, Any]:
        """With null for what was not measured: nan is no JSON."""
        if not self.count:
            return {"count": 0, "p50Seconds": None, "p99Seconds": None}
        return {
            "count": self.count,
            "p50Seconds": round(self.p50_seconds, 4),
            "p99Seconds": round(self.p99_seconds, 4),
        }


def spread_of(values: Iterable[float]) -> Spread:
    """Percentiles by the nearest-rank method: always a value that occurred."""
    ordered = sorted(values)

    def rank(share: float) -> float:
        if not ordered:
            return math.nan
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Spread(len(ordered), rank(0.5), rank(0.99))


@dataclass(frozen=True, slots=True)
class Report:
    """What a set of requests came to."""

    requests: int
    results: dict[str, int]
    by_revision: dict[str, dict[str, int]]
    statuses: dict[str, int]
    tokens: int
    seconds: float
    """From the first start to the last end."""
    time_to_first_token: Spread
    inter_chunk: Spread
    """Between two pieces of text; with speculation a piece may hold several tokens."""
    per_token: Spread
    """Of each request: seconds from first to last piece, over its tokens but one."""
    errors: tuple[str, ...] = field(default=())
    """The first few different error texts."""

    @property
    def ok(self) -> int:
        return self.results[Result.OK]

    @property
    def failed(self) -> int:
        return self.results[Result.FAILED]

    @property
    def cut(self) -> int:
        return self.results[Result.CUT]

    @property
    def tokens_per_second(self) -> float:
        """Of all streams together; 0 before anything was measured."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {
            "requests": self.requests,
            **self.results,
            "byRevision": self.by_revision,
            "statuses": self.statuses,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "tokensPerSecond": round(self.tokens_per_second, 2),
            "timeToFirstToken": self.time_to_first_token.to_json(),
            "interChunk": self.inter_chunk.to_json(),
            "perToken": self.per_token.to_json(),
            "errors": list(self.errors),
        }

    def short_line(self) -> str:
        """The results only."""
        return f"{self.ok} ok, {self.failed} failed, {self.cut} cut"

    def line(self) -> str:
        """One line for people."""
        revisions = ", ".join(
            f"{revision or 'nobody'}: {sum(results.values())}"
            for revision, results in sorted(self.by_revision.items())
        )
        text = f"{self.short_line()}, {self.tokens_per_second:.1f} tokens/s"
        if self.time_to_first_token.count:
            text += f", first token {self.time_to_first_token.p50_seconds:.2f} s (median)"
        return text + (f" [{revisions}]" if revisions else "")


def report_of(outcomes: Sequence[Outcome]) -> Report:
    """Counts and percentiles of some requests; percentiles over the ok ones."""
    good = [outcome for outcome in outcomes if outcome.result is Result.OK]
    by_revision: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        counts = by_revision.setdefault(outcome.revision, {})
        counts[outcome.result] = counts.get(outcome.result, 0) + 1
    gaps = [
        later - earlier
        for outcome in good
        for earlier, later in zip(outcome.chunk_times, outcome.chunk_times[1:], strict=False)
    ]
    paces = [
        (o.chunk_times[-1] - o.chunk_times[0]) / (o.tokens - 1)
        for o in good
        if len(o.chunk_times) > 1 and o.tokens > 1
    ]
    counted = Counter(outcome.result for outcome in outcomes)
    errors = dict.fromkeys(outcome.error for outcome in outcomes if outcome.error)
    return Report(
        requests=len(outcomes),
        results={result.value: counted[result] for result in Result},
        by_revision=by_revision,
        statuses=dict(sorted(Counter(str(o.status) for o in outcomes).items())),
        tokens=sum(outcome.tokens for outcome in outcomes),
        seconds=_duration(outcomes),
        time_to_first_token=spread_of(
            o.chunk_times[0] - o.started_at for o in good if o.chunk_times
        ),
        inter_chunk=spread_of(gaps),
        per_token=spread_of(paces),
        errors=tuple(errors)[:5],
    )


def _duration(outcomes: Sequence[Outcome]) -> float:
    if not outcomes:
        return 0.0
    return max(o.ended_at for o in outcomes) - min(o.started_at for o in outcomes)
