"""Who is judged against whom at this moment."""

from dataclasses import dataclass

from speculative_api.v1alpha1 import Rollout, SpeculativeDeploymentStatus


@dataclass(frozen=True, slots=True)
class Trial:
    """Candidate against control; `identity` changes whenever evidence must begin anew.

    An empty `control` is nobody: only absolute bounds can be judged.
    """

    candidate: str
    control: str
    identity: str


def trials_of(rollout: Rollout) -> int:
    """How many trials one rollout has, which share its chance of a false rollback."""
    return 2 if rollout.guard.duration_seconds > 0 else 1


def trial_of(status: SpeculativeDeploymentStatus) -> Trial | None:
    """The trial that evidence is collected for; None while nobody is judged.

    A canary is judged from its first step on; after promotion the promoted
    revision is judged against the old one for as long as that is kept.
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
        candidate, control = status.canary.hash, status.stable.hash
        return Trial(candidate, control, f"{candidate}/canary/{status.canary.started_at}")
    return None
