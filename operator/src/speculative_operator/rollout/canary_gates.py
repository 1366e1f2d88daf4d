"""Gates about the canary: its start, its health, its verdict, its promotion."""

from dataclasses import replace

from speculative_api.conditions import Reason
from speculative_api.labels import ABORT, PROMOTE
from speculative_api.v1alpha1 import (
    CanaryStatus,
    StableStatus,
)
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.asking import is_abort_waiting, present
from speculative_operator.rollout.at_zero import is_resting
from speculative_operator.rollout.blocked import (
    Blockage,
    blockage,
    is_waiting,
    node_is_coming,
    parked_again,
)
from speculative_operator.rollout.cap import parked
from speculative_operator.rollout.capacity import canary_goal
from speculative_operator.rollout.hard_guard import catastrophe
from speculative_operator.rollout.load import load_words
from speculative_operator.rollout.preflight_gates import checked
from speculative_operator.rollout.restarting import is_restarting
from speculative_operator.rollout.returning import new_guard
from speculative_operator.rollout.shadow_gates import is_judged
from speculative_operator.rollout.shadowing import copies_are_over
from speculative_operator.rollout.steps import (
    is_finishing,
    step_at,
    steps_hash,
    steps_of,
)
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import (
    Transition,
    canary_ends,
    has_failed,
    next_number,
    retire,
    transition,
    verdict,
    wanted,
)
from speculative_operator.snapshot import Snapshot


