"""Gates of the short ways forward: a person skips one step, or all that are left.

Both name the canary, and a skip the step as well, so that one that comes late
moves nothing newer. Judging goes on, and promotion still waits for the pods.
"""

from speculative_api.labels import PROMOTE, PROMOTE_IN_FULL, SKIPPED_STEP
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.asking import asked_for
from speculative_operator.rollout.step_gates import enter
from speculative_operator.rollout.steps import is_finishing, steps_of
from speculative_operator.rollout.transition import Transition
from speculative_operator.snapshot import Snapshot


def promoted_in_full(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person waives every step that is left; a canary that still starts becomes ready first."""
    canary, count = snapshot.status.canary, len(steps_of(snapshot.spec.rollout))
    if canary is None or canary.step < 0 or is_finishing(snapshot.spec.rollout, canary.step):
        return None
    asked = asked_for(snapshot, PROMOTE, before=snapshot.status.observed_promote)
    if asked != f"{canary.hash}/{PROMOTE_IN_FULL}":
        return None
    waived = f"steps {canary.step + 1} to {count} of {count} are skipped"
    text = f"Revision {canary.revision} ({canary.hash}): {waived}, on request."
    return enter(snapshot, canary, count, Event("PromotedInFull", text))


def step_skipped(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person waives the step that the canary is in, whichever it is; its weight stays."""
    canary, count = snapshot.status.canary, len(steps_of(snapshot.spec.rollout))
    if canary is None or canary.step < 0 or is_finishing(snapshot.spec.rollout, canary.step):
        return None
    asked = asked_for(snapshot, PROMOTE, before=snapshot.status.observed_promote)
    if asked != f"{canary.hash}/{canary.step}/{SKIPPED_STEP}":
        return None
    text = (
        f"Revision {canary.revision} ({canary.hash}): step {canary.step + 1} of {count} is "
        f"skipped at {canary.weight} percent, on request."
    )
    return enter(snapshot, canary, canary.step + 1, Event("StepSkipped", text))
