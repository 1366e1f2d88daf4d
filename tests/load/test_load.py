"""The generator against a server whose faults are known."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from e2e.load import PROMPTS, Load, LoadError
from e2e.load.addresses import AddressError, is_ours, require_ours
from e2e.load.request import Question, ask
from tests.load.fake_server import FakeServer, serving


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with serving() as found:
        yield found


async def run_once(server: FakeServer, behaviour: str, **options: Any) -> dict[str, Any]:
    server.script.append(behaviour)
    async with Load(server.url, streams=1, requests=1, **options) as load:
        await load.finished()
    return load.report().to_json()


RESULTS = {
    "whole answer": ("good", "ok", ""),
    "refused": ("503", "failed", "503: no"),
    "redirected": ("redirect", "failed", "307"),
    "no [DONE]": ("no done", "cut", "without [DONE]"),
    "no finish reason": ("no finish", "cut", ""),
    "an error in the stream": ("error", "cut", "engine died"),
    "broken JSON": ("garbage", "cut", "not a completion"),
    "connection reset": ("reset", "cut", "Error"),
}


@pytest.mark.parametrize(("behaviour", "result", "error"), RESULTS.values(), ids=RESULTS.keys())
async def test_what_users_would_notice_is_counted(
    server: FakeServer, behaviour: str, result: str, error: str
) -> None:
    report = await run_once(server, behaviour)
    assert report[result] == report["requests"] == 1
    assert error in "".join(report["errors"])


async def test_every_failure_says_why(server: FakeServer) -> None:
    report = await run_once(server, "no finish")
    assert report["errors"] == ["the answer has no finish reason"]


async def test_tokens_are_as_the_engine_counted_them(server: FakeServer) -> None:
    report = await run_once(server, "good")
    assert report["tokens"] == 6
    assert report["interChunk"]["count"] == 1
    assert report["byRevision"] == {"6f9d00aa11": {"ok": 1}}


async def test_an_engine_that_does_not_count_is_counted_by_pieces(server: FakeServer) -> None:
    assert (await run_once(server, "no usage"))["tokens"] == 2


@pytest.mark.parametrize(
    ("behaviour", "result"), [("good", "ok"), ("no finish", "cut"), ("500", "failed")]
)
async def test_whole_answers_are_counted_too(
    server: FakeServer, behaviour: str, result: str
) -> None:
    report = await run_once(server, behaviour, stream=False)
    assert report[result] == 1
    assert server.bodies[0]["stream"] is False


async def test_what_is_asked(server: FakeServer) -> None:
    await run_once(server, "good", lane="native", max_tokens=7)
    body = server.bodies[0]
    assert body["model"] == "smollm2"
    assert body["max_tokens"] == 7
    assert body["messages"][0]["content"] == PROMPTS["copy-heavy"][0]
    assert server.lanes == ["native"]


async def test_streams_run_at_once_and_requests_are_bounded(server: FakeServer) -> None:
    server.script.extend(["hang"] * 3)
    async with Load(server.url, streams=3, requests=8) as load:
        async with asyncio.timeout(5):
            while server.active < 3:
                server.seen.clear()
                await server.seen.wait()
        server.release.set()
        await load.finished()
    assert server.most_active == 3
    assert load.report().ok == len(server.bodies) == 8


async def test_leaving_lets_running_answers_end(server: FakeServer) -> None:
    server.script.append("hang")
    async with Load(server.url, streams=1) as load:
        await server.seen.wait()
        asyncio.get_running_loop().call_later(0.05, server.release.set)
    report = load.report()
    assert (report.ok, report.requests) == (1, 1)


async def test_what_outlasts_the_drain_time_is_abandoned_not_cut(server: FakeServer) -> None:
    server.script.append("hang")
    async with Load(server.url, streams=1, drain_seconds=0.05) as load:
        await server.seen.wait()
    assert load.report().to_json()["abandoned"] == 1
    assert load.report().cut == 0
    assert not load.running


async def test_an_error_in_the_block_ends_the_load(server: FakeServer) -> None:
    server.script.append("hang")
    load = Load(server.url, streams=1)

    async def fail() -> None:
        async with load:
            await server.seen.wait()
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert not load.running


async def test_nobody_listening_is_a_failure() -> None:
    async with serving() as gone:
        pass
    question = Question(url=gone.url, model="m", prompt="p", max_tokens=1)
    async with aiohttp.ClientSession() as session:
        outcome = await ask(session, question)
    assert outcome.result == "failed"
    assert outcome.status == 0
    assert "ClientConnectorError" in outcome.error
    with pytest.raises(LoadError, match="/v1/models"):
        await Load(gone.url).__aenter__()


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("10.96.0.12", True),
        ("192.0.2.1", True),
        ("fe80::1%eth0", True),
        ("8.8.8.8", False),
        ("::ffff:8.8.8.8", False),
        ("2001:4860:4860::8888", False),
        ("0.0.0.0", False),
    ],
)
def test_only_loopback_and_private_addresses_are_ours(address: str, ours: bool) -> None:
    assert is_ours(address) is ours


@pytest.mark.parametrize(
    ("url", "message"),
    [("http://8.8.8.8:80", "public address"), ("ftp://127.0.0.1", "need http"), ("x", "need http")],
)
async def test_other_addresses_are_refused(url: str, message: str) -> None:
    with pytest.raises(AddressError, match=message):
        await require_ours(url)


@pytest.mark.parametrize("options", [{"streams": 0}, {"prompts": "none"}, {"requests": 0}])
async def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(LoadError):
        Load("http://127.0.0.1:1", **options)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_command_with_a_report(
    server: FakeServer, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out.json"
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "e2e.load", "--url", server.url, "--until-stopped"],
        *["--streams", "1", "--json", str(out)],
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        await server.seen.wait()
        process.send_signal(number)
        printed, _ = await process.communicate()
    assert process.returncode == 0
    assert b"0 failed, 0 cut" in printed
    assert json.loads(out.read_text())["ok"] >= 1
