"""Edge: what a killed process had of a hub's file is taken up at that byte.

The hub's library begins each attempt with a part of its own
(`ETAG.RANDOM.incomplete`, huggingface_hub 2.4, `_download_to_tmp_and_move`), since
some file systems grant every caller the lock and two writers of one part would
mix. Here a part is taken over by renaming it, which one process alone can do, goes
on by the library's own transfer, and counts only if its SHA-256 is the one that the
hub names. The library then finds the file whole. Whatever goes wrong here is left
to the library, which fetches the file anew, or says why not.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from speculative_worker.cache import hub_folder, is_of_disk, sizes_of
from speculative_worker.log import log

_CHECKSUM: Final = re.compile(r"[0-9a-f]{64}")
"""ETag of a large file: its SHA-256. Small ones have another, and are soon fetched."""
_LOCK_SECONDS: Final = 0.5
"""Whoever holds the lock is fetching the file now."""
_BLOCK_BYTES: Final = 512
"""Unit of `st_blocks`, whatever the file system's own is."""


def parts_of(model_folder: Path) -> list[tuple[int, Path]]:
    """What killed processes left of a model's files, with sizes, the longest first."""
    found = sizes_of((model_folder / "blobs").glob("*.incomplete"))
    return [(size, part) for size, part in found if size]


def resume(repository: str, commit: str, names: Iterable[str], cache: Path) -> None:
    """Finishes the files of which there is a part; `names` are those that are missing.

    Raises `OSError` for what the disk says, and nothing else.
    """
    from huggingface_hub import errors

    folder = cache / hub_folder(repository)
    left = {part.name.partition(".")[0] for _, part in parts_of(folder)}
    if not left:
        return
    for name in names:
        try:
            _resume(repository, commit, name, folder, left)
        except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            if is_of_disk(error):
                raise
            log("not-resumed", file=name, why=type(error).__name__)


def _resume(repository: str, commit: str, name: str, folder: Path, left: set[str]) -> None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    url = hf_hub_url(repository, name, revision=commit)
    said = get_hf_file_metadata(url)
    etag, size = said.etag or "", said.size
    if etag not in left or size is None or not _CHECKSUM.fullmatch(etag):
        return
    lock = folder.parent / ".locks" / folder.name / f"{etag}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock, timeout=_LOCK_SECONDS):
        whole = folder / "blobs" / etag
        part = _taken(folder, etag, size)
        if part is None or whole.exists():
            return
        had = part.stat().st_size
        log("download-resumed", file=name, bytes=had, of=size)
        _finish(part, url, size)
        if _checksum(part) == etag:
            part.rename(whole)
        else:
            part.unlink()
            log("not-resumed", file=name, why="its checksum is another")


def _taken(folder: Path, etag: str, size: int) -> Path | None:
    """The longest part of a file, under a name that only this process knows."""
    for _, part in parts_of(folder):
        if not part.name.startswith(f"{etag}."):
            continue
        mine = part.with_name(f"{etag}.{uuid.uuid4().hex[:8]}.incomplete")
        try:
            found = part.stat()
            # One that was written in many places at once has holes, and its length says nothing.
            if found.st_size > size or found.st_blocks * _BLOCK_BYTES < found.st_size:
                continue
            part.rename(mine)
        except FileNotFoundError:
            continue  # somebody else took it
        return mine
    return None


def _finish(part: Path, url: str, size: int) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    with part.open("r+b") as file:
        had = file.seek(0, os.SEEK_END)
        http_get(url, file, resume_size=had, headers=build_hf_headers(), expected_size=size)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
