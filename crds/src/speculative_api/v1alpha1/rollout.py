"""How a new revision is tried: steps, guard, memory."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.analysis import Analysis
from speculative_api.v1alpha1.common import Opaque, Percent
from speculative_api.v1alpha1.drift import Drift
from speculative_api.v1alpha1.notifications import Notification


class PauseStep(Model):
    """A wait while the canary is judged."""

    duration_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_592_000,
        description="How long; the rollout goes on earlier once every metric has shown 'not "
        "worse'. Absent: until `kubectl speculative promote`.",
    )


class ShadowStep(Model):
    """Copies of users' requests for a canary without users; nobody gets its answers."""

    percent: int = Field(
        ge=1,
        le=100,
        description="Percent of the accelerated lane's requests that are copied. The canary has so "
        "many pods as this weight would need, and stable keeps all of its own.",
    )
    duration_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_592_000,
        description="How long, from the moment at which every gateway makes the copies; the "
        "rollout goes on earlier once every metric has shown 'not worse'. Absent: until `kubectl "
        "speculative promote`.",
    )
    max_concurrent_requests: int = Field(
        default=32,
        ge=1,
        le=100_000,
        description="Most copies in flight, over all gateway pods (each makes its part of them, "
        "rounded up); of more none is made, which is no error of the canary. Default 32.",
    )


class RolloutStep(Model):
    """One step of a rollout: exactly one of its fields."""

    model_config = configuration(
        rule(
            "has(self.verify) || (has(self.weight) ? 1 : 0) + (has(self.pause) ? 1 : 0) + "
            "(has(self.shadow) ? 1 : 0) == 1",
            "a step has exactly one of weight, pause and shadow: split it into two list items",
        ),
        rule(
            "!has(self.verify)",
            "verify is not available in this version, and would check nothing: use `pause: {}`, "
            "compare answers of the canary with those of lane native, then `kubectl speculative "
            "promote` or `abort`",
            ".verify",
        ),
    )
    weight: Percent | None = Field(
        default=None, description="Percent of traffic the canary gets from this step on."
    )
    pause: PauseStep | None = Field(default=None, description="A wait at the present weight.")
    shadow: ShadowStep | None = Field(
        default=None,
        description="Copies of users' requests go to the canary, which has weight 0 meanwhile, and "
        "its answers to nobody. They cost it whole generations. What is seen of it is evidence of "
        "this step alone: at a weight judging begins anew.",
    )
    verify: Opaque | None = Field(
        default=None,
        description="Refused: comparing the canary's output with the target's is not available in "
        "this version. Use `pause: {}` and compare answers by hand.",
    )


class GuardKeep(StrEnum):
    """How much of the old revision is kept after a promotion."""

    FULL = "Full"
    ONE = "One"
    NONE = "None"


class Place(StrEnum):
    """Where something is done for a new revision first."""

    IN_POD = "InPod"
    JOB = "Job"


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
    keep: GuardKeep = Field(
        default=GuardKeep.FULL,
        description="Pods of the old revision that are kept meanwhile. Full: all of them, so that "
        "a return takes seconds. One: one pod, whose share of the traffic is at most 100 divided "
        "by replicas; a return first waits for the others to start. None: it goes at once, only "
        "absolute bounds are judged, and a return starts it anew. Fixed at the promotion. Default "
        "Full.",
    )


class InconclusivePolicy(StrEnum):
    """What happens when a step's time is up and there was nothing to judge by."""

    PAUSE = "Pause"
    ABORT = "Abort"
    ADVANCE = "Advance"


class Capacity(StrEnum):
    """Where the pods of a canary come from."""

    SURGE = "Surge"
    IN_PLACE = "InPlace"


class CleanUpMode(StrEnum):
    """What is done with models that nobody uses."""

    REPORT = "Report"
    REMOVE = "Remove"


class CleanUp(Model):
    """What becomes of fetched models in the cache that no revision uses any more."""

    mode: CleanUpMode = Field(
        default=CleanUpMode.REPORT,
        description="Report: they are listed with their sizes in the event ModelsDownloaded and "
        "in the Job's log, and nothing is touched. Remove: they are removed, and listed likewise. "
        "Default Report.",
    )
    unused_hours: int = Field(
        default=168,
        ge=1,
        le=8760,
        description="Only what no pod of any installation has used for so long. Default 168.",
    )


