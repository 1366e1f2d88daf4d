"""What the operator tells a worker, and what a worker answers.

The operator renders `WorkerConfig` as JSON into the environment variable
`SPECULATIVE_WORKER_CONFIG` of a worker pod; the worker serves `Digest` on
`labels.WORKER_PORT` at `/digest` and ends with a `Termination`.
Unknown fields are ignored on reading, so that either side may be the older.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

CONFIG_VARIABLE: Final = "SPECULATIVE_WORKER_CONFIG"
CLEAN_UP_VARIABLE: Final = "SPECULATIVE_CACHE_CLEAN_UP"
ADDRESS_VARIABLE: Final = "VLLM_HOST_IP"
"""The engine's own: the address of this pod, by which those of its group reach it."""
LONG_CONTEXT_VARIABLE: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""The engine's own: lengths beyond the model's limit are meant (vllm/envs.py)."""
TERMINATION_PATH: Final = "/dev/termination-log"
ENDPOINTS_FOLLOW_SECONDS: Final = 10
"""How long a stopping worker stays up, not ready, so that endpoints can follow."""
ENGINE_EXIT_SECONDS: Final = 30
"""What the engine itself may take to exit after its drain."""


class _Lenient(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )


class Draft(_Lenient):
    """A separate draft model; `model` as in the spec (`hf://`, `s3://`, `file://`, `pvc://`, `oci://`)."""

    model: str
    tensor_parallel_size: int = 1


class NGram(_Lenient):
    """Prompt look-up window in tokens."""

    prompt_lookup_min: int
    prompt_lookup_max: int


class BatchSizeRange(_Lenient):
    """Draft length for batches up to a size."""

    up_to_batch_size: int
    num_speculative_tokens: int


class WorkerAdaptive(_Lenient):
    """Who decides how many tokens are drafted; as in the spec, never Off."""

    mode: str
    min_acceptance_percent: int | None = None
    schedule: list[BatchSizeRange] | None = None


class WorkerSpeculation(_Lenient):
    """How the engine drafts."""

    method: str
    """As in the spec; the worker refuses one that its engine's version does not have."""
    num_speculative_tokens: int | None = None
    draft: Draft | None = None
    ngram: NGram | None = None
    custom_class: str | None = None
    allow_lossy: bool = False
    adaptive: WorkerAdaptive | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class Adapter(_Lenient):
    """A LoRA adapter; `model` as in the spec."""

    name: str
    model: str


class Lora(_Lenient):
    """Adapters of the target, and how many of which rank a batch may hold."""

    adapters: list[Adapter]
    max_adapters: int = 1
    max_rank: int = 16


class WorkerWarmup(_Lenient):
    """Requests sent to the engine before the pod becomes ready."""

    requests: int = 4
    prompt_tokens: int = 128
    output_tokens: int = 64


class StepMicroseconds(_Lenient):
    """Time of a simulated step: base + draft x k + token x batch x (k + 1)."""

    base: int = 20_000
    draft: int = 2_000
    token: int = 200


class SimulatedFault(_Lenient):
    """What goes wrong with a simulated engine; `kind` and the rest as in the CRD."""

    kind: str
    after_seconds: int = 0
    percent: int | None = None
    over_seconds: int = 0
    parameter: str | None = None
    text: str | None = None
    sample: str | None = None


class Simulation(_Lenient):
    """The simulated engine of `speculative-worker simulate`; see the CRD for the fields."""

    acceptance_percent: int = 70
    acceptance_percent_by_position: list[int] | None = None
    tokens_per_second: int = 50
    step_microseconds: StepMicroseconds | None = None
    load_milliseconds: int = 500
    metric_names: str = "V1"
    error_percent: int = 0
    crash_text: str = ""
    stall_after_seconds: int = 0
    faults: list[SimulatedFault] = Field(default_factory=list)


class EngineTls(_Lenient):
    """The engine speaks TLS with the certificate in a mounted folder."""

    directory: str
    """Holds `tls.crt`, `tls.key` and `ca.crt`."""
    server_name: str
    """The name that the gateway will ask for."""


class WorkerConfig(_Lenient):
    """All a worker needs to know; durations in seconds."""

    schema_version: Literal[1] = 1
    model: str
    served_model_name: str
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    nodes: int | None = None
    """Pods that run one engine together; None: one."""
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    trust_remote_code: bool = False
    lora: Lora | None = None
    speculation: WorkerSpeculation
    engine_version: str
    allow_unknown_version: bool = False
    max_num_seqs: int
    gpu_memory_utilization_percent: int
    extra_args: list[str] = Field(default_factory=list)
    startup_deadline_seconds: int = 1800
    drain_seconds: int = 120
    numa_bind: bool = False
    preflight: Literal["Refuse", "Warn"] = "Refuse"
    heartbeat_seconds: int = 0
    """0: none."""
    warmup: WorkerWarmup = WorkerWarmup()
    tls: EngineTls | None = None
    """None: plain HTTP."""
    cache_directory: str | None = None
    """Where `hf://` and `s3://` models are stored; None: the container's temporary folder."""
    simulation: Simulation | None = None


