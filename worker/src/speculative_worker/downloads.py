"""Edge: a model comes from a hub into the cache, with room on the disk, progress and a commit.

The kept library does the work: locks per file, so that pods may share a cache;
files that are whole are not fetched again, and a line that breaks goes on where
it was; sizes checked. What a killed process had of a file it does not take up
(huggingface_hub 2.4, `_download_to_tmp_and_move`): that is swept. This asks it
first what it would fetch, refuses what does not fit on the disk, and says how far
it is.
"""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_api.model_files import REFUSALS, UNWANTED, status_of
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log

_LOOK_SECONDS: Final = 1.0
_LEFT_SECONDS: Final = 3600.0
"""A part of a file that nobody has written to for so long was left by a process that is gone."""
_STEP_PERCENT: Final = 10
_GIBIBYTE: Final = 2**30

Progress = Callable[[str], None]
"""Hears how far a download is, in steps of ten percent."""


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A model in the cache."""

    folder: Path
    commit: str
    """What the hub resolved the revision to; empty where it was not asked (offline)."""


@dataclass(frozen=True, slots=True)
class _Plan:
    commit: str
    missing_bytes: int


def downloaded(
    repository: str, revision: str | None, cache_directory: str | None, progress: Progress
) -> Downloaded:
    """The model at one commit, fetched as far as it is not in the cache.

    Raises `WorkerFailure`: ModelNotFound, DiskTooSmall or HubUnreachable.
    """
    # Imported here: only hub models need it, and it is slow to import.
    from huggingface_hub import errors, snapshot_download

    cache = _cache(cache_directory)
    name = f"hf://{repository}" + (f"@{revision}" if revision else "")
    try:
        model_folder = cache / f"models--{repository.replace('/', '--')}"
        _sweep(model_folder)
        plan = _plan(repository, revision, cache)
        if plan is not None:
            _require_room(name, plan, cache)
            log("download-started", model=name, commit=plan.commit, bytes=plan.missing_bytes)
        watch = _Watch(name, model_folder, plan, progress)
        with watch:
            folder = snapshot_download(
                repository,
                # Everything at the commit that was looked at, whatever moves meanwhile.
                revision=plan.commit if plan is not None else revision,
                cache_dir=cache,
                ignore_patterns=list(UNWANTED),
            )
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        # HTTPError is that of the HTTP library which this hub version uses, in whatever module;
        # OfflineModeIsEnabled, LocalEntryNotFoundError and socket errors are OSErrors.
        if status_of(error) in REFUSALS:
            raise _refused(name, error) from error
        raise _unreachable(name, error) from error
    commit = plan.commit if plan is not None else ""
    log("download-done", model=name, commit=commit or "unknown")
    return Downloaded(Path(folder), commit)


def verify(repository: str, found: Downloaded, cache_directory: str | None) -> int:
    """Holds every file of a fetched model against the hub's checksums; gives how many.

    A damaged file is removed, so that another attempt fetches it anew; 0 where the
    hub can't be asked.

    Raises `WorkerFailure`: ModelDamaged.
    """
    from huggingface_hub import HfApi, errors

    if not found.commit:
        return 0
    try:
        # A GiB takes about a second: it reads everything once.
        seen = HfApi().verify_repo_checksums(
            repository,
            revision=found.commit,
            cache_dir=_cache(cache_directory),
        )
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        log("not-verified", model=repository, why=type(error).__name__)
        return 0
    damaged = [mismatch["path"] for mismatch in seen.mismatches]
    for name in damaged:
        # The link and what it leads to: a link alone would be made anew.
        (found.folder / name).resolve().unlink(missing_ok=True)
        (found.folder / name).unlink(missing_ok=True)
    if damaged:
        raise WorkerFailure(
            WorkerReason.MODEL_DAMAGED,
            f"hf://{repository}: {', '.join(damaged[:8])} ({len(damaged)} of {seen.checked_count} "
            "files) had other checksums than the hub says; removed, and fetched anew by the next "
            "attempt",
            retryable=True,
        )
    return seen.checked_count


def _cache(directory: str | None) -> Path:
    return Path(directory or os.path.join(tempfile.gettempdir(), "models"))


def _plan(repository: str, revision: str | None, cache: Path) -> _Plan | None:
    """What would be fetched; None where the hub can't be asked and only the cache can help."""
    from huggingface_hub import errors, snapshot_download

    try:
        files = snapshot_download(
            repository,
            revision=revision,
            cache_dir=cache,
            ignore_patterns=list(UNWANTED),
            dry_run=True,
        )
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        if status_of(error) in REFUSALS:
            raise
        return None
    if not files:
        return None
    missing = sum(file.file_size or 0 for file in files if file.will_download)
    return _Plan(files[0].commit_hash, missing)


