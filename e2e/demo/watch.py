"""Waiting for the world to become as wanted: the one place where the demo sleeps."""

import asyncio
import time
from collections.abc import Callable

from .errors import DemoError
from .terminal import Display
from .timeline import Timeline
from .world import Observer, World

LOOK_EVERY_SECONDS = 1.0
LOST_SECONDS = 30.0
"""How long looks may fail before the demo gives up."""

Question = Callable[[World], bool]
Complaint = Callable[[World], str]
"""What makes further waiting pointless; an empty text while nothing does."""


class Watch:
    """Looks each second, keeps the timeline, and shows what is going on."""

    def __init__(self, observer: Observer, display: Display, timeline: Timeline) -> None:
        self.observer = observer
        self.display = display
        self.timeline = timeline
        self.followed: str = ""
        """The revision whose marks go into the timeline; empty: none."""
        self.figures: Callable[[], str] = str
        """What else to show while waiting, for instance the load so far."""

    async def look(self) -> World:
        """One look, its news told."""
        world = await self.observer.look(self.display.elapsed_seconds)
        if self.followed:
            for mark in self.timeline.observe(world, self.followed):
                self.display.say(f"{mark.revision} {mark.text}")
        return world

    async def until(
        self, wanted: Question, *, what: str, seconds: float, wrong: Complaint = lambda _: ""
    ) -> World:
        """The first look in which `wanted` is true.

        Raises:
            DemoError: it took too long, or `wrong` says that it can't become true.
        """
        deadline = time.monotonic() + seconds
        last: World | None = None
        answered = time.monotonic()
        while True:
            try:
                last = await self.look()
                answered = time.monotonic()
            except DemoError as error:
                if time.monotonic() - answered > LOST_SECONDS:
                    raise
                self.display.detail(f"{what}: {error}")
            else:
                if wanted(last):
                    return last
                if complaint := wrong(last):
                    raise DemoError(f"{what}: {complaint}")
                self.display.detail(_state(what, last), figures=self.figures())
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: not within {seconds:.0f} s. {_last_words(last)}")
            await asyncio.sleep(LOOK_EVERY_SECONDS)


def _state(what: str, world: World) -> str:
    parts = [what, world.status.message or "no status yet"]
    waiting = sorted({pod.waiting for pod in world.pods if pod.waiting})
    return " | ".join([*parts, *waiting])


def _last_words(world: World | None) -> str:
    if world is None:
        return "The resource was never seen."
    return f"Last seen: {world.status.message or 'no status'}"
