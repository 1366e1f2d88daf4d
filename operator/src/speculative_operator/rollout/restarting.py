"""Gates of a restart: stable's pods are replaced one at a time, never in a trial.

A request names stable's hash, so that a late one restarts nothing newer; `drifting`
begins one by itself. The Deployment does the replacing (surge first, drained); here
is only when it begins, when it is over, and when it is given up.
"""

from speculative_api.conditions import Reason
from speculative_api.labels import RERENDER, RESTART
from speculative_api.v1alpha1 import RestartStatus, StableStatus
from speculative_operator.decision import Assessment, Event
from speculative_operator.rollout.times import moment, seconds_since, stamp
from speculative_operator.rollout.transition import Transition, transition
from speculative_operator.snapshot import Snapshot, WorkerPod

RESTARTS_LIMIT = 3
"""Container restarts of one new pod that end a restart: a crash loop."""


def restart_of_stable(snapshot: Snapshot) -> RestartStatus | None:
    """The last restart, if it was of the present stable revision."""
    stable, restart = snapshot.status.stable, snapshot.status.restart
    return restart if stable and restart and restart.hash == stable.hash else None


def is_restarting(snapshot: Snapshot) -> bool:
    """Whether stable's pods are being replaced at the moment; no trial begins meanwhile."""
    restart = restart_of_stable(snapshot)
    return restart is not None and restart.outcome is None


def replaced(snapshot: Snapshot, restart: RestartStatus) -> list[WorkerPod]:
    """The pods that the restart has made so far."""
    return [pod for pod in snapshot.pods_of(restart.hash) if pod.restarted_at == restart.stamp]


def restart_requested(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """A person said restart, naming stable; in a trial it waits until that is over."""
    asked, status = snapshot.annotations.get(RESTART), snapshot.status
    if not asked or asked == status.observed_restart or len(asked) > 256 or status.stable is None:
        return None
    revision, slash, option = asked.partition("@")[0].partition("/")
    if revision != status.stable.hash or slash + option not in ("", f"/{RERENDER}"):
        message = (
            f"Nothing is restarted: {asked.partition('@')[0]!r} is not the stable revision "
            f"{status.stable.hash}, with or without /{RERENDER}."
        )
        event = Event("RestartRefused", message, "Warning")
        return transition(snapshot, event, observed_restart=asked)
    if status.canary is not None or status.guard is not None or status.retiring:
        return None
    restart = begun(snapshot, status.stable, rerender=option == RERENDER)
    how = ", with today's pod template" if restart.render else ""
    message = (
        f"Revision {status.stable.revision} ({revision}): its pods are replaced one at a time{how}."
    )
    return transition(
        snapshot, Event(Reason.RESTARTING, message), restart=restart, observed_restart=asked
    )


def begun(snapshot: Snapshot, stable: StableStatus, *, rerender: bool) -> RestartStatus:
    """A restart that begins now."""
    view, record = snapshot.deployments.get(stable.hash), snapshot.revisions.get(stable.hash)
    before, now = snapshot.status.restart, stamp(snapshot.now)
    known = [record.render if record else 0, (before.render or 0) if before else 0]
    return RestartStatus(
        hash=stable.hash,
        at=now,
        stamp=now,
        stamp_before=(view.restarted_at[:64] or None) if view is not None else None,
        render=max(known) + 1 if rerender else None,
    )


def restart_done(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """Every pod was replaced and is ready."""
    restart, stable = restart_of_stable(snapshot), snapshot.status.stable
    if restart is None or stable is None or restart.outcome not in (None, "Stalled"):
        return None
    new = replaced(snapshot, restart)
    if len(new) < len(snapshot.pods_of(restart.hash)):
        return None
    if sum(pod.ready for pod in new) < snapshot.spec.replicas:
        return None
    took = seconds_since(restart.at, snapshot.now)
    name = f"Revision {stable.revision} ({stable.hash})"
    event = Event("Restarted", f"{name}: {len(new)} pods were replaced in {took:.0f} s.")
    return _ended(snapshot, restart, event, outcome="Done", message="")


def restart_stalled(snapshot: Snapshot, _: Assessment) -> Transition | None:
    """No new pod became ready in time, or one crashes: the pods that serve are kept.

    A new template is taken back then, so that no later pod is made from it.
    """
    restart = restart_of_stable(snapshot)
    if restart is None or restart.outcome is not None:
        return None
    why = _why_stalled(snapshot, restart)
    if not why:
        return None
    outcome = "Stalled" if restart.render is None else "Reverted"
    what = "Kubernetes goes on trying" if restart.render is None else "its template is taken back"
    message = f"The restart of {restart.hash} stalled and {what}: {why}"
    event = Event(Reason.RESTART_STALLED, message, "Warning")
    return _ended(snapshot, restart, event, outcome=outcome, message=message[:4000])


def _why_stalled(snapshot: Snapshot, restart: RestartStatus) -> str:
    new = replaced(snapshot, restart)
    for pod in new:
        end = pod.termination
        if end is not None and (not end.retryable or pod.restarts >= RESTARTS_LIMIT):
            return f"{pod.name}: {end.reason}: {end.detail}"
    ended = [e for e in snapshot.group_failures(restart.hash) if moment(e.at) >= moment(restart.at)]
    if ended and (not ended[-1].retryable or len(ended) >= RESTARTS_LIMIT):
        return f"a group ended: {ended[-1].reason}: {ended[-1].message}"
    began = moment(restart.at).timestamp()
    moved = max([began, *(pod.ready_at for pod in new if pod.ready_at is not None)])
    waited = snapshot.now.timestamp() - moved
    deadline = snapshot.spec.rollout.progress_deadline_seconds
    if waited < deadline:
        return ""
    ready = sum(pod.ready for pod in new)
    said = f"{ready} of {snapshot.spec.replicas} pods replaced, none since {waited:.0f} s "
    words = snapshot.waiting_reason(restart.hash)
    return f"{said}(progressDeadlineSeconds {deadline}); {words}".rstrip("; ")


def _ended(
    snapshot: Snapshot, restart: RestartStatus, event: Event, *, outcome: str, message: str
) -> Transition:
    changes = {"outcome": outcome, "message": message, "ended_at": stamp(snapshot.now)}
    return transition(snapshot, event, restart=restart.model_copy(update=changes))
