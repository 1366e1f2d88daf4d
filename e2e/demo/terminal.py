"""What is happening and for how long: one moving line on a terminal, plain lines in a log."""

import asyncio
import shutil
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

Found = TypeVar("Found")

LOG_LINE_EVERY_SECONDS = 15.0
"""How often an unchanged wait is told where there is no terminal."""
LOG_CHANGE_AFTER_SECONDS = 2.0
"""A changed detail is told no sooner than this after the last line."""


class Display:
    """Prints phases; `started` is the zero of every time shown."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._moving = False
        self._detail = ""
        self._last_line = 0.0
        self._phase_started = time.monotonic()
        self.started = time.monotonic()
        self.phases: list[tuple[str, float]] = []
        """Title and seconds of each finished phase."""

    @property
    def elapsed_seconds(self) -> float:
        """Since the display was made."""
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._clear()
        self._write(f"{self._stamp()}  {text}\n")

    def plain(self, text: str) -> None:
        """Prints text as it is, with a line break."""
        self._clear()
        self._write(f"{text}\n")

    def piece(self, text: str) -> None:
        """Prints a piece of a stream, at once and without a line break."""
        self._clear()
        self._write(text)

    def detail(self, text: str, *, figures: str = "") -> None:
        """Shows the present state of a wait; call it as often as you like.

        `figures` go with it, but change too often to be news by themselves.
        """
        now = time.monotonic()
        waited = now - self._phase_started
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            line = f"{self._stamp()}  … {waited:.0f} s  {figures}{text}"
            self._write(f"\r\x1b[K{line[:width]}")
            self._moving = True
            return
        since = now - self._last_line
        changed = text != self._detail and since >= LOG_CHANGE_AFTER_SECONDS
        if changed or since >= LOG_LINE_EVERY_SECONDS:
            self._detail = text
            self._write(f"{self._stamp()}  … {waited:.0f} s  {figures}{text}\n")

    async def shown(self, text: str, work: Coroutine[Any, Any, Found]) -> Found:
        """Does some work, and shows that it goes on."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                self.detail(text)
                await asyncio.wait([task], timeout=1)
        finally:
            task.cancel()
        return task.result()

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Announces a phase and, at its end, how long it took."""
        self._phase_started = time.monotonic()
        self._detail = ""
        self._clear()
        self._write(f"\n{self._stamp()}  == {title}\n")
        try:
            yield
        except BaseException:
            self.say(f"== {title}: not finished, {time.monotonic() - self._phase_started:.1f} s")
            raise
        seconds = time.monotonic() - self._phase_started
        self.phases.append((title, seconds))
        self.say(f"== {title}: {seconds:.1f} s")

    def _stamp(self) -> str:
        whole = int(self.elapsed_seconds)
        return f"{whole // 60:3d}:{whole % 60:02d}"

    def _clear(self) -> None:
        if self._moving:
            self._write("\r\x1b[K")
            self._moving = False

    def _write(self, text: str) -> None:
        self._last_line = time.monotonic()
        self._out.write(text)
        self._out.flush()
