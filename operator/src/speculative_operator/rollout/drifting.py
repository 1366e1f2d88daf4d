"""Gates of drift: stable against its own first hours, and what is done when it has sunk.

Nothing is judged during a rollout, a guard, a removal or a restart, and no data
is no drift. What evidence was collected for is named by `question`; a finding
about another question is not looked at. A recycle that does not help is
repeated later and later, and only so often.
"""

from speculative_api.conditions import Reason
from speculative_api.labels import REBASELINE, RECOVER
from speculative_api.v1alpha1 import Drift, DriftAction, DriftBaseline, DriftStatus
from speculative_operator.decision import (
    BASELINE_BLOCKS,
    Assessment,
    Baseline,
    DriftFinding,
    DriftQuestion,
    Event,
)
from speculative_operator.rollout.restarting import begun, is_restarting, restart_of_stable
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot

MILLION = 1_000_000


def is_quiet(snapshot: Snapshot) -> bool:
    """Whether stable serves alone and unchanged, so that its figures are its own."""
    status = snapshot.status
    if status.stable is None or status.stable.available_at is None or is_restarting(snapshot):
        return False
    return not (status.canary or status.guard or status.retiring or status.idle)


def drift_of(snapshot: Snapshot) -> DriftStatus | None:
    """What is remembered, if it is about the present stable revision."""
    stable, drift = snapshot.status.stable, snapshot.status.drift
    return drift if stable is not None and drift is not None and drift.hash == stable.hash else None


def question(snapshot: Snapshot) -> DriftQuestion | None:
    """What evidence is collected for at this moment; None: nothing."""
    wish, drift = snapshot.spec.rollout.drift, drift_of(snapshot)
    if wish is None or drift is None or drift.state == "Disabled" or not is_quiet(snapshot):
        return None
    baseline = _baseline(drift)
    asks = "baseline" if baseline is None else f"{wish.min_percent_of_baseline} percent"
    return DriftQuestion(
        identity=f"{drift.hash}/{drift.since}/{drift.round}/{wish.baseline_seconds} s/{asks}",
        revision=drift.hash,
        block_seconds=wish.baseline_seconds / BASELINE_BLOCKS,
        least_share=wish.min_percent_of_baseline / 100,
        baseline=baseline,
    )


def _baseline(drift: DriftStatus) -> Baseline | None:
    known = drift.baseline
    if known is None:
        return None
    return Baseline(known.accepted_tokens, known.steps, known.noise_millionths / MILLION)


def _finding(snapshot: Snapshot, assessment: Assessment) -> DriftFinding | None:
    asked, found = question(snapshot), assessment.drift
    return found if asked is not None and found and found.identity == asked.identity else None


def _turn(snapshot: Snapshot, drift: DriftStatus, *events: Event, **changes: object) -> Transition:
    """Another state, from now on; evidence begins anew."""
    update = {"since": stamp(snapshot.now), "round": drift.round + 1, **changes}
    return transition(snapshot, *events, drift=drift.model_copy(update=update))


