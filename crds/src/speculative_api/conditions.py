"""Condition types and their reasons, each reason with the sentence users read in the docs.

A condition's message carries the numbers; the reason is a constant that
alerts and scripts can match on.
"""

from enum import StrEnum
from typing import Final


class ConditionType(StrEnum):
    """The conditions in `status.conditions`, in the order they are shown."""

    ACCEPTED = "Accepted"
    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    SPECULATION_ACTIVE = "SpeculationActive"
    GATEWAY_READY = "GatewayReady"
    AUTOSCALING_ACTIVE = "AutoscalingActive"
    IDLE = "Idle"
    ACCEPTANCE_DRIFTED = "AcceptanceDrifted"


class Reason(StrEnum):
    """Reasons of conditions, events and failed revisions."""

    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"
    NOT_APPLIED = "NotApplied"
    STABLE_READY = "StableReady"
    STABLE_NOT_READY = "StableNotReady"
    FIRST_REVISION_FAILED = "FirstRevisionFailed"
    REVISION_STARTING = "RevisionStarting"
    CANARY_STARTING = "CanaryStarting"
    PREFLIGHT_RUNNING = "PreflightRunning"
    PREFLIGHT_PASSED = "PreflightPassed"
    PREFLIGHT_STALLED = "PreflightStalled"
    MODELS_DOWNLOADING = "ModelsDownloading"
    MODELS_DOWNLOADED = "ModelsDownloaded"
    CANARY_SHADOWED = "CanaryShadowed"
    CANARY_WEIGHTED = "CanaryWeighted"
    CAPACITY_BLOCKED = "CapacityBlocked"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    HUB_UNREACHABLE = "HubUnreachable"
    CANARY_PAUSED = "CanaryPaused"
    PAUSED_ON_REQUEST = "PausedOnRequest"
    SCALED_TO_ZERO = "ScaledToZero"
    ANALYSIS_INCONCLUSIVE = "AnalysisInconclusive"
    GUARDING = "Guarding"
    ANALYSIS_ABSOLUTE_ONLY = "AnalysisAbsoluteOnly"
    RETURNING = "Returning"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    SUPERSEDED = "Superseded"
    ABORTED = "Aborted"
    REMOVING_REVISION = "RemovingRevision"
    RESTARTING = "Restarting"
    RESTART_STALLED = "RestartStalled"
    COMPLETE = "Complete"
    FAILED_REVISION_NOT_RETRIED = "FailedRevisionNotRetried"
    ROLLBACKS_CAPPED = "RollbacksCapped"
    ACCEPTANCE_WORSE = "AcceptanceWorse"
    ERRORS_WORSE = "ErrorsWorse"
    LATENCY_WORSE = "LatencyWorse"
    SPEED_WORSE = "SpeedWorse"
    RESTARTS_WORSE = "RestartsWorse"
    QUERY_OUTSIDE = "QueryOutside"
    SOURCE_AWAY = "SourceAway"
    CANARY_UNHEALTHY = "CanaryUnhealthy"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    DRAFTING = "Drafting"
    NOT_DRAFTING = "NotDrafting"
    POOL_NOT_ACCEPTED = "PoolNotAccepted"
    REDUCED_TO_ZERO = "ReducedToZero"
    NOT_MEASURED = "NotMeasured"
    NOT_WORSE = "NotWorse"
    NOT_CONFIGURED = "NotConfigured"
    GATEWAY_SERVING = "GatewayServing"
    GATEWAY_NOT_SERVING = "GatewayNotServing"
    GATEWAY_SILENT = "GatewaySilent"
    AUTOSCALING = "Autoscaling"
    AUTOSCALER_STARTING = "AutoscalerStarting"
    AUTOSCALER_BLIND = "AutoscalerBlind"
    IDLE = "Idle"
    WAKING = "Waking"
    AWAKE = "Awake"
    NO_GATEWAY = "NoGateway"
    SHARED_SETTINGS_DIFFER = "SharedSettingsDiffer"
    HOST_TAKEN = "HostTaken"
    ROUTE_ACCEPTED = "RouteAccepted"
    ROUTE_NOT_ACCEPTED = "RouteNotAccepted"
    KIND_MISSING = "KindMissing"
    BASELINE_MISSING = "BaselineMissing"
    ACCEPTANCE_STEADY = "AcceptanceSteady"
    ACCEPTANCE_DRIFTED = "AcceptanceDrifted"
    PODS_RECYCLED = "PodsRecycled"
    RECYCLING_IN_VAIN = "RecyclingInVain"
    SPECULATION_DISABLED = "SpeculationDisabled"


