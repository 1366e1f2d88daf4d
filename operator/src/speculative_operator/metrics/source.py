"""Where last answers of pods come from; `workers.Scraper` in production, a fake in tests."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from speculative_api.gateway import GatewayState
from speculative_api.worker import Digest


@dataclass(frozen=True, slots=True)
class Target:
    """A pod to ask; only pods that the caches know are ever asked."""

    uid: str
    address: str
    role: Literal["worker", "gateway"]
    method: str = ""
    """How the pod's revision drafts: an engine without our worker does not say."""
    num_speculative_tokens: int | None = None
    pod: str = ""
    """Its name: what somebody else's figures of it are labelled with."""
    member: str = ""
    """Of a shared gateway's pod: whose part of its state is asked for. `uid` names both then."""


def state_key(uid: str, member: str) -> str:
    """What a member's part of a shared gateway pod's state is remembered by."""
    return f"{uid}/{member}" if member else uid


class Source(Protocol):
    """Last answers by pod UID."""

    async def ask(self, targets: Iterable[Target]) -> None:
        """Asks all of them at once; a pod that does not answer keeps its last answer."""

    def digest(self, uid: str) -> Digest | None:
        """The worker's last answer, if it is not too old to mean anything."""

    def state(self, uid: str) -> GatewayState | None:
        """The gateway agent's last answer, whatever its age."""

    def silent_seconds(self, uid: str) -> float:
        """Since the last answer, or since the pod was first asked; 0 for an unknown pod."""
