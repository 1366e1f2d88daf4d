"""Gates about what Jobs do for a revision before any of its pods is made: check, download.

With `rollout.preflight` or `rollout.download` Job the three gates that start a
revision go through `checked`: each stage is a transition of its own, and while
it goes on nothing of the revision exists, so that no other rule has to know of
it. A result is one more transition: passed, failed like a revision whose pod
said the same, or parked.
"""

from typing import Any, Final, Literal

from speculative_api.conditions import Reason, WorkerReason
from speculative_api.model_sources import is_fetched, model_sources
from speculative_api.v1alpha1 import Place, PreflightStatus
from speculative_api.worker import PreflightReport, Termination
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.blocked import (
    Blockage,
    is_waiting,
    parked_again,
    reason_of_waiting,
)
from speculative_operator.rollout.times import seconds_since, stamp
from speculative_operator.rollout.transition import (
    Transition,
    fail,
    has_failed,
    next_number,
    transition,
    verdict,
    wanted,
)
from speculative_operator.snapshot import Snapshot

LONGEST_NOTES: Final = 2000
"""Characters of a report that are kept."""

Stage = Literal["Check", "Download"]
_REASONS: Final = {"Check": Reason.PREFLIGHT_RUNNING, "Download": Reason.MODELS_DOWNLOADING}
_DOING: Final = {
    "Check": "the files of its models are checked",
    "Download": "its models are fetched into the cache",
}


def checked(snapshot: Snapshot, revision: str, start: Transition) -> Transition | None:
    """The start of a revision, or first the check of it; None while that goes on."""
    if has_failed(snapshot, revision):
        return None
    entry = snapshot.status.preflight
    entry = entry if entry is not None and entry.hash == revision else None
    stages = _stages(snapshot)
    if not stages or (entry is not None and entry.outcome == "Passed"):
        changes: dict[str, Any] = {"preflight": entry if entry and entry.outcome else None}
        if start.status.canary is None:
            # Parked by a check: only that kept it from starting.
            changes["parked"] = None
        return Transition(start.status.model_copy(update=changes), start.events)
    if entry is not None or is_waiting(snapshot):
        return None
    begun = PreflightStatus(hash=revision, started_at=stamp(snapshot.now), stage=stages[0])
    return transition(snapshot, _beginning(snapshot, begun), preflight=begun)


def _beginning(snapshot: Snapshot, entry: PreflightStatus) -> Event:
    name = f"Revision {next_number(snapshot, entry.hash)} ({entry.hash})"
    message = f"{name}: {_DOING[entry.stage]} before any of its pods is made."
    return Event(_REASONS[entry.stage], message)


def _stages(snapshot: Snapshot) -> tuple[Stage, ...]:
    """What Jobs are to do, in order. A simulated engine has no models."""
    rollout, spec = snapshot.spec.rollout, snapshot.spec
    if spec.engine.simulation is not None:
        return ()
    models = model_sources(spec.target, spec.speculation)
    fetched = spec.model_cache is not None and any(map(is_fetched, models))
    check: tuple[Stage, ...] = ("Check",) if rollout.preflight is Place.JOB else ()
    download = rollout.download is Place.JOB and fetched
    return (*check, "Download") if download else check


