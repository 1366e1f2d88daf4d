"""Where the worker stands: written by the supervisor, read by the probes.

One object per process, used from one event loop only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from speculative_api.engine_metrics import Reading
from speculative_worker.adapting import Adapting


class Phase(StrEnum):
    """The stages of a worker's life, in order; Failed ends it from any of them."""

    CHECKING = "Checking"
    DOWNLOADING = "Downloading"
    LOADING = "Loading"
    COMPILING = "Compiling"
    WARMING = "Warming"
    SERVING = "Serving"
    DRAINING = "Draining"
    FAILED = "Failed"


@dataclass(slots=True)
class WorkerState:
    """What the probes answer from."""

    engine_started_at: float
    """Unix seconds; the worker's own start until the engine runs."""
    phase: Phase = Phase.CHECKING
    phase_detail: str = ""
    """How far the phase is, for people."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """What a hub resolved each model's source to."""
    engine_alive: bool = False
    was_ready: bool = False
    """Set once, at the first Serving; a worker that never was need not wait for endpoints."""
    without_heartbeats: Callable[[Reading], Reading] = lambda found: found
    """Takes out of the engine's counters what its heartbeats had counted."""
    stalled_since: float | None = None
    """Monotonic seconds at which the stall was found; None while the engine makes progress."""
    adapting: Adapting | None = None
    """Where the engine's scheduler says what draft length it uses; None where it is vLLM's own."""
    stall: str = ""
    """The rule that found the stall, with its numbers."""

    @property
    def is_ready(self) -> bool:
        """Whether new requests should come here."""
        return self.phase is Phase.SERVING and self.engine_alive and self.stalled_since is None

    @property
    def is_started(self) -> bool:
        """Whether the engine was loaded and warmed."""
        return self.phase in (Phase.SERVING, Phase.DRAINING)

    def is_live(self, now: float, *, stall_live_seconds: float) -> bool:
        """Whether a restart would cure nothing; `now` in monotonic seconds."""
        if self.phase is Phase.FAILED:
            return False
        if self.phase in (Phase.SERVING, Phase.DRAINING) and not self.engine_alive:
            return False
        return self.stalled_since is None or now - self.stalled_since < stall_live_seconds

    def why_not_ready(self) -> str:
        """One line for the body of a failing readiness probe."""
        if self.stalled_since is not None:
            return f"stalled: {self.stall}"
        if self.phase is Phase.SERVING and not self.engine_alive:
            return "the engine's process has ended"
        return f"phase is {self.phase}" + (f" ({self.phase_detail})" if self.phase_detail else "")
