"""Edge: a model comes from a bucket into the cache, file by file, checked, and resumed.

Several files at a time, each under a lock that the other pods on the cache respect. What
a killed process had of a file is taken up: the part is renamed to a name of our own, so
that where a filesystem's locks are none, two processes never write one file. Every file
is held against the bucket's checksum before it gets its name.
"""

import contextlib
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

from speculative_api.bucket_files import Bucket, cached_version, missing_bytes
from speculative_api.conditions import WorkerReason
from speculative_api.model_buckets import BucketModel, StoredFile
from speculative_api.model_files import NotHere, Why
from speculative_worker.cache import (
    Downloaded,
    Progress,
    Watch,
    cache_folder,
    disk_failure,
    require_room,
    sizes_of,
    sweep,
)
from speculative_worker.checksums import Check, check_of
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log

FILES_AT_ONCE: Final = 8
_PIECE_BYTES: Final = 2**20
TRIES: Final = 5
"""Of a line that breaks without a byte in between."""
PAUSE_SECONDS: Final = 1.0


def bucket_downloaded(
    model: BucketModel, cache_directory: str | None, progress: Progress
) -> Downloaded:
    """The model at one version, fetched as far as it is not in the cache.

    Raises `WorkerFailure`: ModelNotFound, ModelDamaged, DiskTooSmall or HubUnreachable.
    """
    cache = cache_folder(cache_directory)
    folder = cache / model.folder_name
    kept = cached_version(model, cache)
    if kept is not None and model.version is not None:
        return Downloaded(folder / "snapshots" / kept, kept)
    try:
        bucket = Bucket(model)
    except NotHere as error:
        # As with a hub: while it is away, the cache may have it all.
        if error.why is not Why.AWAY or kept is None:
            raise failure_of(error) from error
        log("bucket-away", model=model.source, version=kept, why=str(error)[:200])
        return Downloaded(folder / "snapshots" / kept, kept)
    try:
        (folder / "blobs").mkdir(parents=True, exist_ok=True)
        sweep(folder)
        missing = missing_bytes(folder, bucket.wanted())
        require_room(model.source, missing, cache)
        log("download-started", model=model.source, version=bucket.version, bytes=missing)
        with Watch(model.source, folder, missing, progress):
            _fetch_all(bucket, folder)
        snapshot = _linked(folder, bucket)
    except NotHere as error:
        raise failure_of(error) from error
    except OSError as error:
        raise disk_failure(model.source, error, cache) from error
    log("download-done", model=model.source, version=bucket.version)
    return Downloaded(snapshot, bucket.version)


def verify_bucket(model: BucketModel, found: Downloaded, cache_directory: str | None) -> int:
    """Holds every file of a fetched model against the bucket's checksums; gives how many.

    A damaged file is removed, so that another attempt fetches it anew; 0 where the
    bucket can't be asked, or has another version meanwhile.

    Raises `WorkerFailure`: ModelDamaged.
    """
    folder = cache_folder(cache_directory) / model.folder_name
    try:
        bucket = Bucket(model)
        if bucket.version != found.commit:
            return 0
        checks = [(file, _check(bucket, file)) for file in bucket.wanted()]
    except NotHere as error:
        log("not-verified", model=model.source, why=str(error)[:200])
        return 0
    damaged = [file for file, check in checks if check and not _holds(folder, file, check)]
    for file in damaged:
        (folder / "blobs" / file.blob_name).unlink(missing_ok=True)
    if damaged:
        raise _damaged(model, [file.name for file in damaged])
    return sum(check is not None for _, check in checks)


def failure_of(error: NotHere) -> WorkerFailure:
    """What can't be read from a hub or a bucket, as a worker's end."""
    away = error.why is Why.AWAY
    reason = WorkerReason.HUB_UNREACHABLE if away else WorkerReason.MODEL_NOT_FOUND
    return WorkerFailure(reason, str(error), retryable=away)


def _fetch_all(bucket: Bucket, folder: Path) -> None:
    """Raises the first failure; files that are on their way stop at their next piece."""
    stop = threading.Event()
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="bucket") as pool:
        tasks = [pool.submit(_fetch, bucket, file, folder, stop) for file in bucket.wanted()]
        wait(tasks, return_when=FIRST_EXCEPTION)
        stop.set()
        for task in tasks:
            task.cancel()
    for task in tasks:
        if not task.cancelled():
            task.result()


def _fetch(bucket: Bucket, file: StoredFile, folder: Path, stop: threading.Event) -> None:
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    blob = folder / "blobs" / file.blob_name
    lock = folder.parent / ".locks" / folder.name / f"{file.blob_name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():
            return
        check = _check(bucket, file)
        part = _taken_up(blob)
        held = _shown(part, check)
        if held > file.size:
            part.unlink()
            raise _damaged(bucket.model, [file.name])
        if not _filled(bucket, file, part, check, stop):
            return
        if check is None:
            log("not-verified", file=file.name, why="the bucket has no checksum of it")
        elif not check.holds():
            part.unlink()
            raise _damaged(bucket.model, [file.name])
        part.rename(blob)


