"""Models out of buckets, over HTTP from a real store: versions, checksums, resumption, refusals."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.a_store import KEYS, PART_BYTES, Store, server, store
from tests.worker.a_worker import a_config, free_ports

from speculative_api.model_buckets import BucketModel, bucket_of
from speculative_api.worker import CLEAN_UP_VARIABLE, CONFIG_VARIABLE, PreflightReport, Termination
from speculative_worker import bucket_downloads, cache
from speculative_worker.bucket_downloads import bucket_downloaded, verify_bucket
from speculative_worker.cache import Downloaded
from speculative_worker.checking import EXIT_REFUSED, EXIT_RETRYABLE
from speculative_worker.errors import WorkerFailure
from speculative_worker.sources import fetched

__all__ = ["server", "store"]
pytestmark = pytest.mark.slow

SOURCE = "s3://models/llama"
SIZE = 4 * 2**20
WEIGHTS = bytes(range(256)) * (SIZE // 256)
FILES = {
    "config.json": b"{}",
    "model.safetensors": WEIGHTS,
    "extra/words.json": b"[]",
    "original/consolidated.pth": b"not wanted",
    "folder/": b"",
}
KEY = "/models/llama/model.safetensors"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_downloads, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(cache, "LOOK_SECONDS", 0.01)


@pytest.fixture
def full(store: Store) -> Store:
    """With one model."""
    store.put("models", "llama/", FILES)
    return store


def model(source: str = SOURCE) -> BucketModel:
    found = bucket_of(source)
    assert found is not None
    return found


def fetch(folder: Path, source: str = SOURCE) -> Downloaded:
    return bucket_downloaded(model(source), str(folder), lambda _: None)


def refusal(folder: Path, source: str = SOURCE) -> WorkerFailure:
    with pytest.raises(WorkerFailure) as caught:
        fetch(folder, source)
    return caught.value


def ranges(store: Store) -> list[str]:
    """Of the weights, as they were asked for."""
    return [what for key, what in store.faults.got if key == KEY]


def test_everything_comes_under_one_version_and_stays(full: Store, tmp_path: Path) -> None:
    said: list[str] = []
    found = bucket_downloaded(model(), str(tmp_path), said.append)
    names = {str(each.relative_to(found.folder)) for each in found.folder.rglob("*.*")}
    assert names == {"config.json", "model.safetensors", "extra/words.json"}
    assert (found.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (found.folder / "extra/words.json").read_bytes() == b"[]"
    assert said[0] == "0.0 of 0.0 GiB"
    full.faults.got.clear()
    assert fetch(tmp_path) == found
    assert full.faults.got == []
    assert verify_bucket(model(), found, str(tmp_path)) == 3


def test_another_file_is_another_version_beside_the_first(full: Store, tmp_path: Path) -> None:
    first = fetch(tmp_path)
    full.faults.got.clear()
    full.put("models", "llama/", {"config.json": b'{"a": 1}'})
    second = fetch(tmp_path)
    assert second.commit != first.commit
    assert (second.folder / "config.json").read_bytes() == b'{"a": 1}'
    assert (first.folder / "config.json").read_bytes() == b"{}"
    assert [key for key, _ in full.faults.got] == ["/models/llama/config.json"]


def test_a_version_that_is_named_is_the_only_one_that_will_do(full: Store, tmp_path: Path) -> None:
    found = fetch(tmp_path / "a")
    pinned = f"{SOURCE}@{found.commit}"
    assert fetch(tmp_path / "b", pinned).commit == found.commit
    full.put("models", "llama/", {"config.json": b'{"a": 1}'})
    failure = refusal(tmp_path / "c", pinned)
    assert (failure.reason, failure.retryable) == ("ModelNotFound", False)
    assert f"the spec names {found.commit}" in failure.detail
    full.faults.status = 503
    assert fetch(tmp_path / "a", pinned).folder == found.folder


def test_while_the_store_is_away_the_cache_will_do(full: Store, tmp_path: Path) -> None:
    found = fetch(tmp_path)
    full.faults.status = 503
    assert fetch(tmp_path) == found
    (found.folder / "config.json").resolve().unlink()
    failure = refusal(tmp_path)
    assert (failure.reason, failure.retryable) == ("HubUnreachable", True)


def test_progress_is_said_while_it_comes(full: Store, tmp_path: Path) -> None:
    full.faults.hold_at = SIZE // 2
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        if "MiB/s" in text:
            full.faults.go.set()

    bucket_downloaded(model(), str(tmp_path), progress)
    assert any("of 0.0 GiB, " in text for text in said)


@pytest.mark.parametrize("no_ranges", [False, True])
def test_a_line_that_breaks_goes_on_where_it_was(
    full: Store, tmp_path: Path, no_ranges: bool
) -> None:
    full.faults.break_at, full.faults.breaks = SIZE // 2, 2
    full.faults.no_ranges = no_ranges
    found = fetch(tmp_path)
    assert (found.folder / "model.safetensors").read_bytes() == WEIGHTS
    if not no_ranges:
        assert ranges(full) == ["bytes=0-", f"bytes={SIZE // 2}-"]


def test_a_line_that_never_holds_ends_the_attempt_and_keeps_the_part(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_downloads, "TRIES", 1)
    full.faults.break_at, full.faults.breaks = SIZE // 2, 1
    failure = refusal(tmp_path)
    assert (failure.reason, failure.retryable) == ("HubUnreachable", True)
    assert (fetch(tmp_path).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(full) == ["bytes=0-", f"bytes={SIZE // 2}-"]


def test_a_file_that_is_replaced_on_the_way_is_not_mixed(full: Store, tmp_path: Path) -> None:
    full.faults.hold_at = full.faults.break_at = SIZE // 2
    full.faults.breaks = 1
    failures: list[WorkerFailure] = []
    attempt = threading.Thread(target=lambda: failures.append(refusal(tmp_path)))
    attempt.start()
    assert full.faults.held.wait(60)
    full.put("models", "llama/", {"model.safetensors": WEIGHTS[::-1]})
    full.faults.go.set()
    attempt.join(120)
    assert failures[0].retryable
    assert "it was replaced while it was read" in failures[0].detail
    found = fetch(tmp_path)
    assert (found.folder / "model.safetensors").read_bytes() == WEIGHTS[::-1]


def test_damage_is_found_and_fetched_anew(store: Store, tmp_path: Path) -> None:
    store.put("models", "llama/", {"model.safetensors": WEIGHTS})
    store.faults.flips = 1
    failure = refusal(tmp_path)
    assert (failure.reason, failure.retryable) == ("ModelDamaged", True)
    found = fetch(tmp_path)
    weights = (found.folder / "model.safetensors").resolve()
    assert weights.read_bytes() == WEIGHTS
    weights.write_bytes(WEIGHTS[::-1])
    with pytest.raises(WorkerFailure, match=r"model\.safetensors \(1 files\)"):
        verify_bucket(model(), found, str(tmp_path))
    assert (fetch(tmp_path).folder / "model.safetensors").read_bytes() == WEIGHTS


def test_large_files_are_held_against_the_checksums_of_their_parts(
    store: Store, tmp_path: Path
) -> None:
    content = WEIGHTS * 3
    assert len(content) > 2 * PART_BYTES
    store.put("models", "llama/", {})
    store.put_in_parts("models", "llama/model.safetensors", content)
    store.faults.flips = 1
    assert refusal(tmp_path).reason == "ModelDamaged"
    found = fetch(tmp_path)
    assert (found.folder / "model.safetensors").read_bytes() == content
    assert verify_bucket(model(), found, str(tmp_path)) == 1


def test_a_checksum_that_came_with_the_upload_counts_before_an_etag(
    store: Store, tmp_path: Path
) -> None:
    store.put("models", "llama/", {"model.safetensors": WEIGHTS}, ChecksumAlgorithm="SHA256")
    store.faults.encrypted, store.faults.flips = True, 1
    assert refusal(tmp_path).reason == "ModelDamaged"
    assert verify_bucket(model(), fetch(tmp_path), str(tmp_path)) == 1


def test_a_file_without_a_checksum_is_taken_and_not_counted(full: Store, tmp_path: Path) -> None:
    full.faults.encrypted = True
    found = fetch(tmp_path)
    assert verify_bucket(model(), found, str(tmp_path)) == 0


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 5, 2**20))
    failure = refusal(tmp_path)
    assert (failure.reason, failure.retryable) == ("DiskTooSmall", False)
    assert full.faults.got == []


@contextlib.contextmanager
def accounts() -> Iterator[None]:
    """The store asks who somebody is: so far it took everyone for its owner."""
    from moto import settings

    before = settings.INITIAL_NO_AUTH_ACTION_COUNT
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    try:
        yield
    finally:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = before


REFUSED = [
    ("no such bucket", "s3://nowhere/llama", "NoSuchBucket: The specified bucket does not exist"),
    ("nothing there", "s3://models/other", "no file of bucket 'models' begins with 'other/'"),
    ("a part of a name", "s3://models/lla", "begins with 'lla/'"),
]


@pytest.mark.parametrize("source,words", [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_a_store_does_not_have(full: Store, tmp_path: Path, source: str, words: str) -> None:
    failure = refusal(tmp_path, source)
    assert (failure.reason, failure.retryable) == ("ModelNotFound", False)
    assert words in failure.detail


def test_a_right_that_is_lacking_is_named(full: Store, tmp_path: Path) -> None:
    with accounts():
        failure = refusal(tmp_path)
    assert (failure.reason, failure.retryable) == ("ModelNotFound", False)
    assert "InvalidAccessKeyId" in failure.detail
    assert "it needs s3:ListBucket and s3:GetObject" in failure.detail
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in failure.detail


def test_without_credentials_a_store_is_asked_all_the_same(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    store.put("models", "llama/", FILES, ACL="public-read")
    store.owner.put_bucket_acl(Bucket="models", ACL="public-read")
    assert fetch(tmp_path / "a").commit
    store.faults.status = 403
    failure = refusal(tmp_path / "b")
    assert (failure.reason, failure.retryable) == ("ModelNotFound", False)
    assert "asked without credentials, for none were found" in failure.detail


@pytest.mark.parametrize(
    "name,value,retryable,words",
    [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", True, "EndpointConnectionError"),
        ("AWS_ENDPOINT_URL", "minio", False, "Invalid endpoint"),
        ("AWS_SECRET_ACCESS_KEY", "", False, "Partial credentials"),
        ("AWS_PROFILE", "nobody", False, "ProfileNotFound"),
    ],
)
def test_what_is_wrong_on_this_side(
    full: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    retryable: bool,
    words: str,
) -> None:
    monkeypatch.setenv(name, value)
    failure = refusal(tmp_path)
    assert failure.retryable is retryable
    assert words in failure.detail


def test_a_key_that_is_no_name_is_refused(store: Store, tmp_path: Path) -> None:
    store.put("models", "llama/", {"config.json": b"{}", "a/../../../evil": b"x"})
    assert "is no name of a file" in refusal(tmp_path).detail


class Job:
    """The program as the download Job starts it."""

    def __init__(self, folder: Path, store: Store, source: str = SOURCE) -> None:
        config = a_config(model=source, cacheDirectory=str(folder / "cache"))
        config = config.model_copy(update={"simulation": None})
        (port,) = free_ports(1)
        self.end, self.log = folder / f"end-{port}", folder / f"log-{port}"
        self.environment = {
            CONFIG_VARIABLE: config.model_dump_json(by_alias=True, exclude_none=True),
            "TERMINATION_PATH": str(self.end),
            "WORKER_PORT": str(port),
            "LISTEN_HOST": "127.0.0.1",
            "PATH": os.environ["PATH"],
            **store.environment(),
        }

    def start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "speculative_worker", "download"]
        with self.log.open("wb") as log:
            return subprocess.Popen(argv, env=self.environment, stderr=log)

    @property
    def words(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.end.read_text())
        return found


def parts(folder: Path) -> list[int]:
    """Bytes of each file that is not whole."""
    found = folder.glob("cache/models--*/blobs/*.incomplete")
    return [part.stat().st_size for part in found]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 (another process makes it true)
            await asyncio.sleep(0.02)


async def until_held(store: Store, folder: Path) -> None:
    await until(lambda: store.faults.held.is_set() and max(parts(folder), default=0) >= SIZE // 2)


async def test_a_process_killed_in_the_middle_of_a_file_is_taken_up_at_that_byte(
    full: Store, tmp_path: Path
) -> None:
    full.faults.hold_at = SIZE // 2
    job = Job(tmp_path, full)
    killed = job.start()
    await until_held(full, tmp_path)
    killed.send_signal(signal.SIGKILL)
    assert await asyncio.to_thread(killed.wait, 60) == -signal.SIGKILL
    full.faults.go.set()
    full.faults.got.clear()
    again = job.start()
    assert await asyncio.to_thread(again.wait, 120) == 0
    assert ranges(full) == [f"bytes={SIZE // 2}-"]
    assert parts(tmp_path) == []
    (note,) = PreflightReport.model_validate(job.words).notes
    assert note.startswith("s3://models/llama is in the cache at ")
    assert note.endswith(", 3 files verified")


async def test_two_at_once_on_one_cache_fetch_each_file_once(full: Store, tmp_path: Path) -> None:
    full.faults.hold_at = SIZE // 2
    first = Job(tmp_path, full).start()
    await until_held(full, tmp_path)
    other = Job(tmp_path, full)
    second = other.start()
    await until(lambda: "download-started" in other.log.read_text())
    full.faults.go.set()
    ends = [await asyncio.to_thread(each.wait, 120) for each in (first, second)]
    assert ends == [0, 0]
    assert ranges(full) == ["bytes=0-"]
    assert len(full.faults.got) == 3


async def test_a_job_removes_what_nobody_uses_before_it_fetches(
    full: Store, tmp_path: Path
) -> None:
    first = fetched(SOURCE, str(tmp_path / "cache"), lambda _: None)
    assert first is not None
    then = (first.folder / "config.json").stat().st_mtime - 100 * 3600
    for place in (tmp_path / "cache").rglob("*"):
        if place.is_file() and not place.is_symlink():
            os.utime(place, (then, then))
    full.put("other", "new/", {"config.json": b"{}"})
    job = Job(tmp_path, full, "s3://other/new")
    wish = {"removes": True, "unusedHours": 24, "inUse": ["s3://other/new"]}
    job.environment[CLEAN_UP_VARIABLE] = json.dumps(wish)
    assert await asyncio.to_thread(job.start().wait, 120) == 0
    removed, came = PreflightReport.model_validate(job.words).notes
    assert f"at {first.commit}: removed from the cache" in removed
    assert came.startswith("s3://other/new is in the cache")
    assert not first.folder.exists()
    assert "event=cache-removed" in job.log.read_text()


async def test_a_job_ends_with_a_code_that_says_whether_to_try_again(
    full: Store, tmp_path: Path
) -> None:
    gone = Job(tmp_path, full, "s3://nowhere/x")
    assert await asyncio.to_thread(gone.start().wait, 120) == EXIT_REFUSED
    assert Termination.model_validate(gone.words).reason == "ModelNotFound"
    full.faults.status = 500
    away = Job(tmp_path, full)
    assert await asyncio.to_thread(away.start().wait, 120) == EXIT_RETRYABLE
    assert Termination.model_validate(away.words).reason == "HubUnreachable"
