"""PURE: what a bucket says a file's content must be, held against the content.

Taken are, in this order: a checksum over the whole object, an ETag that is its MD5,
an ETag that is the MD5 over those of its parts. With encryption by a key of the
customer's an ETag is none of these.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

_MD5: Final = re.compile(r"^[0-9a-f]{32}$")
_OF_PARTS: Final = re.compile(r"^(?P<digest>[0-9a-f]{32})-(?P<count>[1-9][0-9]{0,4})$")
_PLAIN: Final = (None, "AES256")
"""Ways of encryption under which an ETag still speaks of the content."""


class Check(Protocol):
    """Is shown a file's content from its beginning, and says whether it is the right one."""

    def update(self, piece: bytes) -> None:
        """The next bytes."""

    def holds(self) -> bool:
        """Whether what was shown is what the bucket says."""


def check_of(
    answer: Mapping[str, Any], size: int, part_size: Callable[[], int | None]
) -> Check | None:
    """How a file can be checked; None where the bucket says nothing about its content.

    Args:
        answer: the bucket's about the object (HEAD with checksums asked for).
        size: bytes of the file.
        part_size: bytes of its first part, asked for only where that is needed.
    """
    if whole := _checksum(answer):
        return whole
    etag = str(answer.get("ETag", "")).strip('"')
    if answer.get("ServerSideEncryption") not in _PLAIN or "SSECustomerAlgorithm" in answer:
        return None
    if _MD5.match(etag):
        return _Hash("md5", bytes.fromhex(etag))
    found = _OF_PARTS.match(etag)
    length = part_size() if found is not None else None
    # Every uploader that we know makes all parts but the last equally long.
    if found is None or not length or -(-size // length) != int(found["count"]):
        return None
    return _Parts(bytes.fromhex(found["digest"]), length)


def _checksum(answer: Mapping[str, Any]) -> Check | None:
    if answer.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    for name, make in _WHOLE.items():
        text = str(answer.get(name, ""))
        # A checksum of checksums ends in the number of parts.
        if text and "-" not in text:
            return make(base64.b64decode(text))
    return None


class _Hash:
    def __init__(self, name: str, expected: bytes) -> None:
        self._hash = hashlib.new(name, usedforsecurity=False)
        self._expected = expected

    def update(self, piece: bytes) -> None:
        self._hash.update(piece)

    def holds(self) -> bool:
        return self._hash.digest() == self._expected


class _Parts:
    """The MD5 over the MD5s of parts of one length."""

    def __init__(self, expected: bytes, length: int) -> None:
        self._expected, self._length = expected, length
        self._digests, self._seen = b"", 0
        self._part = hashlib.md5(usedforsecurity=False)

    def update(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            taken = view[: self._length - self._seen]
            self._part.update(taken)
            self._seen += len(taken)
            view = view[len(taken) :]
            if self._seen == self._length:
                self._end_part()

    def holds(self) -> bool:
        if self._seen:
            self._end_part()
        return hashlib.md5(self._digests, usedforsecurity=False).digest() == self._expected

    def _end_part(self) -> None:
        self._digests += self._part.digest()
        self._part, self._seen = hashlib.md5(usedforsecurity=False), 0


class _Cyclic:
    """A cyclic redundancy check; the sum so far goes into the next piece's."""

    def __init__(self, next_sum: Callable[[bytes, int], int], expected: bytes) -> None:
        self._next, self._expected, self._sum = next_sum, int.from_bytes(expected), 0

    def update(self, piece: bytes) -> None:
        self._sum = self._next(piece, self._sum)

    def holds(self) -> bool:
        return self._sum == self._expected


def _crc64(expected: bytes) -> Check:
    from awscrt.checksums import crc64nvme  # loads a library of ten megabytes

    return _Cyclic(crc64nvme, expected)


def _crc32c(expected: bytes) -> Check:
    from awscrt.checksums import crc32c

    return _Cyclic(crc32c, expected)


_WHOLE: Final[Mapping[str, Callable[[bytes], Check]]] = {
    "ChecksumSHA256": lambda expected: _Hash("sha256", expected),
    "ChecksumSHA1": lambda expected: _Hash("sha1", expected),
    "ChecksumCRC64NVME": _crc64,
    "ChecksumCRC32C": _crc32c,
    "ChecksumCRC32": lambda expected: _Cyclic(zlib.crc32, expected),
}
