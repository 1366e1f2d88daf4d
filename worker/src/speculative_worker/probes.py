"""The worker's own HTTP server: probes for the kubelet, digest for the operator.

`/startupz` and `/readyz` answer 200 or 503 with the reason in one line; `/livez`
fails only for what a restart cures; `/digest` and `/metrics` read the engine
when asked, at most once a second.
"""

import time
from typing import Any

from aiohttp import web

from speculative_api.engine_metrics import Reading, cache_usage, counters, latencies
from speculative_api.worker import Digest
from speculative_worker.adapting import state_of
from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.exposition import exposition
from speculative_worker.settings import Settings
from speculative_worker.state import Phase, WorkerState


class ProbeServer:
    """Serves the probes until it is closed."""

    def __init__(self, settings: Settings, state: WorkerState, client: EngineClient) -> None:
        self._settings = settings
        self._state = state
        self._client = client
        application = web.Application()
        application.router.add_get("/startupz", self._startup)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/livez", self._live)
        application.router.add_get("/digest", self._digest)
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)

    async def start(self) -> None:
        """Begins to listen. Raises `OSError` when the port is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.worker_port)
        await site.start()

    async def close(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()

    async def _startup(self, _: web.Request) -> web.Response:
        return _answer(self._state.is_started, self._state.why_not_ready())

    async def _ready(self, _: web.Request) -> web.Response:
        return _answer(self._state.is_ready, self._state.why_not_ready())

    async def _live(self, _: web.Request) -> web.Response:
        live = self._state.is_live(
            time.monotonic(), stall_live_seconds=self._settings.stall_live_seconds
        )
        return _answer(live, self._state.why_not_ready())

    async def _digest(self, _: web.Request) -> web.Response:
        digest, _reading = await self._observe()
        return web.Response(
            text=digest.model_dump_json(by_alias=True), content_type="application/json"
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        digest, reading = await self._observe()
        return web.Response(text=exposition(digest, reading), content_type="text/plain")

    async def _observe(self) -> tuple[Digest, Reading | None]:
        reading: Reading | None = None
        sampled_at = time.time()
        # Before Serving the counters hold the warm-up only: absent, so that nobody judges by it.
        if self._state.phase in (Phase.SERVING, Phase.DRAINING):
            try:
                reading, sampled_at = await self._client.sample()
                reading = self._state.without_heartbeats(reading)
            except EngineSilent:
                reading = None
        return digest_of(self._settings, self._state, reading, sampled_at=sampled_at), reading


def digest_of(
    settings: Settings, state: WorkerState, reading: Reading | None, *, sampled_at: float
) -> Digest:
    """The digest; without a reading its counters are absent."""
    speculation = settings.config.speculation
    tokens = speculation.num_speculative_tokens
    figures: dict[str, Any] = {}
    if reading is not None and not reading.torn:
        figures = {
            **counters(reading, num_speculative_tokens=tokens),
            **cache_usage(reading),
            **latencies(reading),
        }
    return Digest(
        pod=settings.pod,
        revision=settings.revision,
        ready=state.is_ready,
        draining=state.phase is Phase.DRAINING,
        stalled=state.stalled_since is not None,
        phase=state.phase.value,
        phase_detail=state.phase_detail,
        commits=dict(state.commits),
        engine_started_at=state.engine_started_at,
        sampled_at=sampled_at,
        method=speculation.method,
        num_speculative_tokens=tokens,
        adaptive=state_of(settings.config, state.adapting),
        **figures,
    )


def _answer(good: bool, reason: str) -> web.Response:
    if good:
        return web.Response(text="ok\n")
    return web.Response(status=503, text=reason + "\n")
