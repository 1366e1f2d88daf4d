"""Leader and follower as processes: they meet, serve, drain in order and end together."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.a_worker import PATIENCE_SECONDS, RunningWorker, a_worker, free_ports
from tests.worker.test_run import events

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, dataclasses, sys
from speculative_worker import follower
from speculative_worker.follower import follow
from speculative_worker.settings import process_environment, settings_from
from speculative_worker.supervisor import run
follower.WATCH_SECONDS, follower.DELETED_SECONDS = 0.1, 20.0
settings = dataclasses.replace(settings_from(process_environment()), follow_seconds=0.3)
program = run if settings.node.rank == 0 else follow
sys.exit(asyncio.run(program(settings)))
"""
"""Either role, with shorter waits than the contract's."""


@contextlib.asynccontextmanager
async def a_group(
    folder: Path, **changes: Any
) -> AsyncIterator[tuple[RunningWorker, RunningWorker]]:
    """A leader and one follower."""
    (port,) = free_ports(1)
    place = {"LWS_LEADER_ADDRESS": "127.0.0.1", "GROUP_PORT": str(port)}
    changes = {"nodes": 2} | changes
    for name in ("leader", "follower"):
        (folder / name).mkdir()
    async with a_worker(
        folder / "leader",
        program=["-c", PROGRAM],
        environment=place | {"LWS_WORKER_INDEX": "0"},
        **changes,
    ) as leader:
        leads_at = leader.worker_url.rsplit(":", 1)[1]
        async with a_worker(
            folder / "follower",
            program=["-c", PROGRAM],
            environment=place | {"LWS_WORKER_INDEX": "1", "LEADER_PORT": leads_at},
            **changes,
        ) as follower:
            yield leader, follower


async def still_runs(worker: RunningWorker, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(worker.process.wait(), seconds)
    return worker.process.returncode is None


async def both_ready(leader: RunningWorker, follower: RunningWorker) -> None:
    await leader.until("/readyz", 200)
    await follower.until("/readyz", 200)


async def test_the_leader_serves_once_the_follower_has_come(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (leader, follower):
        await both_ready(leader, follower)
        assert await follower.status("/startupz") == 200
        assert await follower.status("/livez") == 200
        assert len(await events(await leader.chat(max_tokens=4))) > 1


async def test_a_leader_without_its_follower_does_not_get_ready(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place = {"LWS_LEADER_ADDRESS": "127.0.0.1", "GROUP_PORT": str(port), "LWS_WORKER_INDEX": "0"}
    async with a_worker(tmp_path, environment=place, nodes=2) as leader:
        await leader.until("/livez", 200)
        await leader.digest_when(lambda one: one["phase"] == "Loading")
        assert await leader.status("/readyz") == 503
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.exit_code() == 0


async def test_a_follower_keeps_its_part_until_the_leader_has_drained(tmp_path: Path) -> None:
    async with a_group(tmp_path, simulation={"tokensPerSecond": 40}) as (leader, follower):
        await both_ready(leader, follower)
        answer = await leader.chat(max_tokens=80)
        await answer.content.readline()
        follower.process.send_signal(signal.SIGTERM)
        await follower.until("/readyz", 503)
        leader.process.send_signal(signal.SIGTERM)
        found = await events(answer)
        assert found[-1]["usage"]["completion_tokens"] == 80
        assert await leader.exit_code() == 0
        assert await follower.exit_code() == 0
        assert not leader.termination_path.exists()
        assert not follower.termination_path.exists()


async def test_a_follower_that_no_leader_needs_ends_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place = {"LWS_LEADER_ADDRESS": "127.0.0.1", "GROUP_PORT": str(port), "LEADER_PORT": str(port)}
    async with a_worker(
        tmp_path,
        program=["-c", PROGRAM],
        environment=place | {"LWS_WORKER_INDEX": "1"},
        nodes=2,
        drainSeconds=600,
    ) as follower:
        await follower.until("/readyz", 200)
        follower.process.send_signal(signal.SIGTERM)
        assert await follower.exit_code() == 0


async def test_a_follower_without_sigterm_does_not_cover_its_leaders_last_words(
    tmp_path: Path,
) -> None:
    async with a_group(tmp_path) as (leader, follower):
        await both_ready(leader, follower)
        leader.process.send_signal(signal.SIGTERM)
        assert await leader.exit_code() == 0
        # The engine ended with its leader's; the pod waits to be deleted.
        follower.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(follower.process.wait(), PATIENCE_SECONDS) == 0
        assert not follower.termination_path.exists()


async def test_the_leader_ends_when_its_follower_crashes(tmp_path: Path) -> None:
    async with a_group(tmp_path) as (leader, follower):
        await both_ready(leader, follower)
        # In a pod the engine goes with its PID 1.
        os.kill(follower.engine_pid(), signal.SIGKILL)
        follower.process.kill()
        assert await leader.exit_code() == 1
        assert leader.termination()["retryable"] is True
        assert "a pod of the group has ended" in leader.termination()["detail"]
