"""PURE: what a verdict assumes where sessions stay with a revision, and how far that is off.

Sessions that stay are not spread over the two revisions by chance anew for each
request: the same users are always the canary's. How far two pods with the same
words differ says how large a difference may be that means nothing.
"""

from typing import Final

from speculative_operator.rollout.trial import trial_of
from speculative_operator.snapshot import Snapshot

BY_SESSION: Final = "Sessions are sticky: the bound on wrong verdicts assumes that they are alike."
"""Said with every verdict from evidence: requests of one session are alike."""
LEAST_STEPS: Final = 1000
"""Decoding steps below which a pod's figure is noise."""


def is_sticky(snapshot: Snapshot) -> bool:
    """Whether sessions stay with a revision."""
    return snapshot.spec.gateway.session_affinity_header is not None


def assumption(snapshot: Snapshot) -> str:
    """What is assumed, and the offset between two pods of the control; empty if not sticky."""
    return f"{BY_SESSION} {offset(snapshot)}" if is_sticky(snapshot) else ""


def offset(snapshot: Snapshot) -> str:
    """How far two pods of the control differ in accepted draft tokens per step since their start.

    The first two by name, chosen whatever they show: of many pods the two that
    are furthest apart would differ by chance.
    """
    found = _figures(snapshot)[:2]
    if len(found) < 2:
        return "No offset between two pods of stable is known: fewer than two have served enough."
    (one, first), (other, second) = found
    if not first:
        return f"No offset between two pods of stable is known: {one} accepted nothing."
    return (
        f"Two pods of stable differ by {100 * abs(second - first) / first:.1f} percent as it is: "
        f"{first:.2f} ({one}) and {second:.2f} ({other}) accepted draft tokens per step."
    )


def _figures(snapshot: Snapshot) -> list[tuple[str, float]]:
    trial, stable = trial_of(snapshot.status), snapshot.status.stable
    control = trial.control if trial is not None else stable.hash if stable is not None else ""
    found = []
    for pod in sorted(snapshot.pods_of(control), key=lambda pod: pod.name):
        steps = pod.digest.steps if pod.digest is not None else None
        if pod.digest is not None and pod.ready and steps is not None and steps >= LEAST_STEPS:
            found.append((pod.name, (pod.digest.accepted_tokens or 0) / steps))
    return found
