"""What a bucket says about a file's content, held against the content."""

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_worker.checksums import Check, check_of

CONTENT = b"123456789"


def b64(number: int, length: int) -> str:
    return base64.b64encode(number.to_bytes(length)).decode()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def of_parts(content: bytes, length: int) -> str:
    parts = [content[at : at + length] for at in range(0, len(content), length)]
    return f"{md5(b''.join(hashlib.md5(part).digest() for part in parts))}-{len(parts)}"


# The cyclic sums are the check values of their definitions.
ANSWERS = [
    ("md5", {"ETag": f'"{md5(CONTENT)}"'}),
    ("md5, encrypted by the store", {"ETag": md5(CONTENT), "ServerSideEncryption": "AES256"}),
    ("parts", {"ETag": f'"{of_parts(CONTENT, 4)}"'}),
    ("sha256", {"ChecksumSHA256": base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()}),
    ("sha1", {"ChecksumSHA1": base64.b64encode(hashlib.sha1(CONTENT).digest()).decode()}),
    ("crc32", {"ChecksumCRC32": b64(0xCBF43926, 4), "ChecksumType": "FULL_OBJECT"}),
    ("crc32c", {"ChecksumCRC32C": b64(0xE3069283, 4)}),
    ("crc64", {"ChecksumCRC64NVME": b64(0xAE8B14860A799888, 8), "ETag": "x"}),
    ("crc64 beside an ETag that is none", {"ChecksumCRC64NVME": b64(0xAE8B14860A799888, 8)}),
]


def shown(answer: dict[str, Any], content: bytes, piece: int = 2) -> bool:
    check = check_of(answer, len(CONTENT), lambda: 4)
    assert check is not None
    return _holds(check, content, piece)


def _holds(check: Check, content: bytes, piece: int) -> bool:
    for at in range(0, len(content), piece):
        check.update(content[at : at + piece])
    return check.holds()


@pytest.mark.parametrize("answer", [row[1] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_the_right_content_holds_and_no_other(answer: dict[str, Any]) -> None:
    assert shown(answer, CONTENT)
    assert not shown(answer, CONTENT[:-1] + b"0")
    assert not shown(answer, CONTENT[:-1])


@pytest.mark.parametrize(
    "answer,part_size",
    [
        ({"ETag": md5(CONTENT), "ServerSideEncryption": "aws:kms"}, 4),
        ({"ETag": md5(CONTENT), "SSECustomerAlgorithm": "AES256"}, 4),
        ({"ETag": of_parts(CONTENT, 4)}, None),
        ({"ETag": of_parts(CONTENT, 4)}, 8),
        ({"ETag": "W/anything"}, 4),
        ({"ChecksumSHA256": "YWJj-3", "ChecksumType": "COMPOSITE", "ETag": "x"}, 4),
        ({}, 4),
    ],
    ids=["kms", "own key", "length unknown", "length of another count", "odd", "composite", "none"],
)
def test_what_says_nothing_of_the_content(answer: dict[str, Any], part_size: int | None) -> None:
    assert check_of(answer, len(CONTENT), lambda: part_size) is None


@given(st.binary(min_size=1, max_size=64), st.integers(1, 64), st.integers(1, 64))
def test_parts_are_found_however_content_comes(content: bytes, length: int, piece: int) -> None:
    check = check_of({"ETag": of_parts(content, length)}, len(content), lambda: length)
    assert check is not None
    assert _holds(check, content, piece)
