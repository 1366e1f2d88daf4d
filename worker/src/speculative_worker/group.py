"""PURE: this pod's place among those that run one engine together.

A group of a LeaderWorkerSet: its controller says which place in variables
(https://lws.sigs.k8s.io, pkg/utils/pod, read at 0.8), and the leader alone serves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from speculative_api.worker import ADDRESS_VARIABLE

MASTER_PORT: Final = 29501
"""Where the engines of a group meet, on the leader; vLLM's own default."""


@dataclass(frozen=True, slots=True)
class Node:
    """One of `count` pods; the leader has rank 0."""

    count: int
    rank: int
    leader: str
    """Host name of the leader, which is known before the leader is ready."""
    address: str = ""
    """Of this pod; empty where nobody says."""

    @property
    def meeting_place(self) -> str:
        """Where this pod looks for the leader; itself by its address, whose name may not be
        published yet."""
        return self.address if self.rank == 0 and self.address else self.leader


def node_of(count: int | None, environment: Mapping[str, str]) -> Node | None:
    """The place of this pod in a group of so many; None for a pod of its own.

    Raises:
        ValueError: the variables of the group's controller are missing or make no sense.
    """
    if count is None or count == 1:
        return None
    rank, leader = environment.get("LWS_WORKER_INDEX", ""), environment.get("LWS_LEADER_ADDRESS")
    if not (rank.isascii() and rank.isdigit() and int(rank) < count):
        raise ValueError(
            f"LWS_WORKER_INDEX is {rank!r}, and not 0 to {count - 1}: the webhook of the "
            "LeaderWorkerSet's controller sets it, is it there?"
        )
    if not leader:
        raise ValueError("LWS_LEADER_ADDRESS is not set, by the LeaderWorkerSet's controller")
    return Node(count, int(rank), leader, environment.get(ADDRESS_VARIABLE, ""))