def drift_forgotten(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Nobody asks any more, or another revision is stable and the old one will not return."""
    status = snapshot.status
    if status.drift is None:
        return None
    elsewhere = drift_of(snapshot) is None and status.guard is None
    if snapshot.spec.rollout.drift is not None and not elsewhere:
        return None
    return transition(snapshot, drift=None)


def drift_begun(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Stable serves alone: its baseline is measured."""
    status = snapshot.status
    if snapshot.spec.rollout.drift is None or status.drift is not None or status.stable is None:
        return None
    if not is_quiet(snapshot):
        return None
    drift = DriftStatus(hash=status.stable.hash, state="Measuring", since=stamp(snapshot.now))
    return transition(snapshot, drift=drift)


def recover_requested(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person ends what drift did: the same baseline again, or a new one."""
    asked, status = snapshot.annotations.get(RECOVER), snapshot.status
    if not asked or asked == status.observed_recover or len(asked) > 256 or status.stable is None:
        return None
    named, drift = asked.partition("@")[0], drift_of(snapshot)
    revision, slash, option = named.partition("/")
    if revision != status.stable.hash or slash + option not in ("", f"/{REBASELINE}"):
        why = f"{named!r} is not the stable revision {status.stable.hash}, with or without /"
        event = Event("RecoverRefused", f"Nothing recovers: {why}{REBASELINE}.", "Warning")
        return transition(snapshot, event, observed_recover=asked)
    if drift is None:
        event = Event("RecoverRefused", "Nothing recovers: drift is not judged.", "Warning")
        return transition(snapshot, event, observed_recover=asked)
    baseline = None if option == REBASELINE else drift.baseline
    against = "the same baseline" if baseline is not None else "a new baseline"
    event = Event("Recovered", f"On request {revision} is judged anew, against {against}.")
    found = _turn(
        snapshot,
        drift,
        event,
        state="Steady" if baseline is not None else "Measuring",
        baseline=baseline,
        recycles=0,
        message="",
    )
    return Transition(found.status.model_copy(update={"observed_recover": asked}), found.events)


def baseline_measured(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """The first hours are over."""
    drift, found = drift_of(snapshot), _finding(snapshot, assessment)
    if drift is None or found is None or found.baseline is None or drift.baseline is not None:
        return None
    known = DriftBaseline(
        accepted_tokens=found.baseline.accepted,
        steps=found.baseline.steps,
        noise_millionths=round(found.baseline.noise * MILLION),
        measured_at=stamp(snapshot.now),
    )
    text = (
        f"{drift.hash} accepted {found.baseline.rate:.2f} draft tokens per step in its first hours "
        f"({known.accepted_tokens} in {known.steps} steps)."
    )
    event = Event("BaselineMeasured", text)
    return _turn(snapshot, drift, event, state="Steady", baseline=known)


def drift_shown(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """There is enough evidence that stable has sunk below the limit."""
    drift, found = drift_of(snapshot), _finding(snapshot, assessment)
    wish = snapshot.spec.rollout.drift
    if drift is None or found is None or wish is None or not found.is_drifted:
        return None
    if drift.state not in ("Steady", "Recycled"):
        return None
    event = Event(
        Reason.ACCEPTANCE_DRIFTED, f"{drift.hash} has drifted: {found.message}.", "Warning"
    )
    if is_in_vain(wish, drift):
        why = f"{drift.recycles} recycles did not help (maxRecycles), its pods are left alone"
        text = f"{why} until `kubectl speculative recover`. {event.message}"
        event = Event(Reason.RECYCLING_IN_VAIN, text, "Warning")
    return _turn(snapshot, drift, event, state="Drifted", message=found.message[:1024])


def is_in_vain(wish: Drift, drift: DriftStatus) -> bool:
    """Whether pods were replaced as often as is allowed, without any good."""
    return wish.action is DriftAction.RECYCLE_PODS and drift.recycles >= wish.max_recycles


def seconds_to_recycle(snapshot: Snapshot, wish: Drift, drift: DriftStatus) -> float:
    """How long the next recycle has to wait; longer after each that did not help."""
    if drift.recycled_at is None:
        return 0.0
    wait = wish.baseline_seconds * 2.0 ** max(drift.recycles - 1, 0)
    return max(0.0, wait - seconds_since(drift.recycled_at, snapshot.now))


def pods_recycled(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The action is RecyclePods, and it is time: stable's pods are replaced one at a time."""
    wish, drift, stable = snapshot.spec.rollout.drift, drift_of(snapshot), snapshot.status.stable
    if wish is None or drift is None or stable is None or drift.state != "Drifted":
        return None
    if wish.action is not DriftAction.RECYCLE_PODS or is_in_vain(wish, drift):
        return None
    before = restart_of_stable(snapshot)
    if before is not None and before.outcome in ("Stalled", "Reverted"):
        # What can't be replaced is not tried again by itself: the pods that serve are kept.
        return None
    if not is_quiet(snapshot) or seconds_to_recycle(snapshot, wish, drift) > 0:
        return None
    count = f"{drift.recycles + 1} of at most {wish.max_recycles}"
    text = f"{drift.hash}: its pods are replaced one at a time (recycle {count}): {drift.message}."
    found = _turn(
        snapshot,
        drift,
        Event(Reason.PODS_RECYCLED, text, "Warning"),
        state="Recycled",
        recycles=drift.recycles + 1,
        recycled_at=stamp(snapshot.now),
    )
    restart = begun(snapshot, stable, rerender=False)
    return Transition(found.status.model_copy(update={"restart": restart}), found.events)


def speculation_disabled(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The action is DisableSpeculation: pods without it start and take over as they are ready."""
    wish, drift = snapshot.spec.rollout.drift, drift_of(snapshot)
    if wish is None or drift is None or drift.state != "Drifted" or not is_quiet(snapshot):
        return None
    if wish.action is not DriftAction.DISABLE_SPECULATION:
        return None
    text = (
        f"{drift.hash}: {snapshot.spec.replicas} pods without speculation start and take its "
        f"traffic as they become ready: {drift.message}."
    )
    event = Event(Reason.SPECULATION_DISABLED, text, "Warning")
    return _turn(snapshot, drift, event, state="Disabled")


def speculation_enabled(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The action is no longer DisableSpeculation: stable serves again."""
    wish, drift = snapshot.spec.rollout.drift, drift_of(snapshot)
    if wish is None or drift is None or drift.state != "Disabled":
        return None
    if wish.action is DriftAction.DISABLE_SPECULATION:
        return None
    event = Event("SpeculationEnabled", f"{drift.hash} serves again: the action is {wish.action}.")
    return _turn(snapshot, drift, event, state="Drifted")


def drift_over(snapshot: Snapshot, assessment: Assessment) -> Transition | None:
    """What was shown to have sunk is shown to be back."""
    drift, found = drift_of(snapshot), _finding(snapshot, assessment)
    if drift is None or found is None or not found.is_steady:
        return None
    if drift.state not in ("Drifted", "Recycled"):
        return None
    event = Event(Reason.ACCEPTANCE_STEADY, f"{drift.hash} is back: {found.message}.")
    return _turn(snapshot, drift, event, state="Steady", recycles=0, message="")
