"""A real Prometheus over pages that a test writes: Debian's, fetched once into the cache."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.ports import free_port
from tests.processes import end

CACHE = Path(os.environ.get("SPECULATIVE_HOME", "~/.cache/speculative-operator")).expanduser()
READY_SECONDS = 60.0


def binary() -> Path:
    """Prometheus, of the path, of the cache, or of Debian's archive; skips where none is."""
    if found := shutil.which("prometheus"):
        return Path(found)
    folder = CACHE / "prometheus"
    path = folder / "usr" / "bin" / "prometheus"
    if path.exists():
        return path
    if shutil.which("apt-get") is None:
        pytest.skip("no prometheus, and no apt-get to fetch it with")
    folder.mkdir(parents=True, exist_ok=True)
    quiet = {"cwd": folder, "capture_output": True, "timeout": 300}
    got = subprocess.run(["apt-get", "download", "prometheus"], check=False, **quiet)  # type: ignore[call-overload]
    packages = sorted(folder.glob("prometheus_*.deb"))
    if got.returncode or not packages:
        pytest.skip(f"prometheus can not be fetched: {got.stderr[-300:]!r}")
    subprocess.run(["dpkg-deb", "-x", packages[-1].name, "."], check=True, **quiet)  # type: ignore[call-overload]
    return path


@dataclass
class Engines:
    """Pages by pod name; a pod without a page answers 503."""

    pages: dict[str, bytes | None] = field(default_factory=dict)
    scraped: dict[str, int] = field(default_factory=dict)

    async def handle(self, request: web.Request) -> web.Response:
        pod = request.match_info["pod"]
        self.scraped[pod] = self.scraped.get(pod, 0) + 1
        page = self.pages.get(pod)
        if page is None:
            return web.Response(status=503)
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4"})


@asynccontextmanager
async def scraping(
    engines: Engines, folder: Path, *, namespace: str, jobs: Mapping[str, str]
) -> AsyncIterator[str]:
    """The address of a Prometheus that scrapes all pages each second, once for each job.

    `jobs` are names with an `instance` label, as two monitors of one pod have.
    """
    path = binary()
    application = web.Application()
    application.router.add_get("/{pod}", engines.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = f"127.0.0.1:{runner.addresses[0][1]}"
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": f"{job}-{pod}",
                "metrics_path": f"/{pod}",
                "static_configs": [
                    {
                        "targets": [target],
                        "labels": {"namespace": namespace, "pod": pod, "instance": instance},
                    }
                ],
            }
            for job, instance in jobs.items()
            for pod in engines.pages
        ],
    }
    with _running(path, folder, json.dumps(configuration)) as (address, process):
        try:
            await _ready(address, folder / "prometheus.log", process)
            yield address
        finally:
            await asyncio.to_thread(end, process, seconds=30)
            await runner.cleanup()


@contextmanager
def _running(
    path: Path, folder: Path, configuration: str
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    file = folder / "prometheus.yml"
    file.write_text(configuration, "utf-8")
    port = free_port()
    arguments = [
        path,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
        yield f"http://127.0.0.1:{port}", process


async def _ready(address: str, log: Path, process: "subprocess.Popen[bytes]") -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_SECONDS
    async with aiohttp.ClientSession() as session:
        while loop.time() < deadline and process.poll() is None:
            try:
                async with session.get(f"{address}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    said = await asyncio.to_thread(log.read_text, "utf-8", "replace")
    pytest.fail(f"prometheus is not ready: {said[-2000:]}")
