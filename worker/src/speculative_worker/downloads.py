"""Edge: a model comes from a hub into the cache, with room on the disk, progress and a commit.

The kept library does the work: locks per file, so that pods may share a cache;
files that are whole are not fetched again, and a line that breaks goes on where
it was; sizes checked. What a killed process had of a file is taken up by
`resuming` before the library begins. This asks it first what it would fetch,
refuses what does not fit on the disk, and says how far it is.
"""

from dataclasses import dataclass
from pathlib import Path

from speculative_api.conditions import WorkerReason
from speculative_api.model_buckets import UNWANTED
from speculative_api.model_files import REFUSALS, status_of
from speculative_worker.cache import (
    Downloaded,
    Progress,
    Watch,
    cache_folder,
    disk_failure,
    hub_folder,
    is_of_disk,
    require_room,
    sweep,
)
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log
from speculative_worker.resuming import parts_of, resume


@dataclass(frozen=True, slots=True)
class _Plan:
    commit: str
    missing: tuple[str, ...]
    """Names of files."""
    missing_bytes: int


def downloaded(
    repository: str, revision: str | None, cache_directory: str | None, progress: Progress
) -> Downloaded:
    """The model at one commit, fetched as far as it is not in the cache.

    Raises `WorkerFailure`: ModelNotFound, DiskTooSmall or HubUnreachable.
    """
    # Imported here: only hub models need it, and it is slow to import.
    from huggingface_hub import errors, snapshot_download

    cache = cache_folder(cache_directory)
    name = f"hf://{repository}" + (f"@{revision}" if revision else "")
    try:
        model_folder = cache / hub_folder(repository)
        sweep(model_folder)
        plan = _plan(repository, revision, cache)
        if plan is not None:
            # What is there of a part need not find room again.
            there = sum(size for size, _ in parts_of(model_folder))
            require_room(name, max(0, plan.missing_bytes - there), cache)
            log("download-started", model=name, commit=plan.commit, bytes=plan.missing_bytes)
        missing = plan.missing_bytes if plan is not None else 0
        watch = Watch(name, model_folder, missing, progress)
        with watch:
            if plan is not None:
                resume(repository, plan.commit, plan.missing, cache)
            folder = snapshot_download(
                repository,
                # Everything at the commit that was looked at, whatever moves meanwhile.
                revision=plan.commit if plan is not None else revision,
                cache_dir=cache,
                ignore_patterns=list(UNWANTED),
            )
    except errors.HFValidationError as error:
        raise _refused(name, error) from error
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        if isinstance(error, OSError) and is_of_disk(error):
            raise disk_failure(name, error, cache) from error
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
            cache_dir=cache_folder(cache_directory),
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
    missing = [file for file in files if file.will_download]
    return _Plan(
        files[0].commit_hash,
        tuple(file.filename for file in missing),
        sum(file.file_size or 0 for file in missing),
    )


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
