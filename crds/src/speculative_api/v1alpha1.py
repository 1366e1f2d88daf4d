"""The SpeculativeDeployment resource, version v1alpha1, as users write it.

The CRD's OpenAPI schema is generated from these models (`schema.py`); the
descriptions are user documentation and appear in `kubectl explain`. The
operator parses stored objects with them. Within this version a default never
changes, and a new field's default means the old behaviour.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from speculative_api.base import Model as Model
from speculative_api.base import configuration as _config
from speculative_api.base import rule as rule
from speculative_api.status import CanaryStatus as CanaryStatus
from speculative_api.status import Condition as Condition
from speculative_api.status import FailedRevision as FailedRevision
from speculative_api.status import GuardStatus as GuardStatus
from speculative_api.status import RetiringStatus as RetiringStatus
from speculative_api.status import SpeculativeDeploymentStatus as SpeculativeDeploymentStatus
from speculative_api.status import StableStatus as StableStatus
from speculative_api.status import Verdict as Verdict

MAX_NAME_LENGTH = 40
"""Longest resource name: children append a 10-character hash and a suffix."""


ModelSource = Annotated[
    str,
    Field(
        pattern=r"^(hf://[^/@\s]+/[^/@\s]+(@\S+)?|file:///\S+|pvc://[a-z0-9.-]+/\S+)$",
        max_length=512,
    ),
]
Percent = Annotated[int, Field(ge=0, le=100)]
Opaque = Annotated[
    dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
]


class Dtype(StrEnum):
    """Number formats the engine knows for weights and activations."""

    AUTO = "auto"
    HALF = "half"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Target(Model):
    """The model whose output users get; drafts only make it faster."""

    model: ModelSource = Field(
        description="Where the target model comes from: hf://owner/name@revision (a model hub), "
        "file:///path/on/the/node (a hostPath; needs a namespace that allows it), or "
        "pvc://claim/path."
    )
    served_model_name: str | None = Field(
        default=None,
        max_length=253,
        min_length=1,
        description="Name that clients put into `model`. Defaults to the resource's name.",
    )
    tensor_parallel_size: int = Field(
        default=1, ge=1, le=64, description="GPUs that share each layer. Default 1."
    )
    pipeline_parallel_size: int = Field(
        default=1, ge=1, le=64, description="Stages that split the layers. Default 1."
    )
    dtype: Dtype | None = Field(
        default=None, description="Number format; the engine chooses when absent."
    )
    quantization: str | None = Field(
        default=None,
        max_length=64,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Quantisation method of the checkpoint; the engine detects it when absent.",
    )
    kv_cache_dtype: str | None = Field(
        default=None,
        max_length=32,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Number format of the KV cache, for instance fp8; the engine's choice when "
        "absent.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=16,
        le=16_777_216,
        description="Longest prompt plus answer, in tokens. The model's own limit when absent. "
        "Never lowered silently: a draft with a shorter limit is refused.",
    )
    trust_remote_code: bool = Field(
        default=False,
        description="Let the engine run Python code that comes with the model. Default false.",
    )


class Method(StrEnum):
    """How tokens are drafted."""

    NONE = "None"
    DRAFT_MODEL = "DraftModel"
    NGRAM = "NGram"


class Draft(Model):
    """A smaller model that proposes tokens; it shares the target's GPUs."""

    model: ModelSource = Field(
        description="Where the draft model comes from; same forms as target.model. Its "
        "vocabulary must equal the target's, token by token."
    )
    tensor_parallel_size: int = Field(
        default=1, ge=1, le=64, description="GPUs that share each layer of the draft. Default 1."
    )


class NGramLookup(Model):
    """Drafts are copied from earlier text that ends in the same tokens."""

    model_config = _config(
        rule(
            "self.promptLookupMin <= self.promptLookupMax",
            "promptLookupMin must not exceed promptLookupMax: shorten the minimum or lengthen "
            "the maximum",
            ".promptLookupMin",
        )
    )
    prompt_lookup_min: int = Field(
        default=2, ge=1, le=512, description="Shortest match in tokens. Default 2."
    )
    prompt_lookup_max: int = Field(
        default=4, ge=1, le=512, description="Longest match in tokens. Default 4."
    )


