"""A disk without room: what serves serves on, the reason is said, and room is used again."""

import errno
import os
from pathlib import Path

import pytest
from tests.gateway.test_written_first import (
    an_observation,
    applied,
    serving_half,
    until,
    weight_on_disk,
)

from speculative_gateway import agent as agents
from speculative_gateway import storage
from speculative_gateway.issuer import Issuers
from speculative_gateway.settings import Settings
from speculative_gateway.supervisor import Supervisor

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_room(path: Path, text: str) -> bool:
    del path, text
    raise FULL


@pytest.mark.asyncio
async def test_an_agent_says_that_its_disk_is_full_and_writes_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "RETRY_SECONDS", 0.02)
    async with serving_half(tmp_path) as (agent, _):
        before = agent.ready
        with monkeypatch.context() as full:
            full.setattr(storage, "write", no_room)
            agent.changed(an_observation(2, canary=0))
            await until(lambda: "No space left on device" in agent._mismatch)
            assert weight_on_disk(tmp_path) == 50
            assert agent.ready is before is True
        await until(lambda: 'sequence": 2' in applied(tmp_path))
        assert weight_on_disk(tmp_path) == 0
        assert agent._mismatch == ""


def test_fetched_keys_count_also_where_they_can_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage, "write", no_room)
    Issuers(Settings(directory=tmp_path))._keep()
    assert "No space left on device" in caplog.text


def test_envoy_starts_and_is_watched_over_without_a_note_of_its_pid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "write", no_room)
    monkeypatch.setattr(os, "posix_spawn", lambda *_, **__: 4242)
    supervisor = Supervisor(Settings(directory=tmp_path))
    supervisor._start()
    assert supervisor._envoy is not None
    assert supervisor._envoy.pid == 4242
