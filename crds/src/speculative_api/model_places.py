"""Edge: which reader a model that is fetched has: a hub's or a bucket's, or the cache's."""

from pathlib import Path

from speculative_api.bucket_files import BucketFiles, cached_version
from speculative_api.model_buckets import bucket_of
from speculative_api.model_files import HUB, HubFiles, cached_folder

RemoteFiles = HubFiles | BucketFiles


def remote_files(source: str, *, endpoint: str | None = None) -> RemoteFiles | None:
    """The files of a model where it comes from; None for one that is mounted.

    Args:
        endpoint: of the hub; None: the usual one, or HF_ENDPOINT.

    Raises `NotHere` (away, refused).
    """
    if hub := HUB.match(source):
        return HubFiles(hub["repository"], hub["revision"], endpoint=endpoint)
    if bucket := bucket_of(source):
        return BucketFiles(bucket)
    return None


def cached(source: str, cache: Path) -> Path | None:
    """The folder of a model that the cache has; None where it has none."""
    if hub := HUB.match(source):
        return cached_folder(hub["repository"], hub["revision"], cache)
    bucket = bucket_of(source)
    version = cached_version(bucket, cache) if bucket is not None else None
    if bucket is None or version is None:
        return None
    return cache / bucket.folder_name / "snapshots" / version


def pinned(source: str, cache: Path) -> Path | None:
    """Like `cached`, for a source that names a bucket's version: nothing newer is asked for."""
    bucket = bucket_of(source)
    return cached(source, cache) if bucket is not None and bucket.version is not None else None
