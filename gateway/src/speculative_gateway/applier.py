"""Brings Envoy from the configuration on disk to the wanted one, step by step.

Every step is written, then read back from Envoy until it is in use; the next
one starts only then. A step that Envoy does not take is undone. The agent owns
the one instance; nobody else writes the dynamic files.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from . import storage
from .admin import Admin, differences
from .configuration import Configuration, files, from_files, plan
from .errors import ReadbackMismatch

_log = logging.getLogger("speculative_gateway.applier")

READBACK_SECONDS = 1.0
"""Envoy takes a renamed file within about 10 ms (measured); this is for busy nodes."""
WARMING_SECONDS = 20.0
"""A new cluster is in use once its endpoints were probed; a hung one takes a probe's timeout."""
POLL_SECONDS = 0.02


class Superseded(Exception):
    """Something newer is wanted: plan again from what is on disk."""


class Applier:
    """Writer and verifier of the dynamic files."""

    def __init__(self, admin: Admin, folder: Path) -> None:
        self._admin = admin
        self._folder = folder
        self._rejections: dict[str, int] | None = None
        """Refused files that Envoy had counted when it was last asked for them: all that it has
        taken since leaves them as they are, and a question before each step would delay it."""
        self._warming: frozenset[str] = frozenset()
        """Clusters on disk that were not in use yet when something newer came."""

    def begin_life(self) -> None:
        """Another Envoy may answer from now on, which counts from 0."""
        self._rejections = None

    def on_disk(self) -> Configuration:
        """What Envoy was last told.

        Raises:
            ValueError: someone else wrote a file.
        """
        return from_files(storage.read(self._folder))

    async def verify(self, wanted: Configuration) -> tuple[str, ...]:
        """What Envoy does not use of `wanted`; empty when it uses all.

        Raises:
            EnvoyUnreachable: it can't be asked.
        """
        return await differences(self._admin, wanted, known=wanted)

    async def apply(
        self,
        wanted: Configuration,
        *,
        meet: Callable[[], Awaitable[None]],
        superseded: Callable[[], bool],
    ) -> None:
        """Walks to `wanted` and returns when Envoy uses it; writes nothing if it already does.

        Args:
            wanted: what Envoy is to use.
            meet: finds out which Envoy answers; awaited after a write and before its read-back.
            superseded: whether something newer is wanted by now.

        Raises:
            ReadbackMismatch: Envoy did not take a step; the former files are back.
            EnvoyUnreachable: it went away; the files written so far stay.
            Superseded: `superseded()` said so while a cluster was warming.
        """
        former = self.on_disk()
        current = former
        for step in plan(former, wanted):
            if self._rejections is None:
                self._rejections = await self._admin.rejections()
            self._write(step)
            await meet()
            try:
                await self._until_used(step, current, superseded)
            except Superseded:
                before = current.clusters
                self._warming |= {n for n, it in step.clusters.items() if before.get(n) != it}
                raise
            except ReadbackMismatch as mismatch:
                reason = await self._reason(self._rejections or {})
                _log.error("undoing a step: %s%s", mismatch, reason)
                await self._undo(step, former)
                raise ReadbackMismatch(f"{mismatch}{reason}") from mismatch
            current = step
        if current is former:
            # Nothing to write: Envoy may have just started with these files.
            await meet()
            await self._until_used(wanted, Configuration(), superseded)

    def _write(self, step: Configuration) -> None:
        texts = files(step)
        written = storage.write_all(self._folder, texts)
        removed = storage.remove_others(self._folder, texts, "eds-")
        _log.info("wrote=%s removed=%s", ",".join(written), ",".join(removed))

    async def _undo(self, step: Configuration, former: Configuration) -> None:
        """Puts the former files back, in an order as safe as the way here."""
        current = step
        for back in plan(step, former):
            self._write(back)
            try:
                await self._until_used(back, current, lambda: False)
            except (ReadbackMismatch, Superseded) as error:
                _log.error("while undoing: %s", error)
            current = back

    async def _until_used(
        self, step: Configuration, current: Configuration, superseded: Callable[[], bool]
    ) -> None:
        warming = not current.clusters.items() >= step.clusters.items()
        # What is written meanwhile is in use at once; only its proof waits for them.
        warming = warming or bool(self._warming & step.clusters.keys())
        known = step if step.clusters == current.clusters else current
        deadline = time.monotonic() + (WARMING_SECONDS if warming else READBACK_SECONDS)
        while missing := await differences(self._admin, step, known=known):
            if warming and superseded():
                raise Superseded
            if time.monotonic() > deadline:
                raise ReadbackMismatch("Envoy does not use what was written: " + "; ".join(missing))
            await asyncio.sleep(POLL_SECONDS)
        self._warming = frozenset()

    async def _reason(self, before: dict[str, int]) -> str:
        self._rejections = await self._admin.rejections()
        grown = [
            f"{name} +{value - before.get(name, 0)}"
            for name, value in self._rejections.items()
            if value > before.get(name, 0)
        ]
        return f" ({', '.join(sorted(grown))}; its log says why)" if grown else ""