def _sweep(folder: Path) -> None:
    """Removes what killed downloads left: it is never taken up again, and fills the disk."""
    limit = time.time() - _LEFT_SECONDS
    for part in (folder / "blobs").glob("*.incomplete"):
        with contextlib.suppress(OSError):  # somebody else swept it
            if part.stat().st_mtime < limit:
                part.unlink()
                log("download-swept", file=part.name)


def _require_room(name: str, plan: _Plan, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if plan.missing_bytes > free:
        raise too_large(name, plan.missing_bytes, cache, free)


def too_large(name: str, missing_bytes: int, cache: Path, free: int) -> WorkerFailure:
    """More is to be fetched than there is room for."""
    return WorkerFailure(
        WorkerReason.DISK_TOO_SMALL,
        f"{name}: {_size(missing_bytes)} are to be fetched and {cache} has {_size(free)} "
        "free; give modelCache a larger claim, or the container more ephemeral storage",
        retryable=False,
    )


class _Watch:
    """Looks at the cache while it fills, and says so at each ten percent."""

    def __init__(self, name: str, folder: Path, plan: _Plan | None, progress: Progress) -> None:
        self._name, self._folder, self._progress = name, folder, progress
        self._missing = plan.missing_bytes if plan is not None else 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True, name="download-watch")

    def __enter__(self) -> None:
        if self._missing:
            self._progress(f"0.0 of {_size(self._missing)}")
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._missing:
            self._thread.join()

    def _look(self) -> None:
        before, started, said = _held(self._folder), time.monotonic(), 0
        while not self._over.wait(_LOOK_SECONDS):
            fetched = max(0, _held(self._folder) - before)
            percent = min(100, 100 * fetched // self._missing) // _STEP_PERCENT * _STEP_PERCENT
            if percent <= said:
                continue
            said = percent
            rate = fetched / max(0.001, time.monotonic() - started) / 2**20
            text = f"{fetched / _GIBIBYTE:.1f} of {_size(self._missing)}, {rate:.0f} MiB/s"
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


def _size(count: int) -> str:
    return f"{count / _GIBIBYTE:.1f} GiB"


def _refused(name: str, error: Exception) -> WorkerFailure:
    return WorkerFailure(
        WorkerReason.MODEL_NOT_FOUND,
        f"{name}: the hub does not give it out ({type(error).__name__}); check its name and "
        "revision, accept its terms, and set HF_TOKEN in pod.env from a Secret if it is private",
        retryable=False,
    )


def _unreachable(name: str, error: Exception) -> WorkerFailure:
    first_line = str(error).strip().partition("\n")[0][:300]
    return WorkerFailure(
        WorkerReason.HUB_UNREACHABLE,
        f"{name} cannot be fetched: the hub was not reached from this pod, or is switched off by "
        f"HF_HUB_OFFLINE ({type(error).__name__}: {first_line}); allow egress, set HF_ENDPOINT "
        "to a mirror, or put the model on a claim (pvc://)",
        retryable=True,
    )
