"""PURE: models in buckets of the S3 API, `s3://BUCKET[/PREFIX][@VERSION]`.

A bucket has no commits. The version of a model is a digest over the names, sizes and
ETags of its files: whoever replaces one makes another version.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final

VERSION_DIGITS: Final = 40
"""As many as a commit has: the cache and the digest of a pod take both."""
UNWANTED: Final = ("*.msgpack", "*.h5", "*.onnx", "*.ot", "original/*")
"""Files that no engine of ours loads."""
MOST_FILES: Final = 20_000
"""More below one prefix are no model, but a bucket full of them."""
_SOURCE: Final = re.compile(
    r"^s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>\S*?))?"
    r"(@(?P<version>[0-9a-f]{40}))?$"
)


@dataclass(frozen=True, slots=True)
class BucketModel:
    """One model in a bucket."""

    bucket: str
    prefix: str
    """Of its keys; empty (the whole bucket) or ending in a slash."""
    version: str | None
    """The only one that will do; None: whatever is there."""

    @property
    def source(self) -> str:
        """As in the spec, without a version."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def folder_name(self) -> str:
        """Its folder in the cache; of three parts, so that no model of a hub has it."""
        place = sha256(self.source.encode()).hexdigest()[:16]
        return f"models--s3--{self.bucket}--{place}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What a bucket's list says of one file."""

    name: str
    """Below the prefix."""
    size: int
    """Bytes."""
    etag: str

    @property
    def blob_name(self) -> str:
        """Of its content in the cache: the same name, size and ETag are the same content."""
        return sha256(json.dumps([self.name, self.size, self.etag]).encode()).hexdigest()


def bucket_of(source: str) -> BucketModel | None:
    """The bucket of a source; None for other kinds."""
    found = _SOURCE.match(source)
    if found is None:
        return None
    prefix = (found["prefix"] or "").strip("/")
    return BucketModel(found["bucket"], f"{prefix}/" if prefix else "", found["version"])


def wanted(files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Those that a download fetches."""
    for file in files:
        if not any(fnmatchcase(file.name, pattern) for pattern in UNWANTED):
            yield file


def version_of(files: Mapping[str, StoredFile]) -> str:
    """The version that these files are."""
    listed = [[file.name, file.size, file.etag] for file in wanted(files.values())]
    return sha256(json.dumps(sorted(listed)).encode()).hexdigest()[:VERSION_DIGITS]


def is_safe(name: str) -> bool:
    """Whether a key may become a path below a folder: keys are anything that somebody uploaded."""
    parts = name.split("/")
    return "\0" not in name and "\\" not in name and not {"", ".", ".."} & set(parts)
