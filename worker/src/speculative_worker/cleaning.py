"""Edge: models in the cache that nobody uses any more are listed, or removed.

Nothing is removed that somebody may need: what a resource or a recorded revision of
the namespace names, what none of ours fetched (it has no stamp), what was stamped,
read or written within the time asked for, and any model that somebody began to fetch
within a day. The hub's own library knows what belongs to a commit and what its others
share with it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from speculative_api.model_buckets import bucket_of
from speculative_api.model_files import HUB
from speculative_api.worker import CacheCleanUp
from speculative_worker import uses
from speculative_worker.cache import size_text
from speculative_worker.log import log

_BEGUN_SECONDS: Final = 86_400.0
_COMMIT_DIGITS: Final = 40


@dataclass(frozen=True, slots=True)
class Unused:
    """A model at one commit that may go."""

    folder: str
    commit: str
    bytes: int
    """What its removal frees: files that other commits share are not counted."""
    used_at: float
    """Unix seconds of its last use."""


def clean(cache: Path, wish: CacheCleanUp) -> list[str]:
    """Lists or removes what nobody uses; a sentence for each, with its size."""
    said = []
    for found in unused(cache, wish):
        days = (time.time() - found.used_at) / 86_400
        gone = wish.removes and _removed(cache, wish, found)
        if wish.removes and not gone:
            continue  # somebody came back to it
        verb = "removed from the cache" if gone else "unused in the cache (not removed)"
        said.append(
            f"{found.folder} at {found.commit}: {verb}, {size_text(found.bytes)}, last used "
            f"{days:.1f} days ago"
        )
        event = "cache-removed" if gone else "cache-unused"
        log(event, model=found.folder, commit=found.commit, bytes=found.bytes)
    return said


def unused(cache: Path, wish: CacheCleanUp) -> list[Unused]:
    """What may go, longest unused first."""
    kept = set(_in_use(cache, wish.in_use))
    found = [
        entry
        for repository in _repositories(cache)
        for entry in _unused_in(cache, repository, wish)
        if (entry.folder, entry.commit) not in kept
    ]
    return sorted(found, key=lambda entry: entry.used_at)


def _repositories(cache: Path) -> Iterator[Any]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        scanned = scan_cache_dir(cache)
    except (CacheNotFound, OSError) as error:
        log("cache-not-read", cache=cache, error=error)
        return
    for repository in scanned.repos:
        # One at a time: two models may share a commit's name, and only one of them be unused.
        yield replace(scanned, repos=frozenset({repository}))


def _unused_in(cache: Path, scanned: Any, wish: CacheCleanUp) -> Iterator[Unused]:
    (repository,) = scanned.repos
    folder, now = repository.repo_path.name, time.time()
    if now - uses.last_begun(cache, folder) < _BEGUN_SECONDS:
        return
    for revision in repository.revisions:
        commit = revision.commit_hash
        stamped = uses.last_used(cache, folder, commit)
        if stamped is None:
            continue
        touched = (max(file.blob_last_accessed, file.blob_last_modified) for file in revision.files)
        used_at = max([stamped, *touched])
        if now - used_at >= wish.unused_hours * 3600:
            freed = scanned.delete_revisions(commit).expected_freed_size
            yield Unused(folder, commit, freed, used_at)


def _in_use(cache: Path, sources: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Folder and commit of each source: the one that is named, else what its name led to last."""
    for source in sources:
        folder = uses.folder_of(source)
        if folder is None:
            continue
        hub, bucket = HUB.match(source), bucket_of(source)
        named = (hub["revision"] if hub else bucket.version if bucket else None) or "main"
        if len(named) == _COMMIT_DIGITS:
            yield folder, named
        try:
            yield folder, (cache / folder / "refs" / named).read_text().strip()
        except OSError:
            continue


def _removed(cache: Path, wish: CacheCleanUp, found: Unused) -> bool:
    """Looks once more, under the lock, and removes; False where somebody uses it now."""
    try:
        with uses.held(cache, found.folder):
            for scanned in _repositories(cache):
                (repository,) = scanned.repos
                if repository.repo_path.name != found.folder:
                    continue
                still = {entry.commit for entry in _unused_in(cache, scanned, wish)}
                if found.commit in still:
                    scanned.delete_revisions(found.commit).execute()
                    uses.forget(cache, found.folder, found.commit)
                    return True
    except OSError as error:
        log("cache-not-removed", model=found.folder, commit=found.commit, error=error)
    return False
