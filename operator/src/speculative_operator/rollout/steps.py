"""The steps of a rollout and what each needs: weights, pods, time."""

import hashlib
import json
from math import ceil

from speculative_api.v1alpha1 import CanaryStatus, PauseStep, Rollout, RolloutStep, ShadowStep
from speculative_operator.snapshot import Snapshot

DEFAULT_STEPS = (
    RolloutStep(weight=10),
    RolloutStep(pause=PauseStep(duration_seconds=300)),
)
"""What a rollout without steps does, as the field's description says."""


def steps_of(rollout: Rollout) -> tuple[RolloutStep, ...]:
    """The steps in force."""
    return tuple(rollout.steps) or DEFAULT_STEPS


def steps_hash(rollout: Rollout) -> str:
    """Digest of the steps in force: 10 hexadecimal characters."""
    words = [step.model_dump(mode="json", exclude_defaults=True) for step in steps_of(rollout)]
    text = json.dumps(words, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def step_at(rollout: Rollout, index: int) -> RolloutStep | None:
    """One step; None before the first and after the last."""
    steps = steps_of(rollout)
    return steps[index] if 0 <= index < len(steps) else None


def step_weight(step: RolloutStep | None) -> int | None:
    """Percent of the users that a step leads to; None for a pause, which keeps what there is."""
    if step is None or step.pause is not None:
        return None
    return 0 if step.shadow is not None else step.weight


def step_seconds(canary: CanaryStatus, step: RolloutStep | None) -> int | None:
    """How long the canary waits in a step at most; None where time has not begun or has no say."""
    if step is None:
        return None
    if step.shadow is not None:
        return step.shadow.duration_seconds if canary.shadow_observed_at else None
    return step.pause.duration_seconds if step.pause is not None else None


def shadow_steps(rollout: Rollout) -> tuple[ShadowStep, ...]:
    """The steps that copy requests, in order."""
    return tuple(step.shadow for step in steps_of(rollout) if step.shadow is not None)


def is_finishing(rollout: Rollout, index: int) -> bool:
    """Whether all steps are behind and only promotion is left."""
    return index >= len(steps_of(rollout))


def canary_replicas(snapshot: Snapshot) -> int:
    """Pods the canary needs now: for its weight, for the step it enters, all for promotion.

    Surge sizing, design section 5: max(1, ceil(N w / 100)); stable keeps N.
    Copies are work like requests. Of a resource that is scaled to 0 nothing runs.
    """
    canary = snapshot.status.canary
    total = snapshot.spec.replicas
    if canary is None or total == 0:
        return 0
    rollout = snapshot.spec.rollout
    if is_finishing(rollout, canary.step):
        return total
    step = step_at(rollout, max(canary.step, 0))
    copied = step.shadow.percent if step and step.shadow else 0
    wanted = max(canary.weight, canary.shadow, copied, step_weight(step) or 0)
    return min(total, max(1, ceil(total * wanted / 100)))
