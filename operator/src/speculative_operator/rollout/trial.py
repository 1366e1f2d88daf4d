"""Who is judged against whom at this moment."""

from dataclasses import dataclass

from speculative_api.v1alpha1 import (
    CanaryStatus,
    Rollout,
    RolloutStep,
    SpeculativeDeploymentStatus,
    StableStatus,
)
from speculative_operator.rollout.steps import steps_of


@dataclass(frozen=True, slots=True)
class Trial:
    """Candidate against control; `identity` changes whenever evidence must begin anew.

    An empty `control` is nobody: only absolute bounds can be judged.
    """

    candidate: str
    control: str
    identity: str
    shadow: bool = False
    """The candidate answers copies only."""


def trials_of(rollout: Rollout) -> int:
    """How many trials one rollout has, which share its chance of a false rollback.

    A shadow step is one, and divides users' requests into those before and after it.
    """
    found = 2 if rollout.guard.duration_seconds > 0 else 1
    before: RolloutStep | None = None
    for step in steps_of(rollout):
        if step.shadow is not None:
            found += 2 if before is not None and before.shadow is None else 1
        before = step
    return found


def had_copies_only(canary: CanaryStatus) -> bool:
    """Whether whatever its pods are at is for copies, and for no user."""
    return canary.shadow > 0 or (canary.shadow_started_at is not None and canary.weight == 0)


def trial_of(status: SpeculativeDeploymentStatus) -> Trial | None:
    """The trial that evidence is collected for; None while nobody is judged.

    A canary is judged from its first step on; after promotion the promoted
    revision is judged against the old one for as long as that is kept. What is
    seen of copies says nothing about users' requests and the other way round:
    between the two nobody is judged.
    """
    if status.stable is None:
        return None
    if status.guard is not None:
        if status.guard.returning_since is not None:
            return None
        alone = status.guard.keep != "Full" and status.guard.weight == 0
        candidate, control = status.stable.hash, "" if alone else status.guard.hash
        return Trial(candidate, control, f"{candidate}/guard/{status.guard.started_at}")
    if status.canary is not None and status.canary.step >= 0:
        return _canary_trial(status.canary, status.stable)
    return None


def _canary_trial(canary: CanaryStatus, stable: StableStatus) -> Trial | None:
    if canary.shadow > 0:
        if canary.shadow_observed_at is None:
            return None
        identity = f"{canary.hash}/shadow/{canary.shadow_observed_at}"
        return Trial(canary.hash, stable.hash, identity, shadow=True)
    if had_copies_only(canary):
        return None
    began = canary.shadow_started_at or canary.started_at
    return Trial(canary.hash, stable.hash, f"{canary.hash}/canary/{began}")