class Speculation(Model):
    """Speculative decoding: a draft proposes tokens, the target verifies them in one step."""

    model_config = _config(
        rule(
            "self.method != 'DraftModel' || has(self.draft)",
            "method DraftModel needs a draft: add speculation.draft.model",
            ".draft",
        ),
        rule(
            "self.method == 'DraftModel' || !has(self.draft)",
            "draft belongs to method DraftModel: remove speculation.draft or set method: "
            "DraftModel",
            ".draft",
        ),
        rule(
            "self.method == 'NGram' || !has(self.ngram)",
            "ngram belongs to method NGram: remove speculation.ngram or set method: NGram",
            ".ngram",
        ),
        rule(
            "self.method == 'None' || has(self.numSpeculativeTokens)",
            "numSpeculativeTokens is needed unless method is None: 3 to 5 is a good start",
            ".numSpeculativeTokens",
        ),
        rule(
            "self.method != 'None' || (!has(self.numSpeculativeTokens) && !has(self.extra))",
            "method None drafts nothing: remove numSpeculativeTokens and extra, or choose a method",
            ".method",
        ),
    )
    method: Method = Field(
        description="How tokens are drafted: DraftModel (a smaller model), NGram (copied from the "
        "text so far), or None (plain decoding)."
    )
    num_speculative_tokens: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Tokens proposed per step (k), at least 1. More is not always faster: every "
        "proposed token is verified. For plain decoding use method: None instead of 0.",
    )
    draft: Draft | None = Field(
        default=None, description="The draft model; needed by, and only for, method DraftModel."
    )
    ngram: NGramLookup | None = Field(
        default=None,
        description="Look-up window; only for method NGram. Defaults to matches of 2 to 4 tokens.",
    )
    extra: Opaque | None = Field(
        default=None,
        description="Further keys of the engine's speculative configuration. Checked against the "
        "keys that the engine version knows; a key that a field here already says is refused.",
    )


class Warmup(Model):
    """Real requests sent to the engine before the pod becomes ready."""

    requests: int = Field(default=4, ge=0, le=64, description="How many; 0 skips. Default 4.")
    prompt_tokens: int = Field(
        default=128, ge=1, le=8192, description="Approximate prompt length. Default 128."
    )
    output_tokens: int = Field(
        default=64, ge=1, le=1024, description="Tokens generated each. Default 64."
    )


class Simulation(Model):
    """A simulated engine in place of vLLM: for rehearsing rollouts without GPUs.

    The worker, its probes, metrics names and API stay the same; the text it
    answers is filler.
    """

    acceptance_percent: Percent = Field(
        default=70, description="Share of draft tokens that is accepted. Default 70."
    )
    tokens_per_second: int = Field(
        default=50, ge=1, le=100_000, description="Generated tokens per stream. Default 50."
    )
    load_milliseconds: int = Field(
        default=500, ge=0, le=3_600_000, description="Time until the engine answers. Default 500."
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


class Engine(Model):
    """The inference engine and how it is started."""

    image: str | None = Field(
        default=None,
        max_length=512,
        min_length=1,
        description="Worker image (vLLM plus our worker). The operator's own default when "
        "absent; pin it to a digest in production.",
    )
    version: Literal["0.32.0"] = Field(
        default="0.32.0",
        description="vLLM version inside the image; decides flags and metric names. Known here: "
        "0.32.0.",
    )
    max_num_seqs: int = Field(
        default=64, ge=1, le=65_536, description="Largest batch, in sequences. Default 64."
    )
    gpu_memory_utilization_percent: int = Field(
        default=90,
        ge=1,
        le=99,
        description="Share of each GPU's memory the engine may take. Default 90.",
    )
    extra_args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=64,
        description="Further engine flags, one list item each. A flag that a field here already "
        "sets is refused.",
    )
    startup_deadline_seconds: int = Field(
        default=1800,
        ge=5,
        le=86_400,
        description="Longest time from container start to ready, weights included. Default 1800.",
    )
    drain_seconds: int = Field(
        default=120,
        ge=0,
        le=7200,
        description="How long a stopping pod lets running generations finish. Generations "
        "shorter than this are never cut. Default 120.",
    )
    warmup: Warmup = Field(
        default_factory=Warmup, description="Requests before the pod becomes ready."
    )
    simulation: Simulation | None = Field(
        default=None,
        description="Replaces vLLM by a simulated engine, for rehearsing rollouts; such pods ask "
        "for no GPU.",
    )


