"""Whatever ends a worker or a Job of it has last words, and ends when it is told to."""

import asyncio
import errno
import json
import signal
import sys
from pathlib import Path

import pytest
from tests.worker.test_checking import refusal, settings_for
from tests.worker.test_fetching import Download, Hub, hub

from speculative_api.worker import CONFIG_VARIABLE, Termination
from speculative_worker import __main__ as program
from speculative_worker import checking, fetching
from speculative_worker.cache import disk_failure, is_of_disk
from speculative_worker.downloads import downloaded
from speculative_worker.errors import WorkerFailure
from speculative_worker.settings import Settings

__all__ = ["hub"]


@pytest.mark.parametrize("command", ["preflight", "download"])
def test_what_nobody_foresaw_is_said(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(settings: Settings) -> int:
        raise KeyError(f"{settings.secrets[0]} somewhere")

    monkeypatch.setattr(checking, "run_check", broken)
    monkeypatch.setattr(fetching, "run_download", broken)
    config = settings_for("hf://org/model").config
    monkeypatch.setenv(CONFIG_VARIABLE, config.model_dump_json(by_alias=True, exclude_none=True))
    monkeypatch.setenv("TERMINATION_PATH", str(tmp_path / "end"))
    monkeypatch.setenv("SOME_SECRET", "hush-hush-hush")
    monkeypatch.setattr(sys, "argv", ["worker", command])
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert program.main() == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    said = Termination.model_validate_json((tmp_path / "end").read_text())
    assert (said.reason, said.retryable) == ("EngineCrashed", True)
    assert "the worker itself failed: KeyError" in said.detail
    assert "hush" not in said.detail


DISKS = [
    ("full", OSError(errno.ENOSPC, "No space left on device"), "DiskTooSmall", True),
    ("quota", OSError(errno.EDQUOT, "Disk quota exceeded"), "DiskTooSmall", True),
    ("forbidden", PermissionError(errno.EACCES, "no", "/mnt/cache/x"), "CacheUnwritable", False),
    ("read-only", OSError(errno.EROFS, "Read-only file system"), "CacheUnwritable", False),
    ("stale", OSError(errno.ESTALE, "Stale file handle"), "CacheUnwritable", True),
]


@pytest.mark.parametrize(
    "error,reason,retryable", [row[1:] for row in DISKS], ids=[row[0] for row in DISKS]
)
def test_a_disk_is_not_taken_for_a_hub(error: OSError, reason: str, retryable: bool) -> None:
    assert is_of_disk(error)
    failure = disk_failure("hf://org/model", error, Path("/mnt/cache"))
    assert (failure.reason, failure.retryable) == (reason, retryable)
    assert "/mnt/cache can't be written" in failure.detail


@pytest.mark.parametrize(
    "error", [ConnectionResetError(104, "reset"), TimeoutError(), OSError("LocalEntryNotFound")]
)
def test_a_line_is_not_taken_for_a_disk(error: OSError) -> None:
    assert not is_of_disk(error)


def test_a_full_disk_ends_a_download_with_its_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    with pytest.raises(WorkerFailure) as caught:
        downloaded("org/model", "main", str(tmp_path), lambda _: None)
    assert caught.value.reason == "DiskTooSmall"


@pytest.mark.parametrize("source", ["hf://org/a--b", "hf://org/a..b", "hf://org/.a"])
def test_a_name_that_the_library_does_not_take_is_refused(source: str, tmp_path: Path) -> None:
    failure = refusal(settings_for(source, cacheDirectory=str(tmp_path)))
    assert (failure.reason, failure.retryable) == ("ModelNotFound", False)
    with pytest.raises(WorkerFailure) as caught:
        downloaded(source.removeprefix("hf://"), None, str(tmp_path), lambda _: None)
    assert (caught.value.reason, caught.value.retryable) == ("ModelNotFound", False)


@pytest.mark.slow
async def test_a_worker_that_is_stopped_while_a_file_comes_does_not_wait_for_it(
    hub: tuple[Hub, str], tmp_path: Path
) -> None:
    server, endpoint = hub
    server.hold.clear()
    worker = Download(tmp_path, endpoint)
    argv = [sys.executable, "-m", "speculative_worker", "run"]
    process = await asyncio.create_subprocess_exec(*argv, env=worker.environment)
    async with asyncio.timeout(120):
        await server.half.wait()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        assert await process.wait() == 0


@pytest.mark.slow
async def test_a_name_that_is_no_name_ends_a_worker_with_words(tmp_path: Path) -> None:
    worker = Download(tmp_path, "http://127.0.0.1:1", "hf://org/a--b")
    argv = [sys.executable, "-m", "speculative_worker", "run"]
    process = await asyncio.create_subprocess_exec(*argv, env=worker.environment)
    async with asyncio.timeout(120):
        assert await process.wait() == 1
    assert json.loads(worker.end.read_text())["reason"] == "ModelNotFound"