def preflight_dropped(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The spec asks for something else now, or for no Job: what was found is forgotten."""
    entry = snapshot.status.preflight
    if entry is None:
        return None
    if entry.hash == wanted(snapshot) and entry.stage in _stages(snapshot):
        return None
    if entry.outcome is not None:
        return transition(snapshot, preflight=None)
    message = f"The Job for {entry.hash} is ended: the spec asks for something else now."
    return transition(snapshot, Event(Reason.SUPERSEDED, message), preflight=None)


def preflight_ended(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """The check has a result, or had time enough for one."""
    entry, check = snapshot.status.preflight, snapshot.check
    if entry is None or entry.outcome is not None or check is None:
        return None
    if check.report is not None:
        return _passed(snapshot, entry, check.report)
    end = check.termination
    if end is not None and not end.retryable:
        return _failed(snapshot, entry, end)
    if check.failure:
        said = f"{end.reason}: {end.detail}" if end is not None else check.failure
        away = end is not None and end.reason == WorkerReason.HUB_UNREACHABLE
        reason = Reason.HUB_UNREACHABLE if away else Reason.PREFLIGHT_STALLED
        return _parked(snapshot, entry, Blockage(reason, said))
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    waited = seconds_since(entry.started_at, snapshot.now)
    if waited < deadline:
        return None
    late = f"no result after {waited:.0f} s (progressDeadlineSeconds {deadline})"
    found = reason_of_waiting(check.waiting_reason)
    why = check.waiting_reason or "its pod runs, or was never made: see the events of its Job"
    return _parked(snapshot, entry, Blockage(found or Reason.PREFLIGHT_STALLED, f"{late}; {why}"))


def _passed(snapshot: Snapshot, entry: PreflightStatus, report: PreflightReport) -> Transition:
    notes = ". ".join(note.rstrip(".") for note in report.notes)[:LONGEST_NOTES]
    if entry.stage == "Download":
        event = Event(Reason.MODELS_DOWNLOADED, f"Revision {entry.hash}: {notes}")
        done = entry.model_copy(update={"outcome": "Passed"})
        return transition(snapshot, event, preflight=done, parked=None)
    text = f"Nothing speaks against revision {entry.hash}. {notes}".rstrip()
    event = Event(Reason.PREFLIGHT_PASSED, text, "Warning" if notes else "Normal")
    done = entry.model_copy(update={"outcome": "Passed", "message": notes})
    if "Download" not in _stages(snapshot):
        return transition(snapshot, event, preflight=done, parked=None)
    begun = PreflightStatus(
        hash=entry.hash, started_at=stamp(snapshot.now), stage="Download", message=notes
    )
    return transition(snapshot, event, _beginning(snapshot, begun), preflight=begun)


def _failed(snapshot: Snapshot, entry: PreflightStatus, end: Termination) -> Transition:
    number = next_number(snapshot, entry.hash)
    text = f"Revision {number} ({entry.hash}), before any of its pods was made: {end.detail}"
    changes: dict[str, Any] = {
        "preflight": None,
        "failed_revisions": fail(snapshot, entry.hash, reason=end.reason, message=text),
    }
    if snapshot.status.stable is None:
        return transition(snapshot, Event(end.reason, text, "Warning"), **changes)
    changes["verdict"] = verdict(
        snapshot, entry.hash, outcome="RolledBack", reason=end.reason, message=text
    )
    event = Event(Reason.ROLLED_BACK, f"{end.reason}: {text}", "Warning")
    return transition(snapshot, event, **changes)


def _parked(snapshot: Snapshot, entry: PreflightStatus, found: Blockage) -> Transition:
    what = "check" if entry.stage == "Check" else "download"
    message = f"the {what} of its models: {found.words.partition(chr(10))[0]}"
    again = parked_again(snapshot, entry.hash, found, message)
    text = (
        f"Revision {entry.hash}: {again.message}. No failure of the revision: tried again at "
        f"{again.until}, or after retry"
    )
    return transition(snapshot, Event(found.reason, text, "Warning"), preflight=None, parked=again)


def running(snapshot: Snapshot) -> tuple[Reason, str] | None:
    """What a Job does now and how far it is, for the condition; None while there is none."""
    entry, check = snapshot.status.preflight, snapshot.check
    if entry is None or entry.outcome is not None:
        return None
    beginning = _beginning(snapshot, entry)
    said = (check.waiting_reason or check.progress) if check is not None else ""
    return _REASONS[entry.stage], f"{beginning.message} {said}".rstrip()


def notes_of_wanted(snapshot: Snapshot) -> str:
    """What the check of the revision that the spec asks for found to disappoint often."""
    entry = snapshot.status.preflight
    return entry.message if entry is not None and entry.hash == wanted(snapshot) else ""