class Pod(Model):
    """How worker pods look to Kubernetes."""

    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        default_factory=dict, description="Node labels a worker needs."
    )
    gpu_resource_name: str = Field(
        default="nvidia.com/gpu",
        max_length=128,
        pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$",
        description="Extended resource to ask for; tensorParallelSize x pipelineParallelSize of "
        "it per pod. Default nvidia.com/gpu.",
    )
    resources: Opaque | None = Field(
        default=None,
        description="Container resources (requests and limits), as in a Pod. GPUs are added by "
        "the operator.",
    )
    tolerations: list[Opaque] = Field(
        default_factory=list,
        max_length=32,
        description="Tolerations, as in a Pod. The GPU resource's own taint is always tolerated.",
    )
    affinity: Opaque | None = Field(default=None, description="Affinity, as in a Pod.")
    topology_spread_constraints: list[Opaque] = Field(
        default_factory=list, max_length=16, description="Spread constraints, as in a Pod."
    )
    priority_class_name: str | None = Field(
        default=None, max_length=253, description="PriorityClass of worker pods."
    )
    runtime_class_name: str | None = Field(
        default=None, max_length=253, description="RuntimeClass of worker pods."
    )
    shm_size: str | None = Field(
        default=None,
        max_length=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
        description="Size of the memory-backed /dev/shm, counted inside the memory limit; "
        "unlimited within it when absent.",
    )
    service_account_name: str | None = Field(
        default=None, max_length=253, description="ServiceAccount of worker pods."
    )
    image_pull_secrets: list[Opaque] = Field(
        default_factory=list, max_length=8, description="Image pull secrets, as in a Pod."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="As in a Pod; Kubernetes' own rule when absent."
    )
    env: list[Opaque] = Field(
        default_factory=list,
        max_length=64,
        description="Environment of the engine, as in a Pod; hub tokens come from a Secret here "
        "(HF_TOKEN with valueFrom.secretKeyRef).",
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, description="Annotations of worker pods."
    )


class ModelCache(Model):
    """Where models from a hub are kept between pods."""

    persistent_volume_claim: str = Field(
        max_length=253, description="Claim mounted into every worker; ReadWriteMany if shared."
    )


class NativeLane(Model):
    """The same target without speculation, reached by header `x-speculative-lane: native`."""

    model_config = _config(
        rule(
            "!self.fallback || self.replicas > 0",
            "fallback needs native pods to fall back to: set lanes.native.replicas to 1 or more",
            ".fallback",
        ),
    )
    replicas: int = Field(
        default=0, ge=0, le=1000, description="Native pods; 0 means no native lane. Default 0."
    )
    fallback: bool = Field(
        default=False,
        description="Whether stable's requests go to native while stable has no healthy pod: at "
        "most engine.maxNumSeqs at a time for each ready native pod, the others get 503 with "
        "Retry-After. A canary's requests never do. Default false.",
    )


class Lanes(Model):
    """Ways through the gateway beside the accelerated one."""

    native: NativeLane = Field(
        default_factory=NativeLane, description="The lane without speculation."
    )


