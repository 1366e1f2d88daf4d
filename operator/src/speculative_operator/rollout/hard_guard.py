"""Catastrophes of a candidate, which no evidence is waited for: it is taken out at once.

In: the candidate's pods, and whether all of its requests fail. Out: a reason and
a sentence. Called by the gates of the canary and of the guard after promotion. Pure.
"""

from typing import Final, NamedTuple

from speculative_api.conditions import Reason, WorkerReason
from speculative_operator.decision import Assessment
from speculative_operator.snapshot import Snapshot

RESTARTS_LIMIT: Final = 3
"""Container restarts, over the candidate's pods, that are a crash loop."""
OUT_OF_MEMORY: Final = frozenset({WorkerReason.GPU_MEMORY, WorkerReason.HOST_MEMORY})


class Catastrophe(NamedTuple):
    """Why a candidate has to go."""

    reason: str
    message: str


def catastrophe(
    snapshot: Snapshot, assessment: Assessment, *, candidate: str, control: str
) -> Catastrophe | None:
    """Crash loop, out of memory, stalled engine, or every request failed.

    `control` is the revision that would go on; empty: there is none.
    """
    pods = snapshot.pods_of(candidate)
    restarts = snapshot.crashes(candidate)
    stalled = [pod.name for pod in pods if pod.digest is not None and pod.digest.stalled]
    starved = _out_of_memory(snapshot, candidate)
    if restarts >= RESTARTS_LIMIT:
        last = next((end.detail for end in snapshot.ends(candidate)), "no last words")
        message = f"{restarts} container restarts (limit {RESTARTS_LIMIT}); {last}"
    elif starved and not (control and _out_of_memory(snapshot, control)):
        pod, reason, detail = starved[0]
        return Catastrophe(reason, f"{pod} ran out of memory, and no pod of stable did: {detail}")
    elif stalled:
        message = f"engine stalled in {', '.join(stalled)}: requests wait and no token comes"
    elif assessment.all_fail and (not control or snapshot.ready_pods(control) > 0):
        message = assessment.all_fail
    else:
        return None
    return Catastrophe(Reason.CANARY_UNHEALTHY, message)


def _out_of_memory(snapshot: Snapshot, revision: str) -> list[tuple[str, str, str]]:
    """Name, reason and last words of the pods, and groups of pods, whose newest end was that."""
    pods = snapshot.pods_of(revision)
    ends = [(p.name, p.termination.reason, p.termination.detail) for p in pods if p.termination]
    ends += [("a group", e.reason, e.message) for e in snapshot.group_failures(revision)]
    return [end for end in ends if end[1] in OUT_OF_MEMORY]