SENTENCES: Final[dict[Reason, str]] = {
    Reason.VALID: "The spec can be rendered.",
    Reason.INVALID_SPEC: "The spec contradicts itself; the message names the field and the remedy.",
    Reason.NAME_CONFLICT: "An object with a name we need exists and is not ours; it is left alone.",
    Reason.NOT_APPLIED: "The API server fails at some objects (an admission webhook is down, "
    "mostly); the others are made, and those are tried again.",
    Reason.STABLE_READY: "Every replica of the stable revision is ready.",
    Reason.STABLE_NOT_READY: "The stable revision has fewer ready replicas than asked for.",
    Reason.FIRST_REVISION_FAILED: "The only revision there is can never start; fix the spec.",
    Reason.REVISION_STARTING: "The first revision is loading its model.",
    Reason.CANARY_STARTING: "A canary is loading its model; it gets no traffic yet.",
    Reason.PREFLIGHT_RUNNING: "A Job without a GPU checks the files of a revision's models; none "
    "of its pods exists yet.",
    Reason.PREFLIGHT_PASSED: "Nothing in the files speaks against the revision; the message has "
    "what often disappoints.",
    Reason.PREFLIGHT_STALLED: "The Job that checks or fetches a revision's models came to no "
    "result; the revision is parked and tried again by itself.",
    Reason.MODELS_DOWNLOADING: "A Job without a GPU fetches a revision's models into the cache; "
    "none of its pods exists yet.",
    Reason.MODELS_DOWNLOADED: "All of a revision's models are in the cache, held against the "
    "checksums of where they came from.",
    Reason.CAPACITY_BLOCKED: "The canary's pods can't be scheduled, or a quota forbids them: the "
    "message has the words of the scheduler. At its deadline it is taken out and parked, and tried "
    "again by itself.",
    Reason.IMAGE_UNAVAILABLE: "The image of the canary's pods can't be pulled; parked likewise.",
    Reason.HUB_UNREACHABLE: "The canary's pods can't reach the model hub or bucket; parked "
    "likewise.",
    Reason.CANARY_SHADOWED: "A canary answers copies of requests, to nobody, and is judged.",
    Reason.CANARY_WEIGHTED: "A canary gets its share of the traffic and is judged.",
    Reason.CANARY_PAUSED: "The rollout waits for `kubectl speculative promote` or `abort`.",
    Reason.PAUSED_ON_REQUEST: "A person holds the rollout where it is; judging goes on.",
    Reason.SCALED_TO_ZERO: "The resource was scaled to 0 in the middle of a rollout, which rests "
    "until it is scaled up again.",
    Reason.ANALYSIS_INCONCLUSIVE: "The step's time is up and there was nothing to judge by.",
    Reason.GUARDING: "The canary was promoted; the old revision is kept while judging goes on.",
    Reason.ANALYSIS_ABSOLUTE_ONLY: "The canary was promoted and nothing of the old revision is "
    "kept: judging goes on, by absolute bounds alone.",
    Reason.RETURNING: "The promoted revision was judged worse; the old one takes over again as its "
    "pods become ready.",
    Reason.PROMOTED: "The canary became stable; its pods were not restarted.",
    Reason.ROLLED_BACK: "The canary was judged worse and taken out; stable is untouched.",
    Reason.SUPERSEDED: "A newer spec replaced this canary before it was judged.",
    Reason.ABORTED: "A person asked for the canary to be taken out.",
    Reason.REMOVING_REVISION: "A revision is taken out in order: weight, streams, cluster, pods.",
    Reason.RESTARTING: "The pods of the stable revision are replaced one at a time, on request.",
    Reason.RESTART_STALLED: "A restart got no pod ready in time; the pods that serve were kept.",
    Reason.COMPLETE: "The stable revision is what the spec asks for.",
    Reason.FAILED_REVISION_NOT_RETRIED: "The spec names a revision that failed; it is not tried "
    "again until `kubectl speculative retry`.",
    Reason.ROLLBACKS_CAPPED: "So many revisions failed within the hour that a further one is not "
    "tried for now; the message says from when on.",
    Reason.ACCEPTANCE_WORSE: "Fewer draft tokens per step are accepted than the limit allows.",
    Reason.ERRORS_WORSE: "More requests fail than the limit allows.",
    Reason.LATENCY_WORSE: "More requests are slower than the threshold than the limit allows.",
    Reason.SPEED_WORSE: "A pod makes fewer tokens per second than the limit allows.",
    Reason.RESTARTS_WORSE: "The canary's containers restart more often than the limit allows.",
    Reason.QUERY_OUTSIDE: "A query's number is beyond its bound, several times in a row.",
    Reason.SOURCE_AWAY: "Whom a metric is asked of does not answer, or not with an answer.",
    Reason.CANARY_UNHEALTHY: "The canary's pods crash or stall, or fail every request.",
    Reason.PROGRESS_DEADLINE_EXCEEDED: "The canary was not ready before progressDeadlineSeconds.",
    Reason.DRAFTING: "Draft tokens are being proposed and verified.",
    Reason.REDUCED_TO_ZERO: "Drafting was proved to work; the adaptive draft length is 0 for now, "
    "since plain decoding is faster.",
    Reason.NOT_DRAFTING: "Speculation is configured but no draft token was proposed.",
    Reason.POOL_NOT_ACCEPTED: "The Gateway does not send to the revision's InferencePool yet.",
    Reason.NOT_WORSE: "A metric showed that the canary is within its limit.",
    Reason.NOT_MEASURED: "No ready pod has answered with a digest yet.",
    Reason.NOT_CONFIGURED: "The method is None.",
    Reason.GATEWAY_SERVING: "Every gateway pod uses the current route.",
    Reason.GATEWAY_NOT_SERVING: "No gateway pod is ready with the current route yet.",
    Reason.AUTOSCALING: "The autoscaler reads its metrics and sets replicas.",
    Reason.AUTOSCALER_STARTING: "The autoscaler has said nothing yet.",
    Reason.AUTOSCALER_BLIND: "The autoscaler can't read a metric or can't scale; replicas stay as "
    "they are. The message has its words.",
    Reason.IDLE: "Nobody asks, so pods are released; the first request brings them back.",
    Reason.WAKING: "Pods that were released are being started again.",
    Reason.AWAKE: "No pod is released; the message says when some will be.",
    Reason.GATEWAY_SILENT: "A gateway pod has not answered for a while; removal no longer waits.",
    Reason.NO_GATEWAY: "gateway.mode is None: the Service leads to the pods of stable.",
    Reason.SHARED_SETTINGS_DIFFER: "Resources at one shared gateway say its settings differently; "
    "it goes on with those in force until all say the same. The message names them.",
    Reason.HOST_TAKEN: "A host name in gateway.hosts is another resource's at the shared gateway.",
    Reason.ROUTE_ACCEPTED: "The Gateway's controller has accepted the HTTPRoute.",
    Reason.ROUTE_NOT_ACCEPTED: "The HTTPRoute is not accepted by a Gateway; the message says why.",
    Reason.KIND_MISSING: "The spec needs a kind that the cluster has not, or that the operator may "
    "not read; the message names it.",
    Reason.BASELINE_MISSING: "What stable accepts in its first hours is still being measured.",
    Reason.ACCEPTANCE_STEADY: "Nothing shows that stable accepts less than in its first hours.",
    Reason.ACCEPTANCE_DRIFTED: "Stable accepts fewer draft tokens per step than in its first "
    "hours, by more than rollout.drift allows; the message has the numbers.",
    Reason.PODS_RECYCLED: "Stable's pods were replaced, or are being replaced, because acceptance "
    "had sunk; they are judged anew against the same baseline.",
    Reason.RECYCLING_IN_VAIN: "Replacing pods did not bring acceptance back, so often as "
    "rollout.drift.maxRecycles allows: they are left alone until `kubectl speculative recover`.",
    Reason.SPECULATION_DISABLED: "Acceptance had sunk, and pods without speculation serve as far "
    "as they are ready, until `kubectl speculative recover` or a new spec.",
}


