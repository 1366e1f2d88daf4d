"""How many pods there are: by load, between bounds that may depend on the time of day."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import Opaque


class Provider(StrEnum):
    """Whose object scales."""

    HPA = "HPA"
    KEDA = "KEDA"


class ScalingMetricName(StrEnum):
    """What the number of pods follows."""

    REQUESTS_WAITING = "RequestsWaiting"
    REQUESTS_RUNNING = "RequestsRunning"
    TOKENS_PER_SECOND = "TokensPerSecond"
    KV_CACHE_USAGE = "KvCacheUsage"
    GPU_UTILIZATION = "GpuUtilization"
    CPU = "Cpu"
    EXTERNAL = "External"


_PER_POD = "self.name in ['RequestsWaiting', 'RequestsRunning', 'TokensPerSecond']"
_PERCENT = "self.name in ['KvCacheUsage', 'GpuUtilization', 'Cpu']"


class ScalingMetric(Model):
    """One metric and its target."""

    model_config = configuration(
        rule(
            f"({_PER_POD}) == has(self.targetPerPod)",
            "RequestsWaiting, RequestsRunning and TokensPerSecond need targetPerPod, and no other "
            "metric has it",
            ".targetPerPod",
        ),
        rule(
            f"({_PERCENT}) == has(self.targetPercent)",
            "KvCacheUsage, GpuUtilization and Cpu need targetPercent, and no other metric has it",
            ".targetPercent",
        ),
        rule(
            "self.name == 'Cpu' || !has(self.targetPercent) || self.targetPercent <= 90",
            "targetPercent of KvCacheUsage and GpuUtilization must be at most 90: an autoscaler "
            "acts 10 percent beyond its target, and nothing is fuller than 100",
            ".targetPercent",
        ),
        rule(
            "(self.name == 'External') == has(self.external)",
            "External needs external, and no other metric has it",
            ".external",
        ),
    )
    name: ScalingMetricName = Field(
        description="RequestsWaiting: requests in the engines' queues. RequestsRunning: requests "
        "being generated. TokensPerSecond: output tokens per second, divided by the measured "
        "acceptance length (1 while unknown), so that the same load gets more pods when "
        "speculation works less well. KvCacheUsage: share of the KV cache in use, mean of the "
        "pods. GpuUtilization: share of time that GPUs were busy, from DCGM through Prometheus. "
        "Cpu: share of the CPU request in use. External: any metric of another provider."
    )
    target_per_pod: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How much of it one pod is meant to have. For TokensPerSecond: what a pod "
        "makes at an acceptance length of 1, that is without speculation.",
    )
    target_percent: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="How full pods are meant to be. GpuUtilization: 70 to 85 is usual.",
    )
    external: Opaque | None = Field(
        default=None,
        description="External only: `metric` and `target`, as in `external` of a "
        "HorizontalPodAutoscaler's metric. With provider KEDA: a trigger, as in a ScaledObject.",
    )


class Schedule(Model):
    """Other bounds for a while, again and again."""

    model_config = configuration(
        rule(
            "has(self.minReplicas) || has(self.maxReplicas)",
            "a schedule needs minReplicas, maxReplicas or both: without them it changes nothing",
        ),
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) "
            "|| self.minReplicas <= self.maxReplicas",
            "minReplicas must not be more than maxReplicas",
            ".minReplicas",
        ),
    )
    name: str = Field(
        min_length=1, max_length=63, description="Shown while it is in force, as in `night`."
    )
    start: str = Field(
        min_length=9,
        max_length=128,
        pattern=r"^\S+( +\S+){4}$",
        description="When it begins: minute, hour, day of the month, month, day of the week, as "
        'in cron ("0 22 * * 1-5").',
    )
    time_zone: str = Field(
        default="UTC",
        max_length=64,
        pattern=r"^[A-Za-z0-9_+/-]+$",
        description="Name from the IANA time zone database for `start`, as in Asia/Shanghai. "
        "Default UTC.",
    )
    duration_seconds: int = Field(
        ge=60,
        le=2_592_000,
        description="For how long, in real seconds: a night in which clocks change is as long as "
        "any other.",
    )
    min_replicas: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="In the place of autoscaling.minReplicas. Of schedules that overlap, the one "
        "with the highest minimum holds.",
    )
    max_replicas: int | None = Field(
        default=None, ge=1, le=1000, description="In the place of autoscaling.maxReplicas."
    )


class Idle(Model):
    """Pods are released while nobody asks, and come back for the first who does."""

    after_seconds: int = Field(
        ge=30,
        le=2_592_000,
        description="Pods are released when no gateway pod had a request for so long. Never while "
        "a rollout, its guard or a restart goes on, or while a schedule with minReplicas is in "
        "force.",
    )
    replicas: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Pods of stable that stay; with 0 the native lane's go too, and every GPU is "
        "given back. Default 0.",
    )
    hold_seconds: int = Field(
        default=0,
        ge=0,
        le=3600,
        description="How long a request that finds no pod is held until one is ready, at most 100 "
        "at once in each gateway pod and without its answer beginning; at most "
        "gateway.timeouts.idleSeconds. Then, or at once with 0, it is answered 503 with what pods "
        "took to load the last time in Retry-After. Either way it brings the pods back. Default "
        "0.",
    )


class Autoscaling(Model):
    """A HorizontalPodAutoscaler that writes spec.replicas; leave that field out then."""

    model_config = configuration(
        rule(
            "self.minReplicas <= self.maxReplicas",
            "autoscaling.minReplicas must not be more than maxReplicas",
            ".minReplicas",
        ),
        rule(
            "!has(self.idle) || self.idle.replicas < self.minReplicas",
            "idle.replicas must be less than minReplicas: else nothing is released",
            ".idle.replicas",
        ),
    )
    provider: Provider = Field(
        default=Provider.HPA,
        description="HPA: a HorizontalPodAutoscaler, whose metrics the operator, or whoever else "
        "serves external.metrics.k8s.io, has. KEDA: a ScaledObject, whose triggers ask the "
        "operator's Prometheus (chart: settings.prometheusUrl); refused where KEDA is not "
        "installed. Default HPA.",
    )
    min_replicas: int = Field(
        default=1, ge=1, le=1000, description="Fewest pods of stable. Default 1."
    )
    max_replicas: int = Field(ge=1, le=1000, description="Most pods of stable.")
    metrics: list[ScalingMetric] = Field(
        min_length=1,
        max_length=8,
        description="What the number follows; the metric that asks for most pods counts.",
    )
    behavior: Opaque | None = Field(
        default=None,
        description="How fast, as in a HorizontalPodAutoscaler. Where scaleUp or scaleDown is "
        "absent: up at most to the double, or by 4, in 5 minutes, since new pods load for a "
        "while; down by one pod a minute, or a tenth, once 5 minutes all asked for less.",
    )
    schedules: list[Schedule] = Field(
        default_factory=list,
        max_length=16,
        description="Other bounds at certain times: nights that give half of the GPUs back.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    idle: Idle | None = Field(
        default=None,
        description="Pods that are released while nobody asks. While they are, there is no "
        "HorizontalPodAutoscaler; spec.replicas keeps the number that comes back. Absent: they "
        "stay.",
    )
