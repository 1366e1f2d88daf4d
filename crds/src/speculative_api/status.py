"""The status of a SpeculativeDeployment, version v1alpha1: the operator's only memory.

Part of `v1alpha1`, which is where everybody imports these types from.
"""

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from speculative_api.base import Model


class Condition(Model):
    """A condition, as everywhere in Kubernetes."""

    type: str = Field(max_length=316, description="Kind of condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(max_length=1024, description="Constant in CamelCase.")
    message: str = Field(default="", max_length=32_768, description="Sentence with the numbers.")
    observed_generation: int = Field(default=0, description="Generation this was derived from.")
    last_transition_time: str = Field(description="When status last changed (RFC 3339).")


class StableStatus(Model):
    """The revision that users can rely on."""

    revision: int = Field(description="Number in the history.")
    hash: str = Field(max_length=10, description="Hash of the revision's words.")
    replicas: int = Field(default=0, description="Pods asked for.")
    ready_replicas: int = Field(default=0, description="Pods ready.")
    available_at: str | None = Field(
        default=None,
        description="When it first had all its pods ready (RFC 3339); a revision without this is "
        "replaced directly, since there is nothing to protect.",
    )
    acceptance_length: str | None = Field(
        default=None,
        max_length=16,
        description="Tokens per decoding step since its pods started, pooled over them.",
    )


class CanaryStatus(Model):
    """The revision on trial."""

    revision: int = Field(description="Number in the history.")
    hash: str = Field(max_length=10, description="Hash of the revision's words.")
    started_at: str = Field(description="When the trial began (RFC 3339).")
    step: int = Field(default=-1, description="Index into rollout.steps; -1 until ready.")
    steps_hash: str | None = Field(
        default=None,
        max_length=10,
        description="Digest of the steps it follows: other steps begin at their first.",
    )
    step_started_at: str = Field(description="When the present step began (RFC 3339).")
    weight: int = Field(default=0, description="Percent of traffic decided.")
    observed_weight: int = Field(default=0, description="Highest percent any gateway uses.")
    weight_observed_at: str | None = Field(
        default=None, description="When every gateway used the decided weight (RFC 3339)."
    )
    settled_weight: int = Field(
        default=0,
        description="Percent that every gateway was last seen to use: with dynamicStable, stable "
        "has pods for the rest.",
    )
    shadow: int = Field(
        default=0, description="Percent of users' requests that are to be copied to it."
    )
    observed_shadow: int = Field(
        default=0, description="Highest percent that any gateway copies to it."
    )
    shadow_started_at: str | None = Field(
        default=None,
        description="When its last copies were decided (RFC 3339); what came before is no evidence "
        "of what comes after.",
    )
    shadow_observed_at: str | None = Field(
        default=None, description="When every gateway made them (RFC 3339)."
    )
    replicas: int = Field(default=0, description="Pods asked for.")
    ready_replicas: int = Field(default=0, description="Pods ready.")
    acceptance_length: str | None = Field(
        default=None,
        max_length=16,
        description="Tokens per decoding step since its pods started, pooled over them.",
    )
    unready_since: str | None = Field(
        default=None,
        description="Since when none of its pods is ready, once its steps have begun (RFC 3339).",
    )
    held: str | None = Field(
        default=None,
        max_length=64,
        description="Why the rollout waits for a person, or rests, if it does: a reason constant.",
    )


class GuardStatus(Model):
    """The old revision that is kept after a promotion."""

    revision: int = Field(description="Number in the history.")
    hash: str = Field(max_length=10, description="Hash of the old revision.")
    started_at: str = Field(description="When the promotion was decided (RFC 3339).")
    weight: int = Field(description="Percent of traffic it keeps as control.")
    keep: Literal["Full", "One", "None"] = Field(
        default="Full", description="Pods of it that are kept: rollout.guard.keep at the promotion."
    )
    weight_observed_at: str | None = Field(
        default=None,
        description="With keep One: when every gateway had turned to the promoted revision, so "
        "that the other pods could go (RFC 3339).",
    )
    returning_since: str | None = Field(
        default=None,
        description="Since when it is brought back to full strength to take over again (RFC 3339).",
    )


class RetiringStatus(Model):
    """A revision on its way out: weight 0, streams, cluster, pods, in this order."""

    hash: str = Field(max_length=10, description="Hash of the revision.")
    since: str = Field(description="When its removal was decided (RFC 3339).")
    weight: int = Field(
        default=0,
        description="Percent that it keeps at most until stable has the pods that it gave up.",
    )
    route_removed_at: str | None = Field(
        default=None, description="When it was taken out of the route (RFC 3339)."
    )


class RestartStatus(Model):
    """The last restart of stable's pods: one at a time, drained, on request."""

    hash: str = Field(max_length=10, description="Hash of the revision.")
    at: str = Field(description="When it began (RFC 3339).")
    stamp: str = Field(max_length=64, description="What its pods carry as an annotation.")
    stamp_before: str | None = Field(
        default=None,
        max_length=64,
        description="What the pods carried before, if they were restarted already.",
    )
    render: int | None = Field(
        default=None,
        description="Number of the pod template that it takes in; absent: the template stays.",
    )
    outcome: Literal["Done", "Stalled", "Reverted"] | None = Field(
        default=None,
        description="Absent while it goes on. Stalled: no pod became ready in time, Kubernetes "
        "goes on trying. Reverted: the same with a new template, which was taken back.",
    )
    message: str = Field(default="", max_length=4096, description="Why it stalled.")
    ended_at: str | None = Field(default=None, description="When the outcome was known (RFC 3339).")


class DriftBaseline(Model):
    """What stable accepted in its first hours."""

    accepted_tokens: int = Field(ge=0, description="Accepted draft tokens.")
    steps: int = Field(ge=1, description="Decoding steps they were accepted in.")
    noise_millionths: int = Field(
        ge=0,
        description="How much the rate moved from block to block: its variance times the steps of "
        "a block, in millionths.",
    )
    measured_at: str = Field(description="When it was complete (RFC 3339).")


class DriftStatus(Model):
    """Whether stable still accepts what it used to (rollout.drift)."""

    hash: str = Field(max_length=10, description="Hash of the revision.")
    state: Literal["Measuring", "Steady", "Drifted", "Recycled", "Disabled"] = Field(
        description="Measuring: its baseline. Steady: judged, and not shown worse. Drifted: shown "
        "worse. Recycled: its pods were replaced, and are judged anew. Disabled: shown worse, and "
        "pods without speculation take its traffic."
    )
    since: str = Field(description="When this state began (RFC 3339).")
    round: int = Field(default=0, description="Rises whenever evidence begins anew.")
    baseline: DriftBaseline | None = Field(
        default=None, description="Absent while it is being measured."
    )
    recycles: int = Field(default=0, description="Recycles in a row that did not help.")
    recycled_at: str | None = Field(
        default=None, description="When the last recycle began (RFC 3339)."
    )
    message: str = Field(default="", max_length=1024, description="The arithmetic of the alarm.")


class PendingNotification(Model):
    """Something that receivers are yet to be told of."""

    id: str = Field(max_length=64, description="Names it for ever: one told twice has the same.")
    event: str = Field(
        max_length=32, description="Started, Paused, Promoted, RolledBack or Drifted."
    )
    hash: str = Field(default="", max_length=10, description="Revision it is about.")
    reason: str = Field(max_length=64, description="Constant in CamelCase.")
    message: str = Field(max_length=1024, description="With the arithmetic.")
    happened_at: str = Field(description="When (RFC 3339).")


class IdleStatus(Model):
    """Pods were released because nobody asked."""

    since: str = Field(description="When that was decided (RFC 3339).")
    woken_at: str | None = Field(
        default=None, description="When they were wanted again; until one is ready (RFC 3339)."
    )


class FailedRevision(Model):
    """A revision that is not tried again until somebody says retry."""

    hash: str = Field(max_length=10, description="Hash of the revision.")
    reason: str = Field(max_length=64, description="Constant in CamelCase.")
    message: str = Field(default="", max_length=4096, description="With the arithmetic.")
    at: str = Field(description="When it failed (RFC 3339).")


class ParkedStatus(Model):
    """A revision that could not begin and did not fail: it is tried again by itself."""

    hash: str = Field(max_length=10, description="Hash of the revision.")
    reason: str = Field(
        max_length=64,
        description="CapacityBlocked, ImageUnavailable, HubUnreachable or PreflightStalled.",
    )
    message: str = Field(default="", max_length=1024, description="With the scheduler's words.")
    attempts: int = Field(description="Attempts so far; the wait doubles with each.")
    until: str = Field(description="When it is tried again (RFC 3339).")


class PreflightStatus(Model):
    """What a Job does for a revision before any of its pods is made."""

    hash: str = Field(max_length=10, description="Hash of the revision.")
    started_at: str = Field(
        description="When it was decided (RFC 3339); the Job's name has this moment in it."
    )
    stage: Literal["Check", "Download"] = Field(
        default="Check",
        description="Check: its models' files are judged. Download: they are fetched into the "
        "cache. Default Check.",
    )
    outcome: Literal["Passed"] | None = Field(
        default=None,
        description="Absent while it goes on. One that failed or was parked is in failedRevisions "
        "or parked instead.",
    )
    message: str = Field(
        default="", max_length=4096, description="What often disappoints, as the check found it."
    )


class Verdict(Model):
    """The last decision about a canary."""

    hash: str = Field(max_length=10, description="Revision it is about.")
    outcome: Literal["Promoted", "RolledBack", "Aborted", "Superseded", "GuardPassed", "Parked"] = (
        Field(description="What was decided.")
    )
    reason: str = Field(max_length=64, description="Constant in CamelCase.")
    message: str = Field(max_length=4096, description="With the arithmetic.")
    at: str = Field(description="When (RFC 3339).")


class GroupFailure(Model):
    """A group of pods (target.nodesPerReplica) that was made anew since one of its pods ended.

    Nothing else remembers it: the new group's pods have no restarts.
    """

    hash: str = Field(max_length=10, description="Revision it is of.")
    uid: str = Field(max_length=64, description="UID of the group's leader, which names the group.")
    reason: str = Field(max_length=64, description="Constant in CamelCase, by the worker.")
    retryable: bool = Field(description="Whether a new group can fare better.")
    message: str = Field(max_length=1024, description="Last words of the pod that ended.")
    at: str = Field(description="When it was seen (RFC 3339).")


class SpeculativeDeploymentStatus(Model):
    """What the operator saw and decided; it is the operator's only memory."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )
    observed_generation: int = Field(default=0, description="Newest generation acted on.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        description="Accepted, Available, Progressing, SpeculationActive, GatewayReady, "
        "AutoscalingActive, Idle, AcceptanceDrifted.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    stable: StableStatus | None = Field(default=None, description="The revision in service.")
    canary: CanaryStatus | None = Field(default=None, description="The revision on trial.")
    guard: GuardStatus | None = Field(default=None, description="The kept old revision.")
    retiring: list[RetiringStatus] = Field(
        default_factory=list, max_length=32, description="Revisions on their way out."
    )
    failed_revisions: list[FailedRevision] = Field(
        default_factory=list, max_length=32, description="Not tried again until retried."
    )
    group_failures: list[GroupFailure] = Field(
        default_factory=list,
        max_length=16,
        description="Groups that ended within the last hour, the newest last.",
    )
    parked: ParkedStatus | None = Field(
        default=None, description="The revision that waits for GPUs, an image or a hub."
    )
    preflight: PreflightStatus | None = Field(
        default=None,
        description="What is done for the revision that is about to start, with rollout.preflight "
        "or rollout.download Job.",
    )
    verdict: Verdict | None = Field(default=None, description="The last decision.")
    observed_retry: str | None = Field(
        default=None, max_length=256, description="Last retry annotation acted on."
    )
    pending_notifications: list[PendingNotification] = Field(
        default_factory=list,
        max_length=16,
        description="What receivers are yet to be told of; the oldest is given up first.",
    )
    idle: IdleStatus | None = Field(
        default=None, description="Set while pods are released, or on their way back."
    )
    load_seconds: int | None = Field(
        default=None, description="Seconds from the last wake to its first ready pod."
    )
    restart: RestartStatus | None = Field(default=None, description="The last restart.")
    drift: DriftStatus | None = Field(
        default=None, description="Stable beside its own first hours."
    )
    observed_recover: str | None = Field(
        default=None, max_length=256, description="Last recover annotation acted on."
    )
    observed_restart: str | None = Field(
        default=None, max_length=256, description="Last restart annotation acted on."
    )
    observed_abort: str | None = Field(
        default=None,
        max_length=256,
        description="Abort annotation that was there when the last trial began: not meant for it.",
    )
    observed_promote: str | None = Field(
        default=None,
        max_length=256,
        description="Promote annotation that was there when the last trial began: not meant for "
        "it.",
    )
    route_sequence: int = Field(
        default=0, description="Highest sequence of a route that a gateway may have used."
    )
    replicas: int = Field(default=0, description="Serving accelerated pods.")
    selector: str = Field(
        default="", max_length=1024, description="Label selector of those pods, for scalers."
    )
    message: str = Field(
        default="", max_length=1024, description="One line that answers: what is going on?"
    )
