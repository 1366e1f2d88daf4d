"""The worker's side of adaptive draft length: what the engine needs, and what it says.

The engine's interpreter has none of our packages, so the folder `adaptive` is
shown to it alone, under a name of its own, by PYTHONPATH. The scheduler in there
writes a small file that the digest is made from.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from speculative_api.worker import AdaptiveState, WorkerConfig
from speculative_worker.adaptive.report import VARIABLE

ENGINE_PACKAGE: Final = "speculative_adaptive"
"""What the engine imports `adaptive` as."""
_SOURCE: Final = Path(__file__).with_name("adaptive")
_LARGEST_STATE: Final = 4096


def is_online(config: WorkerConfig) -> bool:
    """Whether our scheduler runs inside the engine."""
    adaptive = config.speculation.adaptive
    return adaptive is not None and adaptive.mode == "Online"


@dataclass(frozen=True, slots=True)
class Adapting:
    """Where one engine's package and state are."""

    folder: Path

    @property
    def state_path(self) -> Path:
        """Written by the scheduler."""
        return self.folder / "state.json"

    def environment(self, config: WorkerConfig, inherited: Mapping[str, str]) -> dict[str, str]:
        """The engine's environment: the inherited one, our package found first, and our words."""
        before = inherited.get("PYTHONPATH")
        adaptive = config.speculation.adaptive
        threshold = adaptive.min_acceptance_percent if adaptive else None
        told = {"state": str(self.state_path), "minAcceptancePercent": threshold or 0}
        return {
            **inherited,
            "PYTHONPATH": f"{self.folder}{os.pathsep}{before}" if before else str(self.folder),
            VARIABLE: json.dumps(told),
        }


def prepare(config: WorkerConfig) -> Adapting | None:
    """Makes the folder for an engine that needs one, simulated or not. Raises `OSError`."""
    if not is_online(config):
        return None
    folder = Path(tempfile.mkdtemp(prefix="speculative-adaptive-"))
    (folder / ENGINE_PACKAGE).symlink_to(_SOURCE)
    return Adapting(folder)


def state_of(config: WorkerConfig, adapting: Adapting | None) -> AdaptiveState | None:
    """What the digest says; without figures while the scheduler has written none."""
    adaptive = config.speculation.adaptive
    if adaptive is None:
        return None
    if adapting is not None:
        try:
            with adapting.state_path.open("rb") as file:
                found = json.loads(file.read(_LARGEST_STATE))
            return AdaptiveState.model_validate({**found, "mode": adaptive.mode})
        except (OSError, ValueError, TypeError, ValidationError):
            pass
    return AdaptiveState(mode=adaptive.mode)
