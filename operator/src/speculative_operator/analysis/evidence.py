"""What is remembered of one trial, and its JSON: bit by bit what it was.

`verdict` makes, feeds and reads it; nobody else looks inside. An operator that
starts anew goes on from the JSON.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from speculative_operator.analysis.bounds import Floors
from speculative_operator.analysis.failing import FailingRun
from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.kinds import KindEvidence
from speculative_operator.analysis.latency import LatencyEvidence
from speculative_operator.analysis.queried import QueryEvidence
from speculative_operator.analysis.restarts import RestartEvidence
from speculative_operator.analysis.sequential import MeanEvidence
from speculative_operator.analysis.speed import SpeedEvidence
from speculative_operator.analysis.windows import Window

SCHEMA: Final = 3

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is remembered of a trial. Limits and thresholds are frozen at its start."""

    trial: str
    began_at: float
    metrics: tuple[str, ...]
    needed_worse: float
    workers: Window
    gateways: Window
    acceptance: MeanEvidence
    errors: ErrorEvidence
    client_errors: ErrorEvidence
    """4xx: a share that only the candidate shows counts as errors too."""
    least_acceptance: Floors
    """The absolute bound of AcceptanceLength, if there is one."""
    kinds: tuple[KindEvidence, ...]
    """Errors of kinds of requests, from the first request of each on."""
    failing: FailingRun
    """The hard guard's: all requests of the candidate fail."""
    carried: tuple[int, int] = (0, 0)
    """Failures (candidate, control) whose answer began in an earlier block: a stream that is cut
    counts as a response when it begins and as a failure when it breaks."""
    methods: tuple[str, str] = ("", "")
    """Last seen method of candidate and control; empty: no digest yet."""
    rate: Floors | None = None
    rate_missing: str = ""
    """Why AcceptanceRate can't be compared at the moment; empty: it can."""
    speed: SpeedEvidence | None = None
    restarts: RestartEvidence | None = None
    queries: tuple[QueryEvidence, ...] = ()
    sticky: bool = False
    """Sessions stay with a revision, so that one client's faults are not spread by chance."""
    latencies: tuple[LatencyEvidence, ...] = ()
    dry_run: tuple[str, ...] = ()
    """Metrics that are judged and shown, and never acted on."""
    alone: bool = False
    """There is no control: only absolute bounds are judged."""
    weight: int = 0
    """Percent of users' requests, or of copies, at the last look; only shown."""
    failed: tuple[str, ...] = ()
    """Metrics that reached `needed_worse`; they stay failed and take no more data."""
    problem: str = ""
    """Why the engines' figures can't be had at the last look; not kept, the next look knows."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` of a parsed dump gives back an equal value."""
        return {
            "schema": SCHEMA,
            "trial": self.trial,
            "beganAt": self.began_at,
            "metrics": list(self.metrics),
            "neededWorse": self.needed_worse,
            "workers": self.workers.to_json(),
            "gateways": self.gateways.to_json(),
            "acceptance": self.acceptance.to_json(),
            "errors": self.errors.to_json(),
            "clientErrors": self.client_errors.to_json(),
            "leastAcceptance": self.least_acceptance.to_json(),
            "kinds": [kind.to_json() for kind in self.kinds],
            "failing": self.failing.to_json(),
            "carried": self.carried,
            "methods": self.methods,
            "rate": self.rate and self.rate.to_json(),
            "rateMissing": self.rate_missing,
            "speed": self.speed and self.speed.to_json(),
            "restarts": self.restarts and self.restarts.to_json(),
            "queries": [found.to_json() for found in self.queries],
            "sticky": self.sticky,
            "latencies": [found.to_json() for found in self.latencies],
            "dryRun": self.dry_run,
            "alone": self.alone,
            "weight": self.weight,
            "failed": self.failed,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Evidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"evidence of schema {data['schema']}, {SCHEMA} is known")
        return cls(
            trial=data["trial"],
            began_at=data["beganAt"],
            metrics=tuple(data["metrics"]),
            needed_worse=data["neededWorse"],
            workers=Window.from_json(data["workers"]),
            gateways=Window.from_json(data["gateways"]),
            acceptance=MeanEvidence.from_json(data["acceptance"]),
            errors=ErrorEvidence.from_json(data["errors"]),
            client_errors=ErrorEvidence.from_json(data["clientErrors"]),
            least_acceptance=Floors.from_json(data["leastAcceptance"]),
            kinds=tuple(KindEvidence.from_json(kind) for kind in data["kinds"]),
            failing=FailingRun.from_json(data["failing"]),
            carried=(data["carried"][0], data["carried"][1]),
            methods=(data["methods"][0], data["methods"][1]),
            rate=_maybe(Floors.from_json, data["rate"]),
            rate_missing=data["rateMissing"],
            speed=_maybe(SpeedEvidence.from_json, data["speed"]),
            restarts=_maybe(RestartEvidence.from_json, data["restarts"]),
            queries=tuple(QueryEvidence.from_json(x) for x in data["queries"]),
            sticky=data["sticky"],
            latencies=tuple(LatencyEvidence.from_json(x) for x in data["latencies"]),
            dry_run=tuple(data["dryRun"]),
            alone=data["alone"],
            weight=data["weight"],
            failed=tuple(data["failed"]),
        )


def _maybe(read: Callable[[dict[str, Any]], Part], data: dict[str, Any] | None) -> Part | None:
    return None if data is None else read(data)
