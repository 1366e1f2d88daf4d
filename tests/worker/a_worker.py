"""A real worker process over a simulated engine, on free loopback ports."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.ports import free_ports

from speculative_api.worker import WorkerConfig
from speculative_worker.settings import Settings

PATIENCE_SECONDS = 30
SHORT_FOLLOW = """
import asyncio, dataclasses, sys
from speculative_worker.settings import process_environment, settings_from
from speculative_worker.supervisor import run
settings = settings_from(process_environment())
sys.exit(asyncio.run(run(dataclasses.replace(settings, follow_seconds=0.3))))
"""
"""The worker with a shorter wait for endpoints than the contract's 10 s."""


@dataclass
class RunningWorker:
    """One worker process and ways to ask it."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    engine_url: str
    worker_url: str
    termination_path: Path

    async def status(self, path: str) -> int:
        """Status of a probe; 0 when nobody answers."""
        try:
            async with self.session.get(self.worker_url + path) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def digest(self) -> dict[str, Any]:
        async with self.session.get(self.worker_url + "/digest") as answer:
            return await answer.json()

    async def digest_when(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits for a digest that meets the condition."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        found = await self.digest()
        while not condition(found):
            assert time.monotonic() < deadline, f"the digest stays {found}"
            await asyncio.sleep(0.05)
            found = await self.digest()
        return found

    async def until(self, path: str, status: int) -> None:
        """Waits for a probe's status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        found = await self.status(path)
        while found != status:
            assert time.monotonic() < deadline, f"{path} stays {found}"
            await asyncio.sleep(0.05)
            found = await self.status(path)

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)

    def termination(self) -> dict[str, Any]:
        return json.loads(self.termination_path.read_text())

    def children(self) -> list[int]:
        """Processes that the worker started; empty when it has ended."""
        if self.process.returncode is not None:
            return []
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for one in tasks for pid in (one / "children").read_text().split()]

    def engine_pid(self) -> int:
        """The engine is the worker's only child."""
        (pid,) = self.children()
        return pid

    async def chat(self, *, max_tokens: int) -> aiohttp.ClientResponse:
        return await self.session.post(
            self.engine_url + "/v1/chat/completions",
            json={
                "model": "chat",
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": max_tokens,
                "messages": [{"role": "user", "content": "hello"}],
            },
        )


def words(simulation: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A worker's configuration with quick defaults."""
    return {
        "model": "file:///models/none",
        "servedModelName": "chat",
        "speculation": {"method": "NGram", "numSpeculativeTokens": 4},
        "engineVersion": "0.32.0",
        "maxNumSeqs": 8,
        "gpuMemoryUtilizationPercent": 90,
        "drainSeconds": 20,
        "warmup": {"requests": 3, "promptTokens": 8, "outputTokens": 4},
        "simulation": {"loadMilliseconds": 10, "tokensPerSecond": 2000} | simulation,
    } | changes


def a_config(simulation: dict[str, Any] | None = None, **changes: Any) -> WorkerConfig:
    """The same, parsed."""
    return WorkerConfig.model_validate(words(simulation or {}, changes))


def some_settings(
    folder: Path, *, simulation: dict[str, Any] | None = None, **changes: Any
) -> Settings:
    """Settings for a worker inside the test's own process."""
    engine_port, worker_port = free_ports(2)
    return Settings(
        config=a_config(simulation, **changes),
        engine_port=engine_port,
        worker_port=worker_port,
        host="127.0.0.1",
        termination_path=str(folder / "termination-log"),
    )


@contextlib.asynccontextmanager
async def a_worker(
    folder: Path,
    *,
    program: list[str] | None = None,
    environment: dict[str, str] | None = None,
    simulation: dict[str, Any] | None = None,
    simulated: bool = True,
    **changes: Any,
) -> AsyncIterator[RunningWorker]:
    """Starts a worker; kills whatever of it is left at the end."""
    if not simulated:
        changes["simulation"] = None
    engine_port, worker_port = free_ports(2)
    termination_path = folder / "termination-log"
    output = (folder / "output").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(program or ["-m", "speculative_worker", "run"]),
        env=os.environ
        | {
            "SPECULATIVE_WORKER_CONFIG": json.dumps(words(simulation or {}, changes)),
            "LISTEN_HOST": "127.0.0.1",
            "ENGINE_PORT": str(engine_port),
            "WORKER_PORT": str(worker_port),
            "TERMINATION_PATH": str(termination_path),
            "POD_NAME": "chat-0",
            "POD_REVISION": "6f9d000000",
        }
        | (environment or {}),
        start_new_session=True,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
    )
    output.close()
    async with aiohttp.ClientSession() as session:
        worker = RunningWorker(
            process=process,
            session=session,
            engine_url=f"http://127.0.0.1:{engine_port}",
            worker_url=f"http://127.0.0.1:{worker_port}",
            termination_path=termination_path,
        )
        try:
            yield worker
        finally:
            # In a pod the engine goes with its PID 1; here it would stay.
            for pid in [*worker.children(), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await process.wait()
