"""How much one look at a worker carries, with the buckets of a real engine."""

import contextlib
import gzip

import aiohttp
import pytest
from tests.worker.a_worker import some_settings

from speculative_api.engine_metrics import reading
from speculative_worker.probes import ProbeServer
from speculative_worker.state import Phase, WorkerState

SHORT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
WHOLE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": (*TTFT, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    "vllm:inter_token_latency_seconds": (*SHORT, 10.0, 20.0, 40.0, 80.0),
    "vllm:request_time_per_output_token_seconds": (*SHORT, 10.0, 20.0, 40.0, 80.0),
    "vllm:e2e_request_latency_seconds": (*WHOLE, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
}
"""vllm/v1/metrics/loggers.py at 0.32.0."""
COUNTERS = (
    *("prompt_tokens_total", "generation_tokens_total", "spec_decode_num_drafts_total"),
    *("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"),
    *("request_success_total", "num_preemptions_total"),
)
MANY = 2**40


def a_page():
    labels = 'engine="0",model_name="chat"'
    lines = [f"vllm:{name}{{{labels}}} {MANY}" for name in COUNTERS]
    for name, bounds in HISTOGRAMS.items():
        for bound in (*bounds, "+Inf"):
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {MANY}')
        lines.append(f"{name}_count{{{labels}}} {MANY}")
    return "\n".join(lines)


class Engine:
    async def sample(self):
        return reading(a_page()), 1_796_000_000.5


@contextlib.asynccontextmanager
async def probes(folder):
    settings = some_settings(folder)
    state = WorkerState(1_796_000_000.25, phase=Phase.SERVING, engine_alive=True)
    server = ProbeServer(settings, state, Engine())
    await server.start()
    try:
        url = f"http://127.0.0.1:{settings.worker_port}"
        async with aiohttp.ClientSession(url, auto_decompress=False) as session:
            yield session
    finally:
        await server.close()


@pytest.mark.parametrize("path", ["/digest", "/metrics"])
async def test_a_look_carries_less_than_5_kb(tmp_path, path):
    async with (
        probes(tmp_path) as session,
        session.get(path, headers={"Accept-Encoding": "gzip"}) as answer,
    ):
        assert answer.status == 200
        assert len(await answer.read()) < 5000


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
async def test_metrics_are_compressed_only_for_who_takes_it(tmp_path, accepted):
    headers = {"Accept-Encoding": accepted}
    async with probes(tmp_path) as session, session.get("/metrics", headers=headers) as answer:
        said = answer.headers.get("Content-Encoding", "identity")
        body = await answer.read()
    assert said == accepted
    text = gzip.decompress(body) if said == "gzip" else body
    assert f"speculative_worker_draft_tokens_total {MANY}".encode() in text