class WorkerReason(StrEnum):
    """Why a worker ended, in its termination message; `retryable` says what the operator does."""

    VOCABULARY_MISMATCH = "VocabularyMismatch"
    DRAFT_CONTEXT_TOO_SHORT = "DraftContextTooShort"
    DRAFT_MISMATCH = "DraftMismatch"
    MODEL_NOT_FOUND = "ModelNotFound"
    DISK_TOO_SMALL = "DiskTooSmall"
    CACHE_UNWRITABLE = "CacheUnwritable"
    HUB_UNREACHABLE = "HubUnreachable"
    MODEL_DAMAGED = "ModelDamaged"
    MODEL_UNSUPPORTED = "ModelUnsupported"
    """The engine's version does not know this architecture, tokenizer or model's own code."""
    INVALID_ARGUMENTS = "InvalidArguments"
    GPU_MEMORY = "GpuMemory"
    HOST_MEMORY = "HostMemory"
    GPU_COMMUNICATION = "GpuCommunication"
    """NCCL, or the shared memory between the engine's processes."""
    GPU_DRIVER = "GpuDriver"
    GPU_UNSUPPORTED = "GpuUnsupported"
    """This kind of GPU lacks what dtype, quantisation or the image's kernels need."""
    PORT_TAKEN = "PortTaken"
    STARTUP_TIMEOUT = "StartupTimeout"
    STALLED = "Stalled"
    ENGINE_CRASHED = "EngineCrashed"
    """Ended with an error that no rule knows; retryable, since unknown stays unknown."""
