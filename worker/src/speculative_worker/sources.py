"""Edge: models that are fetched, `hf://` and `s3://`, behind one pair of functions."""

from speculative_api.model_buckets import bucket_of
from speculative_api.model_files import HUB
from speculative_worker import uses
from speculative_worker.bucket_downloads import bucket_downloaded, verify_bucket
from speculative_worker.cache import Downloaded, Progress, cache_folder
from speculative_worker.downloads import downloaded, verify


def fetched(source: str, cache_directory: str | None, progress: Progress) -> Downloaded | None:
    """The model in the cache; None for a source that is not fetched.

    Raises `WorkerFailure`: ModelNotFound, ModelDamaged, DiskTooSmall or HubUnreachable.
    """
    cache = cache_folder(cache_directory)
    uses.begin(cache, source)
    if hub := HUB.match(source):
        found = downloaded(hub["repository"], hub["revision"], cache_directory, progress)
    elif bucket := bucket_of(source):
        found = bucket_downloaded(bucket, cache_directory, progress)
    else:
        return None
    # Of a hub that was not asked the commit is the folder's name all the same.
    uses.stamp(cache, source, found.commit or found.folder.name)
    return found


def verified(source: str, found: Downloaded, cache_directory: str | None) -> int:
    """How many files of a fetched model were held against the checksums of where it came from.

    Raises `WorkerFailure`: ModelDamaged.
    """
    if hub := HUB.match(source):
        return verify(hub["repository"], found, cache_directory)
    if bucket := bucket_of(source):
        return verify_bucket(bucket, found, cache_directory)
    return 0
