"""Which pod is to go when a revision shrinks: the one with the fewest requests.

A ReplicaSet removes pods that are not ready first, then those with the lowest
`controller.kubernetes.io/pod-deletion-cost`, and else the youngest, which has
nothing to do with work. The cost is written when a revision is about to shrink
and at no other time. A LeaderWorkerSet knows no such cost: it removes the group with
the highest index.
"""

from collections.abc import Iterable
from typing import Final

from speculative_api.worker import Digest
from speculative_operator.decision import Scale
from speculative_operator.snapshot import Snapshot

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
UNKNOWN_COST: Final = 1_000_000
"""Of a pod that does not answer: it may be the busiest of all."""


def shrinking(snapshot: Snapshot, scales: Iterable[Scale]) -> frozenset[str]:
    """Revisions that are about to lose some pods and keep others."""
    return frozenset(
        scale.hash
        for scale in scales
        if (view := snapshot.deployments.get(scale.hash)) is not None
        and not view.is_groups
        and 0 < scale.replicas < view.replicas
    )


def cost(digest: Digest | None) -> int:
    """Requests that would be cut or waited for; a draining pod goes first."""
    if digest is None or digest.running is None:
        return UNKNOWN_COST
    return -1 if digest.draining else min(UNKNOWN_COST, digest.running + (digest.waiting or 0))
