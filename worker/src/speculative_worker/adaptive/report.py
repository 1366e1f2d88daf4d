"""What the scheduler tells the worker: a small JSON file, replaced at most once a second."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

VARIABLE: Final = "SPECULATIVE_ADAPTIVE"
"""Environment variable of the engine: JSON with `state` (path of the file) and
`minAcceptancePercent`."""
WRITE_SECONDS: Final = 1.0


def settings_from(environment: Mapping[str, str]) -> tuple[str, int]:
    """Path of the state file (empty: none) and the acceptance threshold in percent."""
    told = json.loads(environment.get(VARIABLE) or "{}")
    return str(told.get("state") or ""), int(told.get("minAcceptancePercent") or 0)


class Report:
    """Writes the newest state; a write that fails is left to the next one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._written_at = float("-inf")

    def offer(self, state: Callable[[], Mapping[str, Any]], *, now: float) -> None:
        """Writes `state()` if the last write is long enough ago."""
        if not self._path or now - self._written_at < WRITE_SECONDS:
            return
        self._written_at = now
        beside = f"{self._path}.new"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                json.dump(state(), file)
            os.replace(beside, self._path)
        except OSError:
            return