class Rollout(Model):
    """How a new revision is tried."""

    model_config = configuration(
        rule(
            "self.capacity == 'Surge' || !self.dynamicStable",
            "with capacity InPlace stable gives up its pods anyway: leave dynamicStable out",
            ".dynamicStable",
        ),
        rule(
            "self.capacity == 'InPlace' || !self.allowDowntime",
            "with capacity Surge there is no downtime: leave allowDowntime out",
            ".allowDowntime",
        ),
        rule(
            "self.capacity == 'Surge' || (has(self.guard) && "
            "(self.guard.keep != 'Full' || self.guard.durationSeconds == 0))",
            "with capacity InPlace there is no room for a whole old revision: set guard.keep to "
            "One or None",
            ".guard.keep",
        ),
        rule(
            "self.capacity == 'Surge' || !has(self.steps) || self.steps.all(s, !has(s.shadow))",
            "with capacity InPlace the canary's pod is one of stable's, which has to serve every "
            "user during shadow: leave the shadow step out or use capacity Surge",
            ".steps",
        ),
        rule(
            "!has(self.cleanUp) || self.download == 'Job'",
            "a download Job cleans up before it fetches: set rollout.download Job, or leave "
            "rollout.cleanUp out",
            ".cleanUp",
        ),
    )

    steps: list[RolloutStep] = Field(
        default_factory=list,
        max_length=32,
        description="Taken in order; after the last the canary is promoted. Empty: one step of 10 "
        "percent for 300 seconds. With gateway.mode None only pauses, and a canary gets no users.",
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
        description="When a timed pause ends without anything to judge by, or the canary looks "
        "worse without proof: Pause (wait for a person; if it clears up, the pause begins again "
        "by itself), Abort, or Advance. Default Pause.",
    )
    preflight: Place = Field(
        default=Place.IN_POD,
        description="Where the files of a new revision's models are checked first. InPod: by its "
        "own pods, before the engine starts; they hold their GPUs meanwhile. Job: by a Job without "
        "a GPU, on the same kind of node with the same volumes and variables, before any of its "
        "pods is made; of hf:// and s3:// models it reads config, tokenizer and headers only. What "
        "can never work fails the revision, a hub that is away parks it. progressDeadlineSeconds "
        "counts for the Job, and anew for the pods, which check once more. Nothing is checked with "
        "a simulated engine. Default InPod.",
    )
    download: Place = Field(
        default=Place.IN_POD,
        description="Where hf:// and s3:// models are fetched. InPod: by a new revision's own "
        "pods, which hold their GPUs meanwhile. Job: by a Job without a GPU into the claim of "
        "modelCache, after the check if there is one and before any of its pods is made; every "
        "file is held against the checksums of where it came from. Files that are whole are not "
        "fetched again by the next attempt. progressDeadlineSeconds counts for it, and anew for "
        "the pods. Default InPod.",
    )
    clean_up: CleanUp | None = Field(
        default=None,
        description="Fetched models in the claim of modelCache that nobody uses any more are "
        "listed or removed by the download Job, before it fetches. Kept is what any resource of "
        "the namespace or any revision that is still recorded names, what a pod has used within "
        "unusedHours, and what was not fetched by a worker or a Job of this operator. Absent: "
        "nothing is looked at.",
    )
    max_rollbacks_per_hour: int = Field(
        default=0,
        ge=0,
        le=32,
        description="After so many revisions failed within an hour, further ones are parked: they "
        "are tried once the hour has passed, or after `kubectl speculative retry` of a failed one. "
        "What a person aborts does not count. 0, the default, parks nothing.",
    )
    capacity: Capacity = Field(
        default=Capacity.SURGE,
        description="Where the canary's pods come from. Surge: on top of stable's, so many as its "
        "weight needs, rounded up. InPlace: out of stable's, so many as its weight allows, rounded "
        "down, but one at least; one pod at a time is drained and replaced, the canary's share is "
        "at most its part of the pods, and it goes back the same way. For clusters without a "
        "spare GPU; meanwhile one pod is missing. Default Surge.",
    )
    dynamic_stable: bool = Field(
        default=False,
        description="Surge only: stable gives up the pods that its share no longer needs, once "
        "every gateway was seen to send the rest to the canary. They are back before it gets the "
        "traffic back: an aborted canary keeps a share until then. Default false.",
    )
    allow_downtime: bool = Field(
        default=False,
        description="InPlace only: replace the only pod of a deployment with one replica, with "
        "nobody serving until the new one is ready. Without it such a change is refused. Default "
        "false.",
    )
    notifications: list[Notification] = Field(
        default_factory=list,
        max_length=8,
        description="Webhooks that are told of the rollout, at least once each; one that is dead "
        "or slow delays nothing. Default none.",
    )
    drift: Drift | None = Field(
        default=None,
        description="Whether stable still accepts what it did in its first hours, and what is done "
        "when not. Not judged when absent.",
    )
    revision_history_limit: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Old revisions (ControllerRevisions) kept. Default 10.",
    )