def abort_requested(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person said abort, naming this canary."""
    if not is_abort_waiting(snapshot.status, snapshot.annotations):
        return None
    message = "aborted on request; not tried again until retry"
    return canary_ends(
        snapshot, outcome="Aborted", reason=Reason.ABORTED, message=message, failed=True
    )


def canary_superseded(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The spec asks for something else now: back to stable, or another revision."""
    canary, stable = snapshot.status.canary, snapshot.status.stable
    revision = wanted(snapshot)
    if canary is None or stable is None or revision == canary.hash:
        return None
    message = (
        "the spec went back to the stable revision"
        if revision == stable.hash
        else f"the spec asks for {revision} now"
    )
    return canary_ends(
        snapshot, outcome="Superseded", reason=Reason.SUPERSEDED, message=message, failed=False
    )


def canary_cannot_start(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A pod of the canary ended with a reason that no retry can cure."""
    canary = snapshot.status.canary
    if canary is None:
        return None
    for end in snapshot.ends(canary.hash):
        if not end.retryable:
            return canary_ends(
                snapshot,
                outcome="RolledBack",
                reason=end.reason,
                message=end.detail,
                failed=True,
            )
    return None


def canary_unhealthy(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """The hard guard beside the evidence."""
    canary, stable = snapshot.status.canary, snapshot.status.stable
    if canary is None or stable is None:
        return None
    found = catastrophe(snapshot, assessment, candidate=canary.hash, control=stable.hash)
    if found is None:
        return None
    return canary_ends(
        snapshot, outcome="RolledBack", reason=found.reason, message=found.message, failed=True
    )


def canary_worse(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """A metric has enough evidence of being worse than its limit."""
    metric = assessment.failed
    if snapshot.status.canary is None or metric is None:
        return None
    return canary_ends(
        snapshot,
        outcome="RolledBack",
        reason=metric.reason,
        message=metric.message,
        failed=True,
    )


def canary_late(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The canary is not ready and its deadline passed; also when it lost its pods on the way."""
    canary = snapshot.status.canary
    if canary is None or is_resting(snapshot):
        return None
    ready, needed = snapshot.ready_pods(canary.hash), canary_goal(snapshot)
    if ready > 0 and (ready >= needed or not _waits_for_pods(snapshot, canary)):
        return None
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    since = canary.started_at if canary.step < 0 else canary.unready_since
    if ready > 0 and canary.step >= 0:
        since = canary.step_started_at
    waited = seconds_since(since, snapshot.now)
    if waited < deadline:
        return None
    why = snapshot.waiting_reason(canary.hash)
    pods = "no pod" if ready == 0 else f"{ready} of {needed} pods"
    message = f"{pods} ready after {waited:.0f} s (progressDeadlineSeconds {deadline})"
    found = blockage(snapshot, canary.hash)
    if found is not None and node_is_coming(snapshot, waited):
        return None
    if found is not None:
        return _park(snapshot, canary, found, f"{message}; {found.words}")
    return canary_ends(
        snapshot,
        outcome="RolledBack",
        reason=Reason.PROGRESS_DEADLINE_EXCEEDED,
        message=f"{message}; {why}" if why else message,
        failed=True,
    )


def _waits_for_pods(snapshot: Snapshot, canary: CanaryStatus) -> bool:
    """Whether the rollout stands still until more pods are ready; a pause does not."""
    step = step_at(snapshot.spec.rollout, canary.step)
    stands = canary.step < 0 or step is None or step.pause is None
    if step is not None and step.shadow is not None:
        stands = not is_judged(canary, step.shadow)
    return stands and canary.held is None


def _park(snapshot: Snapshot, canary: CanaryStatus, found: Blockage, message: str) -> Transition:
    entry = parked_again(snapshot, canary.hash, found, message)
    message = f"{message}. No failure of the revision: tried again at {entry.until}, or after retry"
    ended = canary_ends(
        snapshot, outcome="Parked", reason=found.reason, message=message, failed=False
    )
    warned = tuple(replace(event, reason=found.reason, type="Warning") for event in ended.events)
    return Transition(ended.status.model_copy(update={"parked": entry}), warned)


def canary_promoted(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """All steps are behind and the canary has stable's capacity: it becomes stable."""
    status = snapshot.status
    canary, old = status.canary, status.stable
    if canary is None or old is None or not is_finishing(snapshot.spec.rollout, canary.step):
        return None
    if snapshot.ready_pods(canary.hash) < canary_goal(snapshot):
        return None
    if not copies_are_over(snapshot, canary):
        return None
    now = stamp(snapshot.now)
    stable = StableStatus(revision=canary.revision, hash=canary.hash, available_at=now)
    proven = assessment.all_passed
    how = "every metric shows 'not worse'" if proven else "nothing points to worse"
    details = "; ".join(metric.message for metric in assessment.metrics)
    load = load_words(snapshot, candidate=canary.hash, control=old.hash)
    text = f"Revision {canary.revision} ({canary.hash}) is stable: {how}. {details}".rstrip()
    if load:
        text = f"{text} {load[0].upper()}{load[1:]}"
    guard = snapshot.spec.rollout.guard
    kept = None
    retiring = status.retiring
    if guard.duration_seconds > 0:
        kept = new_guard(snapshot, old)
    if kept is None or kept.keep == "None":
        retiring = retire(snapshot, old.hash)
    return transition(
        snapshot,
        Event(Reason.PROMOTED, text),
        stable=stable,
        canary=None,
        parked=None,
        guard=kept,
        retiring=retiring,
        verdict=verdict(
            snapshot, canary.hash, outcome="Promoted", reason=Reason.PROMOTED, message=text
        ),
    )


def canary_started(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The spec asks for a revision that is neither stable nor failed, and the way is free."""
    status = snapshot.status
    revision = wanted(snapshot)
    if status.stable is None or revision is None or revision == status.stable.hash:
        return None
    if status.canary is not None or status.guard is not None or status.retiring:
        return None
    if (
        has_failed(snapshot, revision)
        or parked(snapshot)
        or is_waiting(snapshot)
        or is_restarting(snapshot)
    ):
        return None
    now = stamp(snapshot.now)
    number = next_number(snapshot, revision)
    canary = CanaryStatus(
        revision=number,
        hash=revision,
        started_at=now,
        steps_hash=steps_hash(snapshot.spec.rollout),
        step_started_at=now,
    )
    count = len(steps_of(snapshot.spec.rollout))
    event = Event(
        Reason.CANARY_STARTING, f"Revision {number} ({revision}) is tried in {count} steps."
    )
    start = transition(
        snapshot,
        event,
        canary=canary,
        observed_abort=present(snapshot, ABORT),
        observed_promote=present(snapshot, PROMOTE),
    )
    return checked(snapshot, revision, start)
