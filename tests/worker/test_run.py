"""The worker as a process, over a simulated engine: ready, digest, drain, failures."""

import asyncio
import dataclasses
import json
import os
import signal
import ssl
from pathlib import Path

import aiohttp
import pytest
from tests.certificates import Authority
from tests.certificates import written as files_of
from tests.worker.a_worker import SHORT_FOLLOW, a_worker, some_settings

from speculative_api.worker import CONFIG_VARIABLE
from speculative_worker.settings import Settings
from speculative_worker.supervisor import run

pytestmark = pytest.mark.slow


async def events(answer: aiohttp.ClientResponse) -> list[dict]:
    """The events of a stream; it must end with [DONE]."""
    lines = [line async for line in answer.content]
    datas = [line.removeprefix(b"data: ").strip() for line in lines if line.startswith(b"data: ")]
    assert datas[-1] == b"[DONE]"
    return [json.loads(data) for data in datas[:-1]]


def text(found: list[dict]) -> str:
    return "".join(one["choices"][0]["delta"]["content"] for one in found if one["choices"])


async def test_a_stream_and_its_counters(tmp_path):
    async with a_worker(tmp_path) as worker:
        await worker.until("/readyz", 200)
        before = await worker.digest()
        answer = await worker.chat(max_tokens=40)
        found = await events(answer)
        assert len(text(found).split()) == 40
        assert found[-1]["usage"]["completion_tokens"] == 40
        assert found[-2]["choices"][0]["finish_reason"] == "length"

        after = await worker.digest_when(lambda one: one["sampledAt"] > before["sampledAt"])
        assert (after["pod"], after["revision"]) == ("chat-0", "6f9d000000")
        assert (after["ready"], after["phase"], after["method"]) == (True, "Serving", "NGram")
        assert after["requestsFinished"] - before["requestsFinished"] == 1
        assert after["generatedTokens"] - before["generatedTokens"] == 40
        drafts = after["drafts"] - before["drafts"]
        accepted = after["acceptedTokens"] - before["acceptedTokens"]
        assert after["draftTokens"] - before["draftTokens"] == 4 * drafts
        assert drafts + accepted == 40
        for histogram in ("ttft", "itl", "e2e"):
            assert after[histogram]["count"] - before[histogram]["count"] == 1
            assert after[histogram]["counts"] == sorted(after[histogram]["counts"])

        async with worker.session.get(worker.worker_url + "/metrics") as metrics:
            exposed = await metrics.text()
        assert 'speculative_worker_request_latency_seconds_bucket{le="+Inf"}' in exposed
        assert f"speculative_worker_generated_tokens_total {after['generatedTokens']}" in exposed


async def test_counters_of_the_warm_up_are_not_shown_before_serving(tmp_path):
    async with a_worker(tmp_path, simulation={"tokensPerSecond": 1}) as worker:
        await worker.until("/livez", 200)
        digest = await worker.digest_when(lambda one: one["phase"] == "Warming")
        assert digest["generatedTokens"] is None
        assert await worker.status("/startupz") == 503
        assert await worker.status("/readyz") == 503


async def test_sigterm_drains_a_running_stream_to_its_end(tmp_path):
    slow = {"tokensPerSecond": 40}
    async with a_worker(tmp_path, program=["-c", SHORT_FOLLOW], simulation=slow) as worker:
        await worker.until("/readyz", 200)
        answer = await worker.chat(max_tokens=100)
        await answer.content.readline()
        worker.process.send_signal(signal.SIGTERM)
        await worker.until("/readyz", 503)
        # New requests of a gateway that has not heard yet are still answered.
        late = await worker.chat(max_tokens=4)
        assert len(text(await events(late)).split()) == 4
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.status("/livez") == 200
        assert (await worker.digest())["draining"] is True
        found = await events(answer)
        assert found[-1]["usage"]["completion_tokens"] == 100
        assert found[-2]["choices"][0]["finish_reason"] == "length"
        assert await worker.exit_code() == 0
        assert not worker.termination_path.exists()


async def test_drain_ends_when_its_time_is_over(tmp_path):
    async with a_worker(
        tmp_path, program=["-c", SHORT_FOLLOW], drainSeconds=1, simulation={"tokensPerSecond": 20}
    ) as worker:
        await worker.until("/readyz", 200)
        answer = await worker.chat(max_tokens=4000)
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.exit_code() == 0
        answer.close()


async def test_sigterm_before_ready_ends_at_once(tmp_path):
    async with a_worker(tmp_path, simulation={"loadMilliseconds": 600_000}) as worker:
        await worker.until("/livez", 200)
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.exit_code() == 0