class GatewayService(Model):
    """The Service in front of the gateway."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP", description="Service type. Default ClusterIP."
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, description="Annotations of the Service."
    )
    load_balancer_source_ranges: list[Annotated[str, Field(max_length=64)]] = Field(
        default_factory=list,
        max_length=64,
        description="Client address ranges a load balancer lets in.",
    )


class Timeouts(Model):
    """Timeouts at the gateway, in seconds."""

    request_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="Longest whole request; 0 switches it off. Default 0: a default timeout would "
        "cut long answers.",
    )
    idle_seconds: int = Field(
        default=300,
        ge=1,
        le=86_400,
        description="Longest silence on a stream, the wait for the first token included. "
        "Default 300.",
    )


class Auth(Model):
    """Who may send requests."""

    api_keys_secret: str = Field(
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Secret in this namespace whose entries are API keys: the entry's name is the "
        "client's name in the access log, its value the key (8 to 1024 visible ASCII characters). "
        "Clients send it as `Authorization: Bearer KEY` or `x-api-key: KEY`. Changes take effect "
        "without a restart, as soon as the kubelet has updated the mounted Secret (about a minute "
        "and a half at most by default). While it is missing or empty, every request is refused.",
    )


class RateLimit(Model):
    """How much each API key may ask for."""

    model_config = _config(
        rule(
            "has(self.requestsPerMinutePerKey) || has(self.tokensPerMinutePerKey)",
            "rateLimit limits nothing: add requestsPerMinutePerKey or tokensPerMinutePerKey",
        ),
    )
    requests_per_minute_per_key: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Requests that each key may send in a minute, all gateway pods together; a "
        "key that was quiet may send them at once. Each of the n pods lets in one n-th, rounded "
        "up. Beyond it the answer is 429 with Retry-After.",
    )
    tokens_per_minute_per_key: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Tokens that each key may ask for in a minute, divided like requests. Charged "
        "before generation, and not corrected afterwards: a quarter of the body's bytes, plus "
        "max_tokens (max_completion_tokens, max_output_tokens) times n, or 1024 where the request "
        "does not say. A request above one pod's part is never let in. Bodies up to 16 MiB.",
    )


class Gateway(Model):
    """How traffic reaches the workers."""

    model_config = _config(
        rule(
            "!has(self.rateLimit) || has(self.auth)",
            "rateLimit counts by API key: add gateway.auth.apiKeysSecret",
            ".rateLimit",
        ),
    )
    mode: Literal["Envoy"] = Field(
        default="Envoy", description="Envoy: a gateway of this resource's own."
    )
    replicas: int = Field(default=1, ge=1, le=32, description="Gateway pods. Default 1.")
    service: GatewayService = Field(
        default_factory=GatewayService, description="The Service in front of the gateway."
    )
    timeouts: Timeouts = Field(default_factory=Timeouts, description="Timeouts in seconds.")
    auth: Auth | None = Field(
        default=None, description="Who may send requests; everybody who can connect when absent."
    )
    session_affinity_header: str | None = Field(
        default=None,
        max_length=64,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Request header that names a session, for instance x-session-id: all its "
        "requests go to one revision, and one that is on the canary stays there while the weight "
        "grows. Each canary gets other sessions. Requests without the header are split by chance. "
        "A canary is then judged on the sessions it happened to get; absent, on single requests.",
    )
    max_request_body_bytes: int | None = Field(
        default=None,
        ge=1024,
        le=33_554_432,
        description="Longest request body in bytes; a longer one is answered 413 and reaches no "
        "worker. The gateway then holds each body until it is whole. No limit when absent, but 16 "
        "MiB at most where tokensPerMinutePerKey is set.",
    )
    rate_limit: RateLimit | None = Field(
        default=None, description="How much each API key may ask for; no limit when absent."
    )


class PauseStep(Model):
    """A wait while the canary is judged."""

    duration_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_592_000,
        description="How long; the rollout goes on earlier once every metric has shown 'not "
        "worse'. Absent: until `kubectl speculative promote`.",
    )


class RolloutStep(Model):
    """One step of a rollout: exactly one of its fields."""

    model_config = _config(
        rule(
            "has(self.weight) != has(self.pause)",
            "a step has exactly one of weight and pause: split it into two list items",
        )
    )
    weight: Percent | None = Field(
        default=None, description="Percent of traffic the canary gets from this step on."
    )
    pause: PauseStep | None = Field(default=None, description="A wait at the present weight.")


class MetricName(StrEnum):
    """What a canary is judged on."""

    ACCEPTANCE_LENGTH = "AcceptanceLength"
    ERROR_RATE = "ErrorRate"
    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105
    INTER_TOKEN_LATENCY = "InterTokenLatency"  # noqa: S105
    END_TO_END_LATENCY = "EndToEndLatency"


_IS_LATENCY = "self.name in ['TimeToFirstToken', 'InterTokenLatency', 'EndToEndLatency']"


class MetricCheck(Model):
    """One metric and its limit."""

    model_config = _config(
        rule(
            "self.name == 'AcceptanceLength' || !has(self.minPercentOfStable)",
            "minPercentOfStable belongs to AcceptanceLength: use maxPercent for ErrorRate",
            ".minPercentOfStable",
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
    name: MetricName = Field(
        description="AcceptanceLength: accepted draft tokens per decoding step. ErrorRate: share "
        "of requests that the gateway saw fail. TimeToFirstToken, InterTokenLatency (per request "
        "where the engine reports it so, else per step) and EndToEndLatency: share of those "
        "slower than thresholdMilliseconds."
    )
    min_percent_of_stable: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="AcceptanceLength only: accepted tokens per step, at least this percent of "
        "stable's over the same time. Default 90.",
    )
    max_percent: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="ErrorRate only: failing requests, at most this percent, or twice stable's "
        "share if that is more. Default 1.",
    )
    threshold_milliseconds: int | None = Field(
        default=None,
        ge=1,
        le=3_600_000,
        description="Latencies only, and needed there: what is longer counts as slow. Rounded up "
        "to a bucket that the engines of both revisions have. Best where 1 to 20 percent of "
        "stable's are slow.",
    )
    max_exceed_percent: int | None = Field(
        default=None,
        ge=1,
        le=99,
        description="Latencies only: slow ones, at most this percent, whatever stable does. No "
        "such bound when absent.",
    )
    max_percent_of_stable: int | None = Field(
        default=None,
        ge=100,
        le=10_000,
        description="Latencies only: the share of slow ones, at most this percent of stable's "
        "over the same time. Default 150.",
    )
    dry_run: bool | None = Field(
        default=None,
        description="Judged and shown, never acted on. Default false; true for EndToEndLatency, "
        "which grows with the length of answers.",
    )


def _default_metrics() -> list[MetricCheck]:
    return [
        MetricCheck(name=MetricName.ACCEPTANCE_LENGTH),
        MetricCheck(name=MetricName.ERROR_RATE),
    ]


class Analysis(Model):
    """How a canary is judged against stable."""

    period_seconds: int = Field(
        default=5, ge=1, le=300, description="Time between looks. Default 5."
    )
    max_false_rollback_percent: int = Field(
        default=1,
        ge=1,
        le=50,
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


class Guard(Model):
    """Judging goes on after promotion, with the old revision kept as concurrent control."""

    duration_seconds: int = Field(
        default=1800,
        ge=0,
        le=2_592_000,
        description="How long the old revision is kept after promotion; 0 removes it at once. "
        "Default 1800.",
    )
    holdback_weight: int = Field(
        default=5,
        ge=1,
        le=50,
        description="Percent of traffic the old revision keeps meanwhile. Default 5.",
    )


class InconclusivePolicy(StrEnum):
    """What happens when a step's time is up and there was nothing to judge by."""

    PAUSE = "Pause"
    ABORT = "Abort"
    ADVANCE = "Advance"


