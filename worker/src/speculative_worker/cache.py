"""Edge: the cache that models are fetched into: its place, its room, and how far a download is.

Laid out as the hub's own library does (`models--NAME/{blobs,snapshots,refs}`), buckets'
models too, so that one library can look after both.
"""

import contextlib
import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log

LOOK_SECONDS: Final = 1.0
_LEFT_SECONDS: Final = 3600.0
"""A part of a file that nobody has written to for so long was left by a process that is gone."""
_STEP_PERCENT: Final = 10
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_BROKEN: Final = (errno.EROFS, errno.EIO, errno.ESTALE)
"""Of a file that is written; the library's errors do not name it then."""
_GIBIBYTE: Final = 2**30

Progress = Callable[[str], None]
"""Hears how far a download is, in steps of ten percent."""


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A model in the cache."""

    folder: Path
    commit: str
    """The hub's commit, or the version of a bucket's files; empty where a hub was not asked
    (offline)."""


def cache_folder(directory: str | None) -> Path:
    """The cache that is configured, else the container's own temporary folder."""
    return Path(directory or os.path.join(tempfile.gettempdir(), "models"))


def hub_folder(repository: str) -> str:
    """Name of the folder of a hub's model; the hub's own library gives it."""
    return f"models--{repository.replace('/', '--')}"


def sweep(folder: Path) -> None:
    """Removes what killed downloads of a model left and nobody took up: it fills the disk."""
    limit = time.time() - _LEFT_SECONDS
    for part in (folder / "blobs").glob("*.incomplete"):
        with contextlib.suppress(OSError):  # somebody else swept it
            if part.stat().st_mtime < limit:
                part.unlink()
                log("download-swept", file=part.name)


def sizes_of(parts: Iterable[Path]) -> list[tuple[int, Path]]:
    """Parts of files with their sizes, the longest first; those that another pod finished or
    took over meanwhile are left out."""
    found = []
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            found.append((part.stat().st_size, part))
    return sorted(found, reverse=True)


def require_room(name: str, missing_bytes: int, cache: Path) -> None:
    """Raises `WorkerFailure`: DiskTooSmall."""
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if missing_bytes > free:
        raise too_large(name, missing_bytes, cache, free)


def too_large(name: str, missing_bytes: int, cache: Path, free: int) -> WorkerFailure:
    """More is to be fetched than there is room for."""
    return WorkerFailure(
        WorkerReason.DISK_TOO_SMALL,
        f"{name}: {size_text(missing_bytes)} are to be fetched and {cache} has {size_text(free)} "
        "free; give modelCache a larger claim, or the container more ephemeral storage",
        retryable=False,
    )


def disk_failure(name: str, error: OSError, cache: Path) -> WorkerFailure:
    """What the disk says while a model is written to it."""
    said = f"{name}: {cache} can't be written ({type(error).__name__}: {error.strerror})"
    if error.errno in _FULL:
        # The next attempt holds what is still missing against what is free, with both numbers.
        text = f"{said}; the disk became full while it was fetched"
        return WorkerFailure(WorkerReason.DISK_TOO_SMALL, text, retryable=True)
    lasting = error.errno in _FORBIDDEN
    advice = f"; user {os.getuid()} needs to write there" if lasting else ""
    return WorkerFailure(WorkerReason.CACHE_UNWRITABLE, said + advice, retryable=not lasting)


def is_of_disk(error: BaseException) -> bool:
    """Whether an error tells of the disk, and not of a line: both are OSErrors."""
    if not isinstance(error, OSError) or isinstance(error, ConnectionError | TimeoutError):
        return False
    return error.errno in _FULL or error.errno in _BROKEN or error.filename is not None


def size_text(count: int) -> str:
    """Bytes for people."""
    return f"{count / _GIBIBYTE:.1f} GiB"


class Watch:
    """Looks at a model's folder while it fills, and says so at each ten percent."""

    def __init__(self, name: str, folder: Path, missing_bytes: int, progress: Progress) -> None:
        self._name, self._folder, self._progress = name, folder, progress
        self._missing = missing_bytes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="download-watch")

    def __enter__(self) -> None:
        if self._missing:
            self._progress(f"0.0 of {size_text(self._missing)}")
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._missing:
            self._thread.join()

    def _look(self) -> None:
        before, started, said = _held(self._folder), time.monotonic(), 0
        while not self._over.wait(LOOK_SECONDS):
            fetched = max(0, _held(self._folder) - before)
            percent = min(100, 100 * fetched // self._missing) // _STEP_PERCENT * _STEP_PERCENT
            if percent <= said:
                continue
            said = percent
            rate = fetched / max(0.001, time.monotonic() - started) / 2**20
            text = f"{fetched / _GIBIBYTE:.1f} of {size_text(self._missing)}, {rate:.0f} MiB/s"
            self._progress(text)
            log("download", model=self._name, percent=percent, progress=text)


def _held(folder: Path) -> int:
    """Bytes of all files below, half fetched ones included, links not followed."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue  # renamed meanwhile
    return total