async def test_sigterm_ends_a_worker_that_waits_for_the_hub(tmp_path):
    asked, left = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hub = {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HUB_ETAG_TIMEOUT": "600"}
    async with a_worker(
        tmp_path, environment=hub, simulated=False, model="hf://org/model"
    ) as worker:
        await asyncio.wait_for(asked.wait(), 30)
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.exit_code() == 0
    await asyncio.wait_for(left.wait(), 30)
    server.close()


async def failure_of(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Runs a worker inside the test; its last words."""
    # The engine inherits the environment of its worker: here, of the test.
    monkeypatch.setenv(CONFIG_VARIABLE, settings.config.model_dump_json(by_alias=True))
    monkeypatch.setenv("ENGINE_PORT", str(settings.engine_port))
    monkeypatch.setenv("LISTEN_HOST", "127.0.0.1")
    assert await asyncio.wait_for(run(settings), 30) == 1
    return written(settings)


def written(settings: Settings) -> dict:
    """The termination message of a worker that ran inside the test."""
    return json.loads(Path(settings.termination_path).read_text())


async def test_a_crash_at_start_is_classified(tmp_path, monkeypatch):
    crash_text = "ValueError: Target and draft model should have the same vocabulary size."
    settings = some_settings(tmp_path, simulation={"crashText": crash_text})
    found = await failure_of(settings, monkeypatch)
    assert (found["reason"], found["retryable"]) == ("VocabularyMismatch", False)
    assert crash_text in found["detail"]


async def test_start_up_has_a_deadline(tmp_path, monkeypatch):
    settings = some_settings(
        tmp_path, startupDeadlineSeconds=1, simulation={"loadMilliseconds": 600_000}
    )
    found = await failure_of(settings, monkeypatch)
    assert (found["reason"], found["retryable"]) == ("StartupTimeout", False)
    assert "phase Loading" in found["detail"]


async def test_a_missing_model_fails_before_any_engine_starts(tmp_path, monkeypatch, capfd):
    settings = some_settings(tmp_path)
    real = settings.config.model_copy(update={"simulation": None, "model": "file:///nowhere/model"})
    found = await failure_of(dataclasses.replace(settings, config=real), monkeypatch)
    assert (found["reason"], found["retryable"]) == ("ModelNotFound", False)
    assert "/nowhere/model" in found["detail"]
    assert "engine-started" not in capfd.readouterr().err


async def test_a_killed_engine_fails_the_worker(tmp_path):
    async with a_worker(tmp_path) as worker:
        await worker.until("/readyz", 200)
        os.kill(worker.engine_pid(), signal.SIGKILL)
        assert await worker.exit_code() == 1
        assert await worker.status("/livez") == 0
        found = worker.termination()
        assert (found["reason"], found["retryable"]) == ("EngineCrashed", True)
        assert "signal 9" in found["detail"]


async def test_a_stalled_engine_is_not_ready_then_not_live_and_says_so_at_its_end(tmp_path):
    quick = {"PROGRESS_SAMPLE_SECONDS": "0.1", "STALL_LIVE_SECONDS": "0.5"}
    async with a_worker(tmp_path, environment=quick, simulation={"stallAfterSeconds": 1}) as worker:
        await worker.until("/readyz", 200)
        answer = await worker.chat(max_tokens=8000)
        await worker.until("/readyz", 503)
        await worker.until("/livez", 503)
        async with worker.session.get(worker.engine_url + "/health") as health:
            assert health.status == 200
        assert (await worker.digest())["stalled"] is True
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.exit_code() == 1
        assert worker.termination()["reason"] == "Stalled"
        answer.close()


async def test_a_worker_speaks_while_the_process_of_its_engine_hangs(tmp_path):
    async with a_worker(tmp_path) as worker:
        await worker.until("/readyz", 200)
        before = await worker.digest()
        (engine,) = worker.children()
        os.kill(engine, signal.SIGSTOP)
        async with asyncio.timeout(2):  # the operator waits no longer
            during = await worker.digest()
        assert during["requestsFinished"] == before["requestsFinished"] is not None


async def test_a_configuration_that_cannot_be_read_is_named(tmp_path):
    async with a_worker(tmp_path, maxNumSeqs="many") as worker:
        assert await worker.exit_code() == 2
        found = worker.termination()
        assert (found["reason"], found["retryable"]) == ("InvalidArguments", False)
        assert "maxNumSeqs" in found["detail"]


async def test_a_worker_serves_tls_and_takes_a_renewed_certificate(tmp_path):
    authority = Authority()
    mounted = files_of(tmp_path / "mounted", authority.secret("chat"))
    tls = {"directory": str(mounted), "serverName": "chat"}
    quick = SHORT_FOLLOW + "\n"
    program = ["-c", quick.replace("import asyncio", QUICK_LOOK + "import asyncio", 1)]
    async with a_worker(tmp_path, program=program, tls=tls, heartbeatSeconds=1) as worker:
        # Ready: health, metrics and warm-up went through TLS as well.
        await worker.until("/readyz", 200)
        first = await shown_by(worker.engine_url, authority)
        assert await status_of_plain(worker.engine_url) == 0
        files_of(mounted, authority.secret("chat"))
        deadline = asyncio.get_running_loop().time() + 30
        while await shown_by(worker.engine_url, authority) == first:
            assert asyncio.get_running_loop().time() < deadline, "the old one stays"
            await asyncio.sleep(0.05)
        assert await worker.status("/readyz") == 200


async def test_a_certificate_for_another_name_ends_the_worker_before_its_engine(tmp_path):
    mounted = files_of(tmp_path / "mounted", Authority().secret("somebody"))
    tls = {"directory": str(mounted), "serverName": "chat"}
    async with a_worker(tmp_path, tls=tls) as worker:
        assert await worker.exit_code() == 1
        found = worker.termination()
    assert (found["reason"], found["retryable"]) == ("InvalidArguments", False)
    assert "engine.tls: the certificate is refused for chat" in found["detail"]


QUICK_LOOK = """
from speculative_worker import certificate
certificate.LOOK_SECONDS = 0.1
"""


async def shown_by(url: str, authority: Authority) -> bytes:
    """The certificate that an engine shows to a client that believes this authority."""
    context = ssl.create_default_context(cadata=authority.pem)
    port = int(url.rsplit(":", 1)[1])
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="chat"
    )
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return shown


async def status_of_plain(url: str) -> int:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(url + "/health") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0
