"""Edge: the files of a model in a bucket of the S3 API, listed and read by range.

Beside `model_files` the only IO of this package, for the same three programs.
Whoever reads a bucket brings `boto3` along. It finds credentials, region and
endpoint as every program of its kind does (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
a role of the service account, a profile; AWS_ENDPOINT_URL, AWS_CA_BUNDLE); where it
finds no credentials, the bucket is asked without. A custom endpoint is asked in
path style.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from speculative_api.model_buckets import (
    MOST_FILES,
    BucketModel,
    StoredFile,
    is_safe,
    version_of,
    wanted,
)
from speculative_api.model_facts import Unreadable
from speculative_api.model_files import TEXT_BYTES, NotHere, Why

_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 60
_TRIES: Final = 4
_PASSING: Final = frozenset(
    {"RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "Throttling", "ThrottlingException"}
)
"""Codes below 500 that asking again later may change."""
_REFUSED_STATUS: Final = range(400, 500)
_CHANGED_STATUS: Final = 412
_HELP: Final = {
    "NoSuchBucket": "there is no such bucket at this endpoint; check its name and AWS_ENDPOINT_URL",
    "PreconditionFailed": "it was replaced while it was read",
    "InvalidObjectState": "it is archived; restore it first",
}
_HELP_AWAY: Final = "check AWS_ENDPOINT_URL, AWS_CA_BUNDLE and the way there"
_HELP_REFUSED: Final = (
    "check the names, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or the role of the service "
    "account: it needs s3:ListBucket and s3:GetObject"
)
_HELP_ANONYMOUS: Final = (
    "it was asked without credentials, for none were found: set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY (in pod.env from a Secret), or give the service account a role"
)


class Bucket:
    """The files of one model as the list says them now.

    Raises `NotHere`: away, or refused (no such bucket, nothing below the prefix, no
    right to read it, another version than the source names).
    """

    def __init__(self, model: BucketModel) -> None:
        self.model = model
        with self.answering(""):
            self.client, self._is_anonymous = _client()
            self.files = self._listed()
        self.version = version_of(self.files)
        if model.version is not None and model.version != self.version:
            raise NotHere(
                f"{model.source} has version {self.version} now, and the spec names "
                f"{model.version}: somebody changed the files; write the new version, or put the "
                "old files back",
                Why.REFUSED,
            )

    def wanted(self) -> list[StoredFile]:
        """What a download fetches."""
        return list(wanted(self.files.values()))

    def where(self, name: str) -> dict[str, str]:
        """Of one file, as a request says it; refused once it is another than was listed."""
        model = self.model
        key = {"Bucket": model.bucket, "Key": model.prefix + name}
        return {**key, "IfMatch": self.files[name].etag}

    def _listed(self) -> dict[str, StoredFile]:
        model, found = self.model, dict[str, StoredFile]()
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=model.bucket, Prefix=model.prefix
        )
        for page in pages:
            for entry in page.get("Contents", ()):
                name = str(entry["Key"]).removeprefix(model.prefix)
                if name.endswith("/") or not name:
                    continue  # what consoles make for a folder
                if not is_safe(name):
                    raise NotHere(f"{model.source}: {name!r} is no name of a file", Why.REFUSED)
                found[name] = StoredFile(name, int(entry["Size"]), str(entry["ETag"]))
            if len(found) > MOST_FILES:
                raise NotHere(
                    f"{model.source} has more than {MOST_FILES} files: name one model's folder",
                    Why.REFUSED,
                )
        if not found:
            raise NotHere(
                f"{model.source}: no file of bucket {model.bucket!r} begins with {model.prefix!r}",
                Why.REFUSED,
            )
        return found

    @contextmanager
    def answering(self, name: str) -> Iterator[None]:
        """Raises `NotHere` for what the library raises, with the code and what to do."""
        from botocore.exceptions import BotoCoreError, ClientError

        place = self.model.source + (f"/{name}" if name else "")
        try:
            yield
        except ClientError as error:
            raise self._answered(place, error) from error
        except (BotoCoreError, OSError, ValueError) as error:
            # ValueError: an endpoint that is no URL.
            said = str(error).strip().partition("\n")[0][:300]
            text = f"{place}: {type(error).__name__}: {said}"
            if is_away(error):
                raise NotHere(f"{text}; {_HELP_AWAY}", Why.AWAY) from error
            raise NotHere(f"{text}; {_HELP_REFUSED}", Why.REFUSED) from error

    def _answered(self, place: str, error: Any) -> NotHere:
        answer: Mapping[str, Any] = error.response
        code = str(answer.get("Error", {}).get("Code", ""))[:100]
        said = str(answer.get("Error", {}).get("Message", ""))[:200]
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = f"{place}: {code}: {said}".rstrip(": ")
        if status not in _REFUSED_STATUS or code in _PASSING or status == _CHANGED_STATUS:
            return NotHere(f"{text}; {_HELP.get(code, _HELP_AWAY)}", Why.AWAY)
        lacking = self._is_anonymous and code not in _HELP
        return NotHere(
            f"{text}; {_HELP_ANONYMOUS if lacking else _HELP.get(code, _HELP_REFUSED)}", Why.REFUSED
        )


class BucketFiles:
    """`ModelFiles` over a bucket, at one version. Raises `NotHere` (away, refused)."""

    def __init__(self, model: BucketModel) -> None:
        self._bucket = Bucket(model)
        self.commit = self._bucket.version

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file directly below the prefix."""
        files = self._bucket.files
        return {name: file.size for name, file in files.items() if "/" not in name}

    def missing_bytes(self, cache: Path) -> int:
        """Of what a download would fetch into this cache."""
        folder = cache / self._bucket.model.folder_name
        return missing_bytes(folder, self._bucket.wanted())

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""
        return self._get(name, TEXT_BYTES).decode(errors="replace")

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file, by a range request. Raises `Unreadable`."""
        return self._get(name, size)

    def _get(self, name: str, size: int) -> bytes:
        file = self._bucket.files.get(name)
        if file is None:
            raise Unreadable(f"{name} does not exist")
        length = min(size, file.size)
        if not length:
            return b""
        with self._bucket.answering(name):
            answer = self._bucket.client.get_object(
                **self._bucket.where(name), Range=f"bytes=0-{length - 1}"
            )
            # A store that takes no ranges sends all of it: the rest is not read.
            with closing(answer["Body"]) as body:
                found: bytes = body.read(length)
        if len(found) < length:
            raise NotHere(f"{name}: the answer ended at byte {len(found)}; {_HELP_AWAY}", Why.AWAY)
        return found


def missing_bytes(folder: Path, files: Iterable[StoredFile]) -> int:
    """Of what a download would fetch, less what one that was cut off left."""
    held = dict[str, int]()
    for blob in (folder / "blobs").glob("*"):
        name, is_part = blob.name.partition(".")[0], blob.suffix == ".incomplete"
        with suppress(OSError):  # renamed meanwhile
            size = blob.stat().st_size if is_part else sys.maxsize
            held[name] = max(size, held.get(name, 0))
    return sum(max(0, file.size - held.get(file.blob_name, 0)) for file in files)


def cached_version(model: BucketModel, cache: Path) -> str | None:
    """The version that a cache has whole: the one that is named, else the one fetched last."""
    folder = cache / model.folder_name
    version = model.version
    if version is None:
        try:
            version = (folder / "refs" / "main").read_text()
        except OSError:
            return None
    links = folder / "snapshots" / version
    # A link without its file leads to something that somebody took away.
    whole = links.is_dir() and all(each.exists() for each in links.rglob("*"))
    return version if whole else None


def is_away(error: BaseException) -> bool:
    """Whether the store was not reached, or the line broke, which asking again may change."""
    from botocore import exceptions

    lasting = (exceptions.SSOError, exceptions.ProfileNotFound, exceptions.PartialCredentialsError)
    passing = (
        exceptions.ConnectionError,
        exceptions.HTTPClientError,
        exceptions.IncompleteReadError,
        exceptions.CredentialRetrievalError,
        exceptions.MetadataRetrievalError,
        OSError,
    )
    return isinstance(error, passing) and not isinstance(error, lasting)


def _client() -> tuple[Any, bool]:
    """A client, and whether it asks without credentials."""
    # Imported here: only models in buckets need them, and they are slow to import.
    from boto3.session import Session
    from botocore import UNSIGNED
    from botocore.config import Config

    session = Session()
    is_anonymous = session.get_credentials() is None
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _TRIES},
        max_pool_connections=32,
        # Files are held against the bucket's own checksums as a whole, over every resumption.
        response_checksum_validation="when_required",
        **({"signature_version": UNSIGNED} if is_anonymous else {}),
    )
    return session.client("s3", config=config), is_anonymous
