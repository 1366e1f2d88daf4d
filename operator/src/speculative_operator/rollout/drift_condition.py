"""The condition AcceptanceDrifted: stable beside its own first hours, in words."""

from typing import Literal

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import Drift, DriftAction, DriftStatus, Method
from speculative_operator.decision import Assessment, DriftFinding
from speculative_operator.rollout.drifting import (
    drift_of,
    is_in_vain,
    is_quiet,
    seconds_to_recycle,
)
from speculative_operator.rollout.restarting import is_restarting, restart_of_stable
from speculative_operator.rollout.unaided import unaided_revision, unaided_share
from speculative_operator.snapshot import Snapshot

Found = tuple[ConditionType, Literal["True", "False", "Unknown"], Reason, str]

POINTS_TO_WORSE = 3.0
"""Evidence from which it is shown; below it, it only makes status move."""
_ENDS = "Speculation comes back with `kubectl speculative recover`, or with a new spec."
_KIND = ConditionType.ACCEPTANCE_DRIFTED


def drift_condition(snapshot: Snapshot, assessment: Assessment) -> Found | None:
    """State, reason and sentence; None where the spec does not ask."""
    wish, drift = snapshot.spec.rollout.drift, drift_of(snapshot)
    if wish is None:
        return None
    if _drafts_nothing(snapshot):
        return _KIND, "Unknown", Reason.NOT_CONFIGURED, "The stable revision drafts nothing."
    found = assessment.drift
    if drift is None or drift.state == "Measuring":
        message = "Not judged during a rollout, a guard or a restart."
        if is_quiet(snapshot):
            said = found.message if found is not None else "nothing measured yet"
            message = f"The baseline is being measured: {said}."
        return _KIND, "Unknown", Reason.BASELINE_MISSING, message
    match drift.state:
        case "Steady":
            return _KIND, "False", Reason.ACCEPTANCE_STEADY, _steady(drift, found)
        case "Drifted":
            return _KIND, "True", *_drifted(snapshot, wish, drift)
        case "Recycled":
            text = f"{_recycling(snapshot)} Before: {drift.message}."
            return _KIND, "True", Reason.PODS_RECYCLED, text
        case "Disabled":
            return _KIND, "True", Reason.SPECULATION_DISABLED, _disabled(snapshot, drift)


def _drafts_nothing(snapshot: Snapshot) -> bool:
    stable = snapshot.status.stable
    digests = [p.digest for p in snapshot.pods_of(stable.hash) if p.digest] if stable else []
    return bool(digests) and all(digest.method == Method.NONE for digest in digests)


def _steady(drift: DriftStatus, found: DriftFinding | None) -> str:
    """Rounded, so that a quiet deployment does not rewrite its status at every block."""
    if found is not None and found.worse >= POINTS_TO_WORSE:
        return f"Not shown: {found.message}."
    known = drift.baseline
    base = f"{known.accepted_tokens / known.steps:.2f}" if known is not None else "?"
    said = f"Stable accepted {base} draft tokens per step in its first hours"
    if found is None or found.percent is None:
        return f"{said}; nothing points to less."
    return f"{said}, and about {5 * round(found.percent / 5)} percent of that now."


def _drifted(snapshot: Snapshot, wish: Drift, drift: DriftStatus) -> tuple[Reason, str]:
    said = f"Shown at {drift.since}: {drift.message}."
    if is_in_vain(wish, drift):
        why = f"{drift.recycles} recycles did not help, pods are left alone"
        return Reason.RECYCLING_IN_VAIN, f"{said} {why} until `kubectl speculative recover`."
    if wish.action is DriftAction.RECYCLE_PODS:
        restart = restart_of_stable(snapshot)
        if restart is not None and restart.outcome in ("Stalled", "Reverted"):
            return Reason.ACCEPTANCE_DRIFTED, f"{said} The last restart of its pods stalled."
        if (wait := seconds_to_recycle(snapshot, wish, drift)) > 0:
            minutes = -(-wait // 300) * 5
            said = f"{said} Its pods are replaced in about {minutes:.0f} minutes."
    return Reason.ACCEPTANCE_DRIFTED, said


def _recycling(snapshot: Snapshot) -> str:
    if is_restarting(snapshot):
        return "Pods are being replaced one at a time."
    return "Pods were replaced and are judged anew."


def _disabled(snapshot: Snapshot, drift: DriftStatus) -> str:
    revision, share = unaided_revision(snapshot), unaided_share(snapshot)
    if revision is None:
        return f"The words of {drift.hash} are lost: nothing can take its traffic. {_ENDS}"
    if share is None:
        return f"Stable serves again while a canary is judged or guarded. {_ENDS}"
    ready, asked = snapshot.ready_pods(revision), snapshot.spec.replicas
    why = "" if ready >= asked else snapshot.waiting_reason(revision)
    said = f"{ready} of {asked} pods without speculation are ready and take {share.weight} percent."
    return " ".join(part for part in (said, why, f"{drift.message}.", _ENDS) if part)
