"""Traffic of stable at pods without speculation, after drift was answered by DisableSpeculation.

Stable keeps its pods: what comes back comes back at once, and a canary has
somebody to be compared with. Everything is derived from status and from what
is ready, so that pods without speculation that are lost give the traffic back.
"""

from speculative_api.revisions import native_hash
from speculative_operator.decision import Share
from speculative_operator.rollout.capacity import part
from speculative_operator.snapshot import Snapshot


def is_unaided(snapshot: Snapshot) -> bool:
    """Whether stable's traffic is to go to pods without speculation as far as they are ready."""
    stable, drift = snapshot.status.stable, snapshot.status.drift
    if stable is None or drift is None or drift.state != "Disabled":
        return False
    return drift.hash == stable.hash and snapshot.spec.gateway.mode.splits


def unaided_revision(snapshot: Snapshot) -> str | None:
    """Hash of stable's words without speculation; None where its words are not known."""
    stable = snapshot.status.stable
    record = snapshot.revisions.get(stable.hash) if stable is not None else None
    if record is not None:
        return native_hash(record.words)
    known = stable is not None and snapshot.words.hash == stable.hash
    return native_hash(snapshot.words.canonical) if known else None


def unaided_share(snapshot: Snapshot) -> Share | None:
    """What those pods get; None while speculation is on, and while a canary or a guard is judged.

    Then stable serves: a canary can only be compared with who has the rest of the traffic.
    """
    if not is_unaided(snapshot):
        return None
    status, revision = snapshot.status, unaided_revision(snapshot)
    if revision is None or status.canary is not None or status.guard is not None:
        return None
    return Share(revision, part(snapshot.ready_pods(revision), snapshot.spec.replicas))
