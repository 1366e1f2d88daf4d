"""The load that a verdict was reached at: what it says about a fuller pod is nothing.

Verification costs compute that an idle GPU has and a full one has not, so a
canary that is good at few requests at a time may be bad at many.
"""

from speculative_operator.snapshot import Snapshot

LIKE_LOAD = 1.25
"""Running requests per pod of stable over the canary's up to which the loads are alike."""


def running_per_pod(snapshot: Snapshot, revision: str) -> float | None:
    """Mean requests running in a ready pod at the last look; None where no pod says."""
    digests = [pod.digest for pod in snapshot.pods_of(revision) if pod.ready]
    found = [digest.running for digest in digests if digest and digest.running is not None]
    return sum(found) / len(found) if found else None


def load_words(snapshot: Snapshot, *, candidate: str, control: str) -> str:
    """Up to which load per pod a verdict holds; empty where nothing is known."""
    ours = running_per_pod(snapshot, candidate)
    theirs = running_per_pod(snapshot, control)
    if ours is None:
        return ""
    valid = f"valid up to {ours:.1f} requests running per pod"
    if theirs is None:
        return f"{valid}."
    if theirs > LIKE_LOAD * ours:
        return (
            f"{valid}: a pod of stable has {theirs:.1f}, and latency and speed at that load are "
            "not shown; the guard judges them."
        )
    return f"{valid}, stable has {theirs:.1f}."
