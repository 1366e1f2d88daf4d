"""A store of the S3 API on loopback: moto's server, asked over HTTP, with faults on command.

In front of it stands a layer that breaks lines, holds them, and answers with errors.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "hush-hush-hush"}
NOWHERE = "/nonexistent"
PART_BYTES = 5 * 2**20
"""Shortest part that the API takes."""

Environ = dict[str, Any]
Start = Callable[..., Any]


@dataclass
class Faults:
    """What goes wrong with downloads, and what was asked."""

    break_at: int | None = None
    """After so many bytes of each answer the line breaks, `breaks` times."""
    breaks: int = 0
    hold_at: int | None = None
    """After so many bytes answers wait for `go`."""
    go: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    flips: int = 0
    """So many answers have a flipped first byte."""
    status: int | None = None
    """Every answer has this status and no more."""
    encrypted: bool = False
    """Objects are said to be encrypted with a key of the customer's."""
    no_ranges: bool = False
    got: list[tuple[str, str]] = field(default_factory=list)
    """Key and range of every object that was asked for."""
    sent: int = 0
    """Bytes of objects that were sent."""


class Broken(Exception):
    """The line breaks."""


class Store:
    """The server's address, a client of its owner, and its faults."""

    def __init__(self, endpoint: str, layer: "_Layer") -> None:
        import boto3
        from botocore.config import Config

        self.endpoint, self.layer = endpoint, layer
        self.owner = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            # Else it sends a checksum with everything, and no ETag would be looked at.
            config=Config(request_checksum_calculation="when_required"),
        )

    @property
    def faults(self) -> Faults:
        """Of the test that runs."""
        return self.layer.faults

    def put(self, bucket: str, prefix: str, files: dict[str, bytes], **how: Any) -> None:
        """Uploads a model, the bucket made first."""
        self.owner.create_bucket(Bucket=bucket)
        for name, content in files.items():
            self.owner.put_object(Bucket=bucket, Key=prefix + name, Body=content, **how)

    def put_in_parts(self, bucket: str, key: str, content: bytes) -> None:
        """Uploads one object as large ones are."""
        where = {"Bucket": bucket, "Key": key}
        upload = self.owner.create_multipart_upload(**where)["UploadId"]
        parts = []
        for number, start in enumerate(range(0, len(content), PART_BYTES), 1):
            piece = content[start : start + PART_BYTES]
            done = self.owner.upload_part(**where, UploadId=upload, PartNumber=number, Body=piece)
            parts.append({"PartNumber": number, "ETag": done["ETag"]})
        self.owner.complete_multipart_upload(
            **where, UploadId=upload, MultipartUpload={"Parts": parts}
        )

    def environment(self) -> dict[str, str]:
        """Of a program that reads this store, and nobody's real account."""
        return {
            **KEYS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": NOWHERE,
            "AWS_SHARED_CREDENTIALS_FILE": NOWHERE,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class _Layer:
    """In front of moto: applies the faults."""

    def __init__(self, application: Any) -> None:
        self._application, self.faults = application, Faults()

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        faults = self.faults
        if faults.status is not None:
            start(f"{faults.status} Fault", [("Content-Length", "0")])
            return []
        is_object = "/" in environ["PATH_INFO"].strip("/")
        if faults.no_ranges:
            environ.pop("HTTP_RANGE", None)
        said: list[tuple[str, list[tuple[str, str]]]] = []
        answer = self._application(
            environ, lambda status, headers, *_: said.append((status, headers))
        )
        (status, headers) = said[0]
        if is_object and faults.encrypted:
            headers.append(("x-amz-server-side-encryption", "aws:kms"))
        start(status, headers)
        if environ["REQUEST_METHOD"] != "GET" or not is_object or not status.startswith("2"):
            return answer  # type: ignore[no-any-return]
        faults.got.append((environ["PATH_INFO"], environ.get("HTTP_RANGE", "")))
        return self._sent(b"".join(answer))

    def _sent(self, content: bytes) -> Iterator[bytes]:
        faults = self.faults
        if faults.flips:
            faults.flips -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        stops = [at for at in (faults.break_at, faults.hold_at) if at is not None]
        first = content[: min(stops, default=len(content))]
        faults.sent += len(first)
        yield first
        if len(first) == len(content):
            return
        if faults.hold_at is not None:
            faults.held.set()
            faults.go.wait(60)
        if faults.break_at is not None and faults.breaks:
            faults.breaks -= 1
            raise Broken
        faults.sent += len(content) - len(first)
        yield content[len(first) :]


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    """A server in this process, asked over HTTP."""
    # Here, so that collecting fast tests does not take the seconds that these take.
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            """Broken lines are meant."""

    layer = _Layer(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, layer, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Store(f"http://127.0.0.1:{server.server_port}", layer)
    layer.faults.go.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store that this process's environment leads to."""
    from moto.moto_api._internal import moto_api_backend

    moto_api_backend.reset()
    server.layer.faults = Faults()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.faults.go.set()
