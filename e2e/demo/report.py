"""What the demo found, as JSON and as the last lines on the screen."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.load import Report

from .lanes import LaneFigures
from .timeline import Timeline


@dataclass
class DemoReport:
    """Filled while the demo goes on; absent parts were not reached."""

    timeline: Timeline = field(default_factory=Timeline)
    phases: list[tuple[str, float]] = field(default_factory=list)
    answer: str = ""
    accelerated: LaneFigures | None = None
    native: LaneFigures | None = None
    stable: str = ""
    bad: str = ""
    good: str = ""
    load: Report | None = None
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        lanes = {"accelerated": self.accelerated, "native": self.native}
        return {
            "ok": not self.failure,
            "failure": self.failure,
            "seconds": round(sum(seconds for _, seconds in self.phases), 1),
            "phases": [
                {"title": title, "seconds": round(seconds, 1)} for title, seconds in self.phases
            ],
            "answer": self.answer,
            "lanes": {name: lane.to_json() for name, lane in lanes.items() if lane is not None},
            "speedup": self.speedup,
            "revisions": {"stable": self.stable, "bad": self.bad, "good": self.good},
            "timeline": [mark.to_json() for mark in self.timeline.marks],
            "load": self.load.to_json() if self.load else None,
        }

    @property
    def speedup(self) -> float | None:
        """Tokens/s of the accelerated lane over the native one's; None if not both measured."""
        if self.accelerated is None or self.native is None:
            return None
        native = self.native.report.tokens_per_second
        return round(self.accelerated.report.tokens_per_second / native, 2) if native else None

    def write(self, path: Path) -> None:
        """Writes the JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    def lines(self) -> list[str]:
        """The summary for people."""
        found = [""]
        if self.timeline.marks:
            title = "Timeline (minutes:seconds since the start)"
            found += [title, *self.timeline.lines(), ""]
        if self.accelerated:
            found.append(f"accelerated lane  {self.accelerated.line()}")
        if self.native:
            found.append(f"native lane       {self.native.line()}")
        if self.speedup:
            found.append(f"speed-up          {self.speedup:.2f}")
        if self.load:
            found.append(f"load              {self.load.line()}")
        return found