class CacheCleanUp(_Lenient):
    """What a Job does with models in the cache that nobody uses; JSON in `CLEAN_UP_VARIABLE`."""

    removes: bool = False
    """False: they are only listed."""
    unused_hours: int = 168
    in_use: tuple[str, ...] = ()
    """Sources that some resource or recorded revision of the namespace names."""


Count = Annotated[int, Field(ge=0, le=2**53)]
"""Bounded, like every figure that a pod reports: one that can't be true is no answer at all."""
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Unix seconds."""


class Latency(_Lenient):
    """A histogram of durations since the engine's start, summed over its engines."""

    source: str
    """The engine's own name of it; only equal names measure the same thing."""
    bounds_seconds: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]
    """Upper bounds of the buckets, rising, without infinity."""
    counts: tuple[Count, ...]
    """Observations at or below each bound."""
    count: Count
    """All observations."""

    def slow(self, bound_seconds: float) -> int | None:
        """Observations above a bound; None if this histogram has no such bucket."""
        try:
            index = self.bounds_seconds.index(bound_seconds)
        except ValueError:
            return None
        return max(self.count - self.counts[index], 0) if index < len(self.counts) else None


class AdaptiveState(_Lenient):
    """What draft length the engine uses and why; `mode` as in the spec, never Off."""

    mode: str
    tokens: Count | None = None
    """Length used apart from trials, at the batch size seen last; absent where only the engine
    knows (BatchSize) or nothing was decoded yet."""
    gain_percent: Annotated[float, Field(ge=-100, le=1e5, allow_inf_nan=False)] | None = None
    """Estimated tokens per second above those at length 0, where a drafter still costs a pass."""
    zero_seconds: Annotated[float, Field(ge=0, le=2**53, allow_inf_nan=False)] | None = None
    """How long the length has been 0; 0 while it is not."""
    obeyed: bool = True
    """Whether the engine used the length that was asked for."""


class Digest(_Lenient):
    """One worker's counters with canonical names, summed over its engines.

    Counters rise from `engine_started_at`; when that changes they began anew.
    `None` means absent (not reported by this engine), which is not 0.
    """

    schema_version: Literal[1] = 1
    pod: str = ""
    revision: str = ""
    ready: bool
    draining: bool = False
    stalled: bool = False
    phase: str = "Serving"
    """Checking, Downloading, Loading, Compiling, Warming, Serving, Draining or Failed."""
    phase_detail: Annotated[str, Field(max_length=256)] = ""
    """How far a phase is, for people; in steps, so that it does not change at every look."""
    commits: dict[str, Annotated[str, Field(max_length=64)]] = Field(
        default_factory=dict, max_length=80
    )
    """Commit that each `hf://` model was fetched at, version of each `s3://` one, by its source."""
    engine_started_at: Moment
    """Unix seconds at which the engine process started: the reset mark of all counters."""
    sampled_at: Moment
    """Unix seconds at which the engine's metrics were read."""
    method: str
    num_speculative_tokens: Count | None = None
    adaptive: AdaptiveState | None = None
    requests_finished: Count | None = None
    prompt_tokens: Count | None = None
    generated_tokens: Count | None = None
    drafts: Count | None = None
    draft_tokens: Count | None = None
    accepted_tokens: Count | None = None
    running: Count | None = None
    waiting: Count | None = None
    preemptions: Count | None = None
    kv_cache_blocks: Count | None = None
    """Blocks of the cache, summed over engines."""
    kv_cache_usage: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the KV cache in use, of the fullest engine."""
    ttft: Latency | None = None
    """Time to the first token."""
    itl: Latency | None = None
    """Time per output token of a request, where the engine has it; else between tokens."""
    e2e: Latency | None = Field(default=None, alias="e2e")
    """Whole requests, waiting included."""

    @property
    def steps(self) -> int | None:
        """Decoding steps so far; None where they are not counted.

        A step gives one token and what is accepted of its draft. Engines count what they
        accepted also beyond the end of an answer (vLLM 0.32, `Scheduler.update_from_output`),
        so that short answers seem to take hardly a step; but every draft takes one.
        """
        if self.generated_tokens is None or self.accepted_tokens is None:
            return None
        return max(self.generated_tokens - self.accepted_tokens, self.drafts or 0)


class PreflightReport(_Lenient):
    """What a check that refused nothing found, written to `TERMINATION_PATH` (4096 bytes)."""

    notes: tuple[Annotated[str, Field(max_length=2048)], ...] = ()
    """What often disappoints, a sentence each."""


class Termination(_Lenient):
    """The worker's last words, written to `TERMINATION_PATH` (at most 4096 bytes).

    `reason` is a `conditions.WorkerReason`; a reason unknown to the reader is
    treated as EngineCrashed.
    """

    reason: str
    retryable: bool
    detail: str


def allows_long_context(environment: Mapping[str, str]) -> bool:
    """Whether this environment lets the engine take lengths beyond the model's own limit."""
    return environment.get(LONG_CONTEXT_VARIABLE, "").strip().lower() in ("1", "true")
