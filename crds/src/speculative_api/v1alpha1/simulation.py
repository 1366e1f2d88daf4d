"""A simulated engine, and what goes wrong with it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import Percent


class MetricNames(StrEnum):
    """Generations of vLLM's metric names."""

    V1 = "V1"
    V0 = "V0"


class FaultKind(StrEnum):
    """What can go wrong with a simulated engine."""

    CRASH = "Crash"
    GPU_OUT_OF_MEMORY = "GpuOutOfMemory"
    HOST_OUT_OF_MEMORY = "HostOutOfMemory"
    STALL = "Stall"
    ERRORS = "Errors"
    ACCEPTANCE_DECLINE = "AcceptanceDecline"
    COUNTER_RESET = "CounterReset"
    EMPTY_METRICS = "EmptyMetrics"
    HTML_METRICS = "HtmlMetrics"
    WRONG_TOKENS = "WrongTokens"
    REFUSE_PARAMETER = "RefuseParameter"
    SLOW = "Slow"


class CrashSample(StrEnum):
    """Last words of engines that ended."""

    VOCABULARY = "Vocabulary"
    ARGUMENTS = "Arguments"
    GPU_MEMORY = "GpuMemory"
    CACHE_MEMORY = "CacheMemory"
    GATED = "Gated"
    NO_WEIGHTS = "NoWeights"
    HUB_AWAY = "HubAway"
    DRAFT = "Draft"


class StepMicroseconds(Model):
    """Time of one step: base + draft x k + token x batch x (k + 1)."""

    base: int = Field(
        default=20_000, ge=0, le=10_000_000, description="Whatever the batch. Default 20000."
    )
    draft: int = Field(
        default=2_000,
        ge=0,
        le=10_000_000,
        description="For each token drafted in turn. Default 2000.",
    )
    token: int = Field(
        default=200,
        ge=0,
        le=10_000_000,
        description="For each token verified, over the whole batch. Default 200.",
    )


class Fault(Model):
    """One fault of a simulated engine."""

    model_config = configuration(
        rule(
            "!(self.kind in ['Errors', 'AcceptanceDecline', 'WrongTokens', 'Slow']) || "
            "has(self.percent)",
            "this kind of fault needs percent: say how many it hits, or how far it goes",
            ".percent",
        ),
        rule(
            "self.kind != 'RefuseParameter' || has(self.parameter)",
            "RefuseParameter needs parameter, the name of a request's field",
            ".parameter",
        ),
        rule(
            "self.kind == 'Crash' || (!has(self.text) && !has(self.sample))",
            "text and sample belong to kind Crash: remove them or set kind: Crash",
            ".kind",
        ),
    )
    kind: FaultKind = Field(
        description="Crash (prints text or sample, exits with 1, or 2 for Arguments), "
        "GpuOutOfMemory (CUDA's words, exit 1), HostOutOfMemory (killed without a word, 137), "
        "Stall (generates nothing, /health stays good), Errors (percent of requests get 500), "
        "AcceptanceDecline (to percent, over overSeconds), CounterReset (counters begin anew), "
        "EmptyMetrics, HtmlMetrics (what /metrics answers), WrongTokens (percent of tokens), "
        "RefuseParameter (400 for requests that have it), Slow (percent of a step's time)."
    )
    after_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="When it begins, from the engine's start; 0 is at once. Default 0.",
    )
    percent: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="Share of requests or tokens hit, the acceptance reached, or a step's time "
        "in percent of what it was.",
    )
    over_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="Time that AcceptanceDecline takes; 0 is at once. Default 0.",
    )
    parameter: str | None = Field(
        default=None, max_length=64, min_length=1, description="The parameter that is refused."
    )
    text: str | None = Field(
        default=None, max_length=2048, min_length=1, description="Last words of a Crash."
    )
    sample: CrashSample | None = Field(
        default=None, description="Last words of a Crash, taken from engines that ended so."
    )


class Simulation(Model):
    """A simulated engine in place of vLLM: for rehearsing rollouts without GPUs.

    The worker, its probes, metrics names and API stay the same; the text it
    answers is filler.
    """

    acceptance_percent: Percent = Field(
        default=70, description="Share of draft tokens that is accepted. Default 70."
    )
    acceptance_percent_by_position: list[Percent] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="In place of acceptancePercent: for each position of a draft, the chance that "
        "its token is accepted if those before it were. The last one goes on.",
    )
    tokens_per_second: int = Field(
        default=50, ge=1, le=100_000, description="Generated tokens per stream. Default 50."
    )
    step_microseconds: StepMicroseconds | None = Field(
        default=None,
        description="In place of tokensPerSecond: a step's time follows batch size and draft "
        "length, as a real engine's does.",
    )
    load_milliseconds: int = Field(
        default=500, ge=0, le=3_600_000, description="Time until the engine answers. Default 500."
    )
    metric_names: MetricNames = Field(
        default=MetricNames.V1,
        description="Names of the engine's own metrics: V1 (vLLM 0.32.0) or V0 (its first "
        "generation). Default V1.",
    )
    error_percent: Percent = Field(
        default=0, description="Share of requests answered with status 500. Default 0."
    )
    crash_text: str = Field(
        default="",
        max_length=2048,
        description="When set, the engine prints this text instead of starting and exits with 1.",
    )
    stall_after_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="When above 0, the engine stops generating this long after its start while "
        "its health endpoint stays good. Default 0.",
    )
    faults: Annotated[list[Fault], Field(max_length=16)] = Field(
        default_factory=list,
        description="What goes wrong with the engine, and when. At run time the same objects are "
        "posted to /simulation/faults from inside the pod.",
    )
