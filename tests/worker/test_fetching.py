"""`speculative-worker download`: a hub's models come into the cache, are verified, and resumed."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.ports import free_port
from tests.worker.a_worker import a_config

from speculative_api.worker import (
    CONFIG_VARIABLE,
    Digest,
    PreflightReport,
    Termination,
    WorkerConfig,
)
from speculative_worker.checking import EXIT_REFUSED, EXIT_RETRYABLE
from speculative_worker.fetching import fetched_models

pytestmark = pytest.mark.slow

COMMIT = "d" * 40
FIRST = "first.safetensors"
WEIGHTS = bytes(range(256)) * 4 * 24 * 2**10
"""24 MiB: above two of the library's pieces of 10 MB, it writes no smaller ones."""


class Hub:
    """A hub of one model, with checksums; it can stop in the middle and send something else."""

    def __init__(self) -> None:
        self.files = {"config.json": b"{}", FIRST: WEIGHTS[: 2**20], "model.safetensors": WEIGHTS}
        self.flips = 0
        """So many answers with the weights have a flipped byte."""
        self.hold = asyncio.Event()
        self.hold.set()
        self.half = asyncio.Event()
        self.asked: list[str] = []
        self.begins: dict[str, list[int]] = {}
        """Where each answer with a file began."""
        self.ranges = True

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/models/org/model/revision/{revision}", self._information)
        app.router.add_get("/api/models/org/model/tree/{revision}", self._tree)
        app.router.add_get("/org/model/resolve/{revision}/{name}", self._file)
        return app

    async def _information(self, _: web.Request) -> web.Response:
        siblings = [{"rfilename": name} for name in self.files]
        return web.json_response({"id": "org/model", "sha": COMMIT, "siblings": siblings})

    async def _tree(self, _: web.Request) -> web.Response:
        return web.json_response([_entry(name, content) for name, content in self.files.items()])

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        content = self.files[name]
        large = name.endswith(".safetensors")
        etag = hashlib.sha256(content).hexdigest() if large else _oid(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
        if request.method == "HEAD":
            return web.Response(headers=headers | {"Content-Length": str(len(content))})
        self.asked.append(name)
        if self.flips and name == "model.safetensors":
            self.flips -= 1
            content = b"\xff" + content[1:]
        begin = request.http_range.start or 0 if self.ranges else 0
        self.begins.setdefault(name, []).append(begin)
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        answer = web.StreamResponse(
            status=206 if begin else 200,
            headers=headers | {"Content-Length": str(len(content) - begin)},
        )
        await answer.prepare(request)
        half = begin + (len(content) - begin) * 9 // 10
        await answer.write(content[begin:half])
        if len(content) == len(WEIGHTS):
            self.half.set()
            await self.hold.wait()
        await answer.write(content[half:])
        return answer


def _oid(content: bytes) -> str:
    """As git names it: what the library checks small files against."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(name: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content)}
    entry["oid"] = _oid(content)
    if name.endswith(".safetensors"):
        checksum = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": checksum, "size": len(content), "pointerSize": 134}
    return entry


@pytest.fixture
async def hub() -> AsyncIterator[tuple[Hub, str]]:
    hub = Hub()
    async with TestServer(hub.application()) as server:
        yield hub, str(server.make_url("")).rstrip("/")
        hub.hold.set()


class Download:
    """The program as the Job starts it."""

    def __init__(self, folder: Path, endpoint: str, model: str = "hf://org/model@main") -> None:
        config = a_config(model=model, cacheDirectory=str(folder / "cache"))
        config = config.model_copy(update={"simulation": None})
        self.port = free_port()
        self.end = folder / "end"
        self.snapshot = folder / "cache" / "models--org--model" / "snapshots" / COMMIT
        self.environment = {
            CONFIG_VARIABLE: config.model_dump_json(by_alias=True, exclude_none=True),
            "TERMINATION_PATH": str(self.end),
            "WORKER_PORT": str(self.port),
            "LISTEN_HOST": "127.0.0.1",
            "HF_ENDPOINT": endpoint,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(folder / "home"),
            "PATH": os.environ["PATH"],
        }

    async def start(self) -> asyncio.subprocess.Process:
        argv = [sys.executable, "-m", "speculative_worker", "download"]
        return await asyncio.create_subprocess_exec(*argv, env=self.environment)

    async def run(self) -> int:
        async with asyncio.timeout(120):
            return await (await self.start()).wait()

    async def digest(self) -> Digest:
        url = f"http://127.0.0.1:{self.port}/digest"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return Digest.model_validate_json(await answer.text())

    def parts(self) -> list[Path]:
        """Files that are not whole."""
        return list((self.snapshot.parents[1] / "blobs").glob("*.incomplete"))

    @property
    def words(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.end.read_text())
        return found


async def killed(server: Hub, download: Download) -> Path:
    """Kills a download (SIGKILL) that has whole files and a part of one; gives the part."""
    server.hold.clear()
    process = await download.start()
    async with asyncio.timeout(120):
        await server.half.wait()
        digest = await download.digest()
        while "MiB/s" not in digest.phase_detail or not (download.snapshot / FIRST).exists():
            await asyncio.sleep(0.05)
            digest = await download.digest()
    assert digest.phase == "Downloading"
    assert digest.phase_detail.startswith("hf://org/model@main: 0.0 of 0.0 GiB")
    process.send_signal(signal.SIGKILL)
    async with asyncio.timeout(30):
        await process.wait()
    server.hold.set()
    (part,) = download.parts()
    server.asked.clear()
    server.begins.clear()
    return part


async def test_a_killed_download_goes_on_at_the_byte(hub: tuple[Hub, str], tmp_path: Path) -> None:
    server, endpoint = hub
    download = Download(tmp_path, endpoint)
    had = (await killed(server, download)).stat().st_size
    assert had > 10**7
    assert await download.run() == 0
    assert server.asked == ["model.safetensors"]
    assert server.begins == {"model.safetensors": [had]}
    assert download.parts() == []
    assert (download.snapshot / "model.safetensors").read_bytes() == WEIGHTS
    (note,) = PreflightReport.model_validate(download.words).notes
    assert f"is in the cache at {COMMIT}, 3 files verified" in note


async def test_a_part_of_another_content_is_fetched_anew(
    hub: tuple[Hub, str], tmp_path: Path
) -> None:
    server, endpoint = hub
    download = Download(tmp_path, endpoint)
    part = await killed(server, download)
    had = part.stat().st_size
    with part.open("r+b") as file:
        file.write(b"another")
    assert await download.run() == 0
    assert server.begins == {"model.safetensors": [had, 0]}
    assert (download.snapshot / "model.safetensors").read_bytes() == WEIGHTS
    assert download.parts() == []


async def test_a_hub_without_ranges_sends_it_all(hub: tuple[Hub, str], tmp_path: Path) -> None:
    server, endpoint = hub
    download = Download(tmp_path, endpoint)
    await killed(server, download)
    server.ranges = False
    assert await download.run() == 0
    assert server.begins == {"model.safetensors": [0]}
    assert (download.snapshot / "model.safetensors").read_bytes() == WEIGHTS


async def test_a_damaged_file_is_removed_and_fetched_anew(
    hub: tuple[Hub, str], tmp_path: Path
) -> None:
    server, endpoint = hub
    server.flips = 1
    download = Download(tmp_path, endpoint)
    assert await download.run() == EXIT_RETRYABLE
    said = Termination.model_validate(download.words)
    assert (said.reason, said.retryable) == ("ModelDamaged", True)
    assert "model.safetensors (1 of 3 files)" in said.detail
    assert not (download.snapshot / "model.safetensors").exists()
    assert await download.run() == 0
    assert (download.snapshot / "model.safetensors").read_bytes() == WEIGHTS


async def test_what_the_hub_does_not_have_is_refused_for_good(
    hub: tuple[Hub, str], tmp_path: Path
) -> None:
    download = Download(tmp_path, hub[1], "hf://org/gone")
    assert await download.run() == EXIT_REFUSED
    assert download.words["reason"] == "ModelNotFound"


def test_each_model_of_a_hub_is_fetched_once() -> None:
    config = WorkerConfig.model_validate(
        a_config(
            model="hf://org/a",
            speculation={
                "method": "DraftModel",
                "numSpeculativeTokens": 3,
                "draft": {"model": "hf://org/b"},
            },
            lora={
                "adapters": [
                    {"name": "x", "model": "pvc://c/x"},
                    {"name": "y", "model": "hf://org/b"},
                ]
            },
        ).model_dump(by_alias=True)
    )
    assert list(fetched_models(config)) == ["hf://org/a", "hf://org/b"]