class Rollout(Model):
    """How a new revision is tried."""

    steps: list[RolloutStep] = Field(
        default_factory=list,
        max_length=32,
        description="Taken in order; after the last the canary is promoted. Empty: one step of 10 "
        "percent for 300 seconds.",
    )
    analysis: Analysis = Field(default_factory=Analysis, description="How the canary is judged.")
    progress_deadline_seconds: int = Field(
        default=3600,
        ge=10,
        le=604_800,
        description="Longest time for a canary to become ready; afterwards it is taken out. "
        "Default 3600.",
    )
    guard: Guard = Field(default_factory=Guard, description="What happens after promotion.")
    on_inconclusive: InconclusivePolicy = Field(
        default=InconclusivePolicy.PAUSE,
        description="When a timed pause ends without anything to judge by: Pause (wait for a "
        "person), Abort, or Advance. Default Pause.",
    )
    max_rollbacks_per_hour: int = Field(
        default=0,
        ge=0,
        le=32,
        description="After so many revisions failed within an hour, further ones are parked: they "
        "are tried once the hour has passed, or after `kubectl speculative retry` of a failed one. "
        "What a person aborts does not count. 0, the default, parks nothing.",
    )
    revision_history_limit: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Old revisions (ControllerRevisions) kept. Default 10.",
    )


class SpeculativeDeploymentSpec(Model):
    """Which target, which draft, how pods look, how traffic reaches them, how a change is tried."""

    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Worker pods of the stable revision. Written by `kubectl scale` too. "
        "Default 1.",
    )
    target: Target = Field(description="The model whose output users get.")
    speculation: Speculation = Field(description="How tokens are drafted and verified.")
    engine: Engine = Field(default_factory=Engine, description="The engine and how it is started.")
    pod: Pod = Field(default_factory=Pod, description="How worker pods look to Kubernetes.")
    model_cache: ModelCache | None = Field(
        default=None, description="Where models from a hub are kept between pods."
    )
    lanes: Lanes = Field(default_factory=Lanes, description="Lanes beside the accelerated one.")
    gateway: Gateway = Field(default_factory=Gateway, description="How traffic reaches workers.")
    rollout: Rollout = Field(default_factory=Rollout, description="How a new revision is tried.")


REVISIONED_FIELDS = ("target", "speculation", "engine", "pod", "model_cache")
"""The part of the spec whose change makes a new revision."""