def _taken_up(blob: Path) -> Path:
    """A part of our own: the longest that a killed process left, or none yet."""
    ours = blob.with_name(f"{blob.name}.{uuid.uuid4().hex[:8]}.incomplete")
    for _, part in sizes_of(blob.parent.glob(f"{blob.name}.*.incomplete")):
        with contextlib.suppress(OSError):  # another process was quicker
            part.rename(ours)
            log("download-resumed", file=blob.name, bytes=ours.stat().st_size)
            break
    else:
        ours.touch()
    return ours


def _filled(
    bucket: Bucket, file: StoredFile, part: Path, check: Check | None, stop: threading.Event
) -> bool:
    """Appends to the part until it is whole; False when told to stop.

    A line that breaks goes on where it was. Raises `NotHere`.
    """
    tries, held = 0, part.stat().st_size
    with part.open("ab") as target:
        while held < file.size:
            before = held
            try:
                for piece in _pieces(bucket, file, held):
                    target.write(piece)
                    held += len(piece)
                    if check is not None:
                        check.update(piece)
                    if stop.is_set():
                        return False
                if held < file.size:
                    raise NotHere(f"{file.name}: the answer ended at byte {held}", Why.AWAY)
            except NotHere as error:
                tries = tries + 1 if held == before else 1
                if error.why is not Why.AWAY or tries >= TRIES:
                    raise
                log("download-broken", file=file.name, at=held, why=str(error)[:200])
                if stop.wait(tries * PAUSE_SECONDS):
                    return False
    return held == file.size


def _pieces(bucket: Bucket, file: StoredFile, start: int) -> Iterator[bytes]:
    """The content from a byte on. Raises `NotHere`."""
    with bucket.answering(file.name):
        answer = bucket.client.get_object(**bucket.where(file.name), Range=f"bytes={start}-")
        skipped = 0 if "ContentRange" in answer else start  # a store that takes no ranges
        # Not `with answer["Body"]`: that gives the stream without its check of the length.
        with contextlib.closing(answer["Body"]) as body:
            while skipped:
                skipped -= len(body.read(min(skipped, _PIECE_BYTES)))
            while piece := body.read(_PIECE_BYTES):
                yield piece


def _check(bucket: Bucket, file: StoredFile) -> Check | None:
    """Raises `NotHere`."""
    with bucket.answering(file.name):
        where = bucket.where(file.name)
        answer: dict[str, Any] = bucket.client.head_object(**where, ChecksumMode="ENABLED")

        def part_size() -> int | None:
            # Not on a condition: stores differ in whose ETag they hold that against.
            del where["IfMatch"]
            first = bucket.client.head_object(**where, PartNumber=1)
            return int(first["ContentLength"]) if first.get("PartsCount") else None

        return check_of(answer, file.size, part_size)


def _shown(part: Path, check: Check | None) -> int:
    """Shows a check what is there already; gives its length."""
    with part.open("rb") as content:
        while check is not None and (piece := content.read(_PIECE_BYTES)):
            check.update(piece)
    return part.stat().st_size


def _holds(folder: Path, file: StoredFile, check: Check) -> bool:
    blob = folder / "blobs" / file.blob_name
    return _shown(blob, check) == file.size and check.holds()


def _linked(folder: Path, bucket: Bucket) -> Path:
    """The folder of this version: links to its files. It has its name only when it is whole."""
    snapshot = folder / "snapshots" / bucket.version
    if not snapshot.is_dir():
        # Made beside the snapshots, so that whoever reads the cache sees no half of one.
        made = folder / f"{bucket.version}.{uuid.uuid4().hex[:8]}"
        for file in bucket.wanted():
            link = made / file.name
            link.parent.mkdir(parents=True, exist_ok=True)
            up = os.path.relpath(folder / "blobs", link.parent)
            link.symlink_to(Path("..", up, file.blob_name))
        snapshot.parent.mkdir(exist_ok=True)
        try:
            made.rename(snapshot)
        except OSError:
            if not snapshot.is_dir():
                raise
            shutil.rmtree(made)  # another pod was quicker
    refs = folder / "refs"
    refs.mkdir(exist_ok=True)
    written = refs / f".main.{uuid.uuid4().hex[:8]}"
    written.write_text(bucket.version)
    written.rename(refs / "main")
    return snapshot


def _damaged(model: BucketModel, names: list[str]) -> WorkerFailure:
    return WorkerFailure(
        WorkerReason.MODEL_DAMAGED,
        f"{model.source}: {', '.join(names[:8])} ({len(names)} files) had other content than the "
        "bucket's checksum says; removed, and fetched anew by the next attempt",
        retryable=True,
    )
