"""What a canary is judged on."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import MetricLabel, Quantity, SignedQuantity
from speculative_api.v1alpha1.percent import (
    PercentFrom100,
    PercentTo50,
    PercentTo99,
    PercentTo100,
)


class MetricName(StrEnum):
    """What a canary is judged on."""

    ACCEPTANCE_LENGTH = "AcceptanceLength"
    ACCEPTANCE_RATE = "AcceptanceRate"
    ERROR_RATE = "ErrorRate"
    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105
    INTER_TOKEN_LATENCY = "InterTokenLatency"  # noqa: S105
    END_TO_END_LATENCY = "EndToEndLatency"
    TOKENS_PER_SECOND = "TokensPerSecond"
    RESTARTS = "Restarts"


_NAMES = ", ".join(f"'{name}'" for name in MetricName)
_IS_LATENCY = "self.name in ['TimeToFirstToken', 'InterTokenLatency', 'EndToEndLatency']"


class PrometheusQuery(Model):
    """A number that Prometheus is asked for, and what it may be."""

    model_config = configuration(
        rule(
            "has(self.min) || has(self.max)",
            "a query needs min, max or both: without a bound nothing is judged",
        )
    )
    query: str = Field(
        min_length=1,
        max_length=4096,
        description="PromQL that yields one number. `{{canary}}`, `{{stable}}`, `{{name}}` and "
        "`{{namespace}}` stand for the hashes of the revisions and the name and namespace of the "
        "resource; pods are called name-hash-….",
    )
    min: SignedQuantity | None = Field(
        default=None, description="The number is at least this. No such bound when absent."
    )
    max: SignedQuantity | None = Field(
        default=None, description="The number is at most this. No such bound when absent."
    )


class MetricCheck(Model):
    """One metric and its limit."""

    model_config = configuration(
        rule(
            f"has(self.prometheus) || self.name in [{_NAMES}]",
            f"name is one of {', '.join(MetricName)}; any other one needs prometheus.query",
            ".name",
        ),
        rule(
            f"!has(self.prometheus) || !(self.name in [{_NAMES}])",
            "a query has a name of its own, not that of a metric that is measured anyway",
            ".name",
        ),
        rule(
            "self.name in ['AcceptanceLength', 'AcceptanceRate', 'TokensPerSecond'] || "
            "!has(self.minPercentOfStable)",
            "minPercentOfStable belongs to AcceptanceLength, AcceptanceRate and TokensPerSecond: "
            "use maxPercent for ErrorRate",
            ".minPercentOfStable",
        ),
        rule(
            "self.name == 'AcceptanceRate' || !has(self.minPercent)",
            "minPercent belongs to AcceptanceRate",
            ".minPercent",
        ),
        rule(
            "self.name in ['AcceptanceLength', 'TokensPerSecond'] || !has(self.min)",
            "min belongs to AcceptanceLength (tokens per step) and TokensPerSecond (tokens per "
            "second and pod)",
            ".min",
        ),
        rule(
            "self.name != 'AcceptanceLength' || !has(self.min) || !self.min.startsWith('0')",
            "min of AcceptanceLength counts the token that every step yields: it is at least 1",
            ".min",
        ),
        rule(
            "self.name == 'Restarts' || !has(self.maxRestarts)",
            "maxRestarts belongs to Restarts",
            ".maxRestarts",
        ),
        rule(
            "self.name == 'ErrorRate' || !has(self.maxPercent)",
            "maxPercent belongs to ErrorRate: use minPercentOfStable for AcceptanceLength",
            ".maxPercent",
        ),
        rule(
            f"({_IS_LATENCY}) == has(self.thresholdMilliseconds)",
            "TimeToFirstToken, InterTokenLatency and EndToEndLatency need thresholdMilliseconds, "
            "and no other metric has it",
            ".thresholdMilliseconds",
        ),
        rule(
            f"({_IS_LATENCY}) || (!has(self.maxExceedPercent) && !has(self.maxPercentOfStable))",
            "maxExceedPercent and maxPercentOfStable belong to TimeToFirstToken, "
            "InterTokenLatency and EndToEndLatency",
            ".name",
        ),
    )
    name: MetricLabel = Field(
        description="Of a query: a name of its own, lower case. AcceptanceLength: accepted draft "
        "tokens per decoding step. ErrorRate: share "
        "of requests that the gateway saw fail. TimeToFirstToken, InterTokenLatency (per request "
        "where the engine reports it so, else per step) and EndToEndLatency: share of those "
        "slower than thresholdMilliseconds. AcceptanceRate: accepted of drafted tokens, between "
        "revisions of the same method and numSpeculativeTokens. TokensPerSecond: generated tokens "
        "per pod, at like load. Restarts: container restarts of the canary's pods."
    )
    min_percent_of_stable: PercentTo100 | None = Field(
        default=None,
        description="AcceptanceLength (accepted tokens per step), AcceptanceRate and "
        "TokensPerSecond: at least this percent of stable's over the same time. Default 90.",
    )
    min_percent: PercentTo100 | None = Field(
        default=None,
        description="AcceptanceRate only: accepted draft tokens, at least this percent, whatever "
        "stable does. No such bound when absent.",
    )
    min: Quantity | None = Field(
        default=None,
        description="AcceptanceLength: tokens per step, 1 and more; TokensPerSecond: tokens per "
        "second of a pod that has requests waiting. At least this, whatever stable does. No such "
        "bound when absent.",
    )
    max_percent: PercentTo100 | None = Field(
        default=None,
        description="ErrorRate only: failing requests, at most this percent, or twice stable's "
        'share if that is more; the same for answers of class 4xx. With decimals in quotes: "0.1". '
        "Default 1.",
    )
    max_restarts: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Restarts only: container restarts of the canary's pods during the rollout, at "
        "most this many, or twice as many per pod as stable if that is more. Default 0.",
    )
    threshold_milliseconds: int | None = Field(
        default=None,
        ge=1,
        le=3_600_000,
        description="Latencies only, and needed there: what is longer counts as slow. Rounded up "
        "to a bucket that the engines of both revisions have. Best where 1 to 20 percent of "
        "stable's are slow.",
    )
    max_exceed_percent: PercentTo99 | None = Field(
        default=None,
        description="Latencies only: slow ones, at most this percent, whatever stable does. No "
        "such bound when absent.",
    )
    max_percent_of_stable: PercentFrom100 | None = Field(
        default=None,
        description="Latencies only: the share of slow ones, at most this percent of stable's "
        "over the same time. Default 150.",
    )
    prometheus: PrometheusQuery | None = Field(
        default=None,
        description="A query with bounds, judged by counting: three numbers in a row beyond a "
        "bound fail the canary. Needs analysis.prometheus.",
    )
    dry_run: bool | None = Field(
        default=None,
        description="Judged and shown, never acted on. Default false; true for EndToEndLatency, "
        "which grows with the length of answers.",
    )


class SecretKey(Model):
    """One key of a Secret in the namespace of the resource."""

    name: str = Field(
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        max_length=253,
        description="The Secret. The operator may read it only if a Role says so "
        "(docs/analysis.md).",
    )
    key: str = Field(
        default="token",
        pattern=r"^[-._a-zA-Z0-9]+$",
        max_length=253,
        description="The key in it. Default token.",
    )


class AnalysisSource(StrEnum):
    """Where the figures of the engines come from."""

    WORKERS = "Workers"
    PROMETHEUS = "Prometheus"


class PrometheusServer(Model):
    """Where queries are asked."""

    address: str = Field(
        pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?$",
        max_length=512,
        description="Base of its HTTP API, without /api/v1. No redirect is followed.",
    )
    timeout_seconds: int = Field(
        default=5, ge=1, le=30, description="Longest wait for an answer. Default 5."
    )
    bearer_token_secret: SecretKey | None = Field(
        default=None,
        description="Sent as a bearer token; read again at least every minute. None when absent.",
    )


def _default_metrics() -> list[MetricCheck]:
    return [
        MetricCheck(name=MetricName.ACCEPTANCE_LENGTH),
        MetricCheck(name=MetricName.ERROR_RATE),
    ]


class Analysis(Model):
    """How a canary is judged against stable."""

    model_config = configuration(
        rule(
            "has(self.prometheus) || !has(self.metrics) || "
            "!self.metrics.exists(m, has(m.prometheus))",
            "metrics with a query need to know whom to ask: add analysis.prometheus.address",
            ".metrics",
        ),
        rule(
            "self.source != 'Prometheus' || has(self.prometheus)",
            "source Prometheus needs to know whom to ask: add analysis.prometheus.address",
            ".source",
        ),
    )
    period_seconds: int = Field(
        default=5, ge=1, le=300, description="Time between looks. Default 5."
    )
    max_false_rollback_percent: PercentTo50 = Field(
        default=1,
        description="Chance that a canary within every limit is rolled back all the same, for the "
        "whole rollout with all metrics and looks together. Default 1.",
    )
    metrics: list[MetricCheck] = Field(
        default_factory=_default_metrics,
        min_length=1,
        max_length=8,
        description="What is judged. Default: AcceptanceLength and ErrorRate.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    prometheus: PrometheusServer | None = Field(
        default=None,
        description="The server for metrics with a query, and for source Prometheus.",
    )
    source: AnalysisSource = Field(
        default=AnalysisSource.WORKERS,
        description="Where the figures of the engines come from. Workers: every pod is asked. "
        "Prometheus: that is asked what it scraped of the engines, in one query, or three where "
        "a latency is judged, whatever the number of pods, at most every 15 seconds; for 1,000 "
        "pods and more. Its series need the labels namespace and pod. What gateways "
        "count is always asked of them. Default Workers.",
    )
