"""The worker's own HTTP server: probes for the kubelet, digest for the operator.

`/startupz` and `/readyz` answer 200 or 503 with the reason in one line; `/livez`
fails only for what a restart cures; `/digest` and `/metrics` read the engine
when asked, at most once a second.
"""

import time
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from speculative_api.engine_metrics import Reading, cache_usage, counters, latencies
from speculative_api.worker import Digest
from speculative_worker.adapting import state_of
from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.exposition import exposition
from speculative_worker.http_server import HttpServer, Request, Response
from speculative_worker.settings import Settings
from speculative_worker.state import Phase, WorkerState

_LARGEST_BODY: Final = 4096
_IDLE_SECONDS: Final = 75.0


class ProbeServer:
    """Serves the probes until it is closed."""

    def __init__(self, settings: Settings, state: WorkerState, client: EngineClient) -> None:
        self._settings = settings
        self._state = state
        self._client = client
        self._server = HttpServer(
            self._answer, largest_body=_LARGEST_BODY, idle_seconds=_IDLE_SECONDS
        )

    async def start(self) -> None:
        """Begins to listen. Raises `OSError` when the port is taken."""
        await self._server.start(self._settings.host, self._settings.worker_port)

    async def close(self) -> None:
        """Stops listening."""
        await self._server.close()

    async def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _text("only GET is answered here\n", status=405)
        match request.path:
            case "/startupz":
                return self._verdict(self._state.is_started)
            case "/readyz":
                return self._verdict(self._state.is_ready)
            case "/livez":
                limit = self._settings.stall_live_seconds
                live = self._state.is_live(time.monotonic(), stall_live_seconds=limit)
                return self._verdict(live)
            case "/digest":
                digest, _ = await self._observe()
                body = digest.model_dump_json(by_alias=True).encode()
                return Response(body=body, content_type="application/json; charset=utf-8")
            case "/metrics":
                text = _text(exposition(*await self._observe()))
                return _compressed(text) if request.takes_gzip else text
            case _:
                return _text("not found\n", status=404)

    def _verdict(self, good: bool) -> Response:
        if good:
            return _text("ok\n")
        return _text(self._state.why_not_ready() + "\n", status=503)

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
    known: dict[str, Any] = {
        "pod": settings.pod,
        "revision": settings.revision,
        "ready": state.is_ready,
        "draining": state.phase is Phase.DRAINING,
        "stalled": state.stalled_since is not None,
        "phase": state.phase.value,
        "phase_detail": state.phase_detail,
        "commits": dict(state.commits),
        "engine_started_at": state.engine_started_at,
        "sampled_at": sampled_at,
        "method": speculation.method,
        "num_speculative_tokens": tokens,
        "adaptive": state_of(settings.config, state.adapting),
    }
    if reading is None or reading.torn:
        return Digest(**known)
    try:
        figures = {
            **counters(reading, num_speculative_tokens=tokens),
            **cache_usage(reading),
            **latencies(reading),
        }
        return Digest(**known, **figures)
    except ValidationError:
        # Figures that can't be true are none; what the worker knows itself still stands.
        return Digest(**known)


def _compressed(answer: Response) -> Response:
    """A third or less of it: most of the page are names that repeat."""
    # Imported here: only Prometheus asks for it, and long after the start.
    import gzip

    assert isinstance(answer.body, bytes)  # noqa: S101 (narrows for mypy)
    body = gzip.compress(answer.body, compresslevel=6, mtime=0)
    return replace(answer, body=body, headers={"Content-Encoding": "gzip"})


def _text(text: str, *, status: int = 200) -> Response:
    content_type = "text/plain; charset=utf-8"
    return Response(status=status, body=text.encode(), content_type=content_type)
