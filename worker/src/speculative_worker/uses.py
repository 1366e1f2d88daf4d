"""Edge: who uses a model of the cache: a stamp for each model and commit.

Workers and download Jobs touch it when they fetch or find a model, and workers three
times an hour while they serve. A model without a stamp is nobody's of ours. A stamp is set, and
a model is removed, under one lock: who comes first is seen by the other.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from speculative_api.model_buckets import bucket_of
from speculative_api.model_files import HUB
from speculative_worker.cache import hub_folder

STAMP_SECONDS: Final = 1200.0
"""Between two stamps of a worker that serves; well below the shortest `unusedHours`, 1."""
_BEGUN: Final = "begun"
"""Stamp of a model that somebody begins to fetch: its commit is not known yet."""


def folder_of(source: str) -> str | None:
    """Name of a model's folder in the cache; None for one that is not fetched."""
    if hub := HUB.match(source):
        return hub_folder(hub["repository"])
    bucket = bucket_of(source)
    return bucket.folder_name if bucket is not None else None


def begin(cache: Path, source: str) -> None:
    """Somebody is about to fetch a model, or to look whether it is there."""
    if folder := folder_of(source):
        _touch(cache, folder, _BEGUN)


def stamp(cache: Path, source: str, commit: str) -> None:
    """A model is in use at this commit."""
    if (folder := folder_of(source)) and commit:
        _touch(cache, folder, commit)


def last_begun(cache: Path, folder: str) -> float:
    """Unix seconds; 0 where nobody ever did."""
    return last_used(cache, folder, _BEGUN) or 0.0


def last_used(cache: Path, folder: str, commit: str) -> float | None:
    """Unix seconds; None for what none of ours ever used."""
    try:
        return (_stamps(cache, folder) / commit).stat().st_mtime
    except OSError:
        return None


def forget(cache: Path, folder: str, commit: str) -> None:
    """The model was removed at this commit."""
    with suppress(OSError):
        (_stamps(cache, folder) / commit).unlink()


@contextmanager
def held(cache: Path, folder: str) -> Iterator[None]:
    """Keeps anybody from beginning to use a model meanwhile. Raises `OSError`."""
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    lock = cache / ".locks" / folder / "uses.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        yield


def _touch(cache: Path, folder: str, name: str) -> None:
    # A cache that can't be written is no reason to end: then nothing is removed from it either.
    with suppress(OSError), held(cache, folder):
        stamps = _stamps(cache, folder)
        stamps.mkdir(parents=True, exist_ok=True)
        (stamps / name).touch()
        os.utime(stamps / name, (time.time(), time.time()))


def _stamps(cache: Path, folder: str) -> Path:
    return cache / ".uses" / folder
