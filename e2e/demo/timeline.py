"""What happened to a revision on trial, and when: from looks to a timeline. Pure."""

from dataclasses import dataclass, field
from typing import Any

from .world import World


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing that was seen; `at` is seconds since the demo began."""

    at: float
    key: str
    text: str
    revision: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        found = {"seconds": round(self.at, 1), "event": self.key, "text": self.text}
        return found | ({"revision": self.revision} if self.revision else {})


@dataclass
class Timeline:
    """Marks in the order of being seen; each key is marked once per revision."""

    marks: list[Mark] = field(default_factory=list)

    def add(self, at: float, key: str, text: str, *, revision: str = "") -> Mark | None:
        """Notes a mark; None if it was noted before."""
        if self.at(key, revision) is not None:
            return None
        mark = Mark(at, key, text, revision)
        self.marks.append(mark)
        return mark

    def at(self, key: str, revision: str = "") -> float | None:
        """When a thing was first seen."""
        found = (m.at for m in self.marks if m.key == key and m.revision == revision)
        return next(found, None)

    def lines(self) -> list[str]:
        """For people: minutes and seconds since the demo began."""
        return [
            f"{int(m.at) // 60:3d}:{int(m.at) % 60:02d}  {m.revision or '':<10}  {m.text}"
            for m in self.marks
        ]

    def observe(self, world: World, revision: str) -> list[Mark]:
        """Notes what a look shows for the first time about one revision; returns that."""
        found = [
            self.add(world.at, key, text, revision=revision)
            for key, text in seen(world, revision)
            if key not in _AFTER or any(self.at(k, revision) is not None for k in _AFTER[key])
        ]
        return [mark for mark in found if mark is not None]


_AFTER = {
    "weight zero in Envoy": ("first weight",),
    "canary gone": ("started",),
    "guard over": ("promoted",),
}
"""Marks that mean something only after another one: before, they are true of any revision."""


def seen(world: World, revision: str) -> list[tuple[str, str]]:
    """What is true of a revision in one look, in the order in which it should come."""
    status, canary = world.status, world.status.canary
    found: list[tuple[str, str]] = []
    tried = canary is not None and canary.hash == revision
    if canary is not None and tried:
        found.append(("started", "canary started"))
        if canary.step >= 0:
            found.append(("ready", "canary ready"))
        if canary.observed_weight > 0:
            found.append(("first weight", f"gateways give it {canary.observed_weight} percent"))
    verdict = status.verdict
    if verdict is not None and verdict.hash == revision and not tried:
        if verdict.outcome in ("RolledBack", "Aborted", "Superseded"):
            text = f"{verdict.outcome}, {verdict.reason}: {verdict.message}"
            found.append(("verdict", text))
        elif verdict.outcome == "Promoted":
            found.append(("promoted", f"promoted: {verdict.message}"))
        elif verdict.outcome == "GuardPassed":
            found.append(("guard over", f"guard passed: {verdict.message}"))
    if not tried and world.weight_in_envoy(revision) == 0:
        found.append(("weight zero in Envoy", "Envoy gives it 0 percent"))
    if not tried and not world.workers(revision):
        found.append(("canary gone", "its pods are gone"))
    return found
