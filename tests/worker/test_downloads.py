"""Downloads from a hub on loopback: room, progress, one commit, and the cache that stays."""

import asyncio
import shutil
from collections import namedtuple

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from speculative_worker import bucket_downloads, cache
from speculative_worker.downloads import downloaded
from speculative_worker.errors import WorkerFailure

SHA = "b" * 40
SIZE = 24 * 2**20
"""Above two of the library's pieces of 10 MB: it writes no smaller ones."""
Usage = namedtuple("Usage", "total used free")


class Hub:
    """A hub with one model; counts what it was asked for."""

    def __init__(self, files):
        self.files = files
        self.asked = []
        self.hold = asyncio.Event()
        self.hold.set()

    def application(self):
        app = web.Application()
        app.router.add_get("/api/models/org/model/revision/{revision}", self._information)
        app.router.add_get("/api/models/org/model/tree/{revision}", self._tree)
        app.router.add_get("/org/model/resolve/{revision}/{name}", self._file)
        return app

    async def _information(self, request):
        siblings = [{"rfilename": name} for name in self.files]
        return web.json_response({"id": "org/model", "sha": SHA, "siblings": siblings})

    async def _tree(self, request):
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": str(len(content))}
            for name, content in self.files.items()
        ]
        return web.json_response(entries)

    async def _file(self, request):
        name = request.match_info["name"]
        content = self.files[name]
        headers = {"ETag": f'"{hash(content)}"', "X-Repo-Commit": SHA}
        self.asked.append((request.method, request.match_info["revision"], name))
        if request.method == "HEAD":
            return web.Response(headers=headers | {"Content-Length": str(len(content))})
        answer = web.StreamResponse(headers=headers | {"Content-Length": str(len(content))})
        await answer.prepare(request)
        half = len(content) // 2
        await answer.write(content[:half])
        if half > 1:
            await self.hold.wait()
        await answer.write(content[half:])
        return answer


@pytest.fixture
async def hub(monkeypatch):
    constants = (await asyncio.to_thread(__import__, "huggingface_hub.constants")).constants
    hub = Hub({"config.json": b"{}", "model.safetensors": bytes(SIZE)})
    async with TestServer(hub.application()) as server:
        # What HF_ENDPOINT sets in a pod, where the library is imported after it.
        endpoint = str(server.make_url("")).rstrip("/")
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub
        hub.hold.set()


async def test_everything_comes_at_the_commit_that_was_found(hub, tmp_path):
    said = []
    found = await asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), said.append)
    assert found.commit == SHA
    assert (found.folder / "model.safetensors").stat().st_size == SIZE
    assert {revision for method, revision, _ in hub.asked if method == "GET"} == {SHA}
    assert said[0] == "0.0 of 0.0 GiB"


async def test_a_full_cache_is_not_fetched_again(hub, tmp_path):
    await asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), lambda _: None)
    hub.asked.clear()
    said = []
    await asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), said.append)
    assert [each for each in hub.asked if each[0] == "GET"] == []
    assert said == []


async def test_progress_is_said_while_it_comes(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "LOOK_SECONDS", 0.01)
    hub.hold.clear()
    loop, half = asyncio.get_running_loop(), asyncio.Event()

    def progress(text):
        if "MiB/s" in text:
            loop.call_soon_threadsafe(half.set)

    work = asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), progress)
    task = asyncio.create_task(work)
    async with asyncio.timeout(30):
        await half.wait()
        hub.hold.set()
        await task


@pytest.mark.filterwarnings("ignore:Not enough free disk space")
async def test_a_part_that_is_there_needs_no_room_again(hub, tmp_path, monkeypatch):
    part = tmp_path / "models--org--model" / "blobs" / f"{'a' * 64}.12345678.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(SIZE - 2**20 + 10))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 5, 2**20))
    found = await asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), lambda _: None)
    assert (found.folder / "model.safetensors").stat().st_size == SIZE


def a_part_that_vanished(folder, name):
    """Listed, and gone when it is looked at: another pod gave it its own name meanwhile."""
    folder.mkdir(parents=True)
    (folder / f"{name}.12345678.incomplete").symlink_to(folder / "gone")


async def test_a_part_that_another_pod_finishes_meanwhile_is_no_fault(hub, tmp_path):
    a_part_that_vanished(tmp_path / "models--org--model" / "blobs", "a" * 64)
    found = await asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), lambda _: None)
    assert (found.folder / "model.safetensors").stat().st_size == SIZE


def test_a_part_of_a_bucket_s_file_that_another_pod_finishes_is_none(tmp_path):
    a_part_that_vanished(tmp_path / "blobs", "one")
    ours = bucket_downloads._taken_up(tmp_path / "blobs" / "one")
    assert ours.stat().st_size == 0


async def test_a_disk_that_is_too_small_is_refused_with_both_numbers(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 5, 2**20))
    with pytest.raises(WorkerFailure) as caught:
        await asyncio.to_thread(downloaded, "org/model", "main", str(tmp_path), lambda _: None)
    assert (caught.value.reason, caught.value.retryable) == ("DiskTooSmall", False)
    assert "are to be fetched" in caught.value.detail
    assert [each for each in hub.asked if each[0] == "GET"] == []
