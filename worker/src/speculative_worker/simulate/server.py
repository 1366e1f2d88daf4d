"""The simulated engine's HTTP server: the part of vLLM's API that gateways and tests use.

`/health`, `/v1/models`, `/v1/chat/completions`, `/v1/completions` (streamed or
not) and `/metrics`. Like vLLM's default, SIGTERM aborts what still runs: not
cutting streams is the worker's task.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from aiohttp import web

from speculative_api.worker import Simulation, WorkerConfig
from speculative_worker.settings import Settings
from speculative_worker.simulate.generation import Batch

_COMPLETION_TOKENS: Final = 16
"""Default `max_tokens` of `/v1/completions`, as in the OpenAI API."""
_CHAT_TOKENS: Final = 64
"""Where a chat answer without `max_tokens` ends by itself."""
_DEFAULT_CONTEXT: Final = 8192
_MAX_BODY: Final = 64 * 1024 * 1024


class BadRequest(Exception):
    """A request that a real engine refuses; becomes status 400 or 404."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class SimulatedEngine:
    """Routes and their answers."""

    def __init__(self, config: WorkerConfig, simulation: Simulation, batch: Batch) -> None:
        self._config = config
        self._simulation = simulation
        self._batch = batch
        self._numbers = itertools.count(1)

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_get("/health", self._health)
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_post("/v1/completions", self._completions)
        return application

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self._batch.render_metrics(), content_type="text/plain")

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "id": self._config.served_model_name,
            "object": "model",
            "owned_by": "speculative-worker",
            "max_model_len": self._config.max_model_len or _DEFAULT_CONTEXT,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            call = _Call(await _body(request), self._config, chat=chat, number=next(self._numbers))
        except BadRequest as error:
            return _error(error.status, str(error), "BadRequestError")
        if self._batch.draws_error(self._simulation.error_percent):
            return _error(500, "simulated error", "InternalServerError")
        steps = self._batch.generate(
            prompt_tokens=call.prompt_tokens,
            max_tokens=call.max_tokens,
            finish_reason=call.finish_reason,
        )
        async with aclosing(steps):
            if call.stream:
                return await _stream(request, call, steps)
            text = ""
            async for words in steps:
                text += _joined(words)
            return web.json_response(call.whole(text))


class _Call:
    """One request, read; and the shapes of its answers."""

    def __init__(
        self, body: dict[str, Any], config: WorkerConfig, *, chat: bool, number: int
    ) -> None:
        self.chat = chat
        model = body.get("model", config.served_model_name)
        if model != config.served_model_name:
            raise BadRequest(f"The model `{model}` does not exist.", status=404)
        self._model = config.served_model_name
        self.stream = body.get("stream") is True
        options = body.get("stream_options")
        self.include_usage = isinstance(options, dict) and options.get("include_usage") is True
        self.prompt_tokens = _prompt_tokens(body, chat=chat)
        asked = body.get("max_completion_tokens", body.get("max_tokens"))
        if asked is not None and (not isinstance(asked, int) or asked < 1):
            raise BadRequest("max_tokens must be at least 1")
        self.max_tokens = asked or (_CHAT_TOKENS if chat else _COMPLETION_TOKENS)
        self.finish_reason = "stop" if asked is None and chat else "length"
        context = config.max_model_len or _DEFAULT_CONTEXT
        if self.prompt_tokens + self.max_tokens > context:
            raise BadRequest(
                f"This model's maximum context length is {context} tokens. However, you "
                f"requested {self.max_tokens} output tokens and your prompt contains "
                f"{self.prompt_tokens} input tokens."
            )
        kind = "chatcmpl" if chat else "cmpl"
        self._id = f"{kind}-{os.getpid()}-{number}"
        self._created = int(time.time())

    @property
    def usage(self) -> dict[str, int]:
        """Token counts of the whole answer."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.max_tokens,
            "total_tokens": self.prompt_tokens + self.max_tokens,
        }

    def whole(self, text: str) -> dict[str, Any]:
        """The answer in one piece."""
        content = (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        choice = {"index": 0, "finish_reason": self.finish_reason, **content}
        return self._envelope("", [choice]) | {"usage": self.usage}

    def chunk(self, text: str, *, finished: bool, first: bool) -> dict[str, Any]:
        """One event of a stream."""
        role = {"role": "assistant"} if first else {}
        content: dict[str, Any] = (
            {"delta": {**role, "content": text}} if self.chat else {"text": text}
        )
        reason = self.finish_reason if finished else None
        return self._envelope(".chunk", [{"index": 0, "finish_reason": reason, **content}])

    def usage_chunk(self) -> dict[str, Any]:
        """The last event of a stream that asked for its usage."""
        return self._envelope(".chunk", []) | {"usage": self.usage}

    def _envelope(self, suffix: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self.chat else "text_completion"
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


async def _stream(
    request: web.Request, call: _Call, steps: AsyncIterator[list[str]]
) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    await response.prepare(request)
    emitted = 0
    async for words in steps:
        first = emitted == 0
        emitted += len(words)
        finished = emitted >= call.max_tokens
        await response.write(_event(call.chunk(_joined(words), finished=finished, first=first)))
    if call.include_usage:
        await response.write(_event(call.usage_chunk()))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _joined(words: list[str]) -> str:
    return "".join(f"{word} " for word in words)


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _error(status: int, message: str, kind: str) -> web.Response:
    content = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return web.json_response(content, status=status)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _prompt_tokens(body: dict[str, Any], *, chat: bool) -> int:
    """Tokens of the prompt: exact for token ids, one per word for text."""
    if not chat:
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            return len(prompt)
        if isinstance(prompt, str):
            return max(1, len(prompt.split()))
        raise BadRequest("prompt must be text or a list of token ids")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty")
    return max(1, len(json.dumps(messages).split()))


async def serve(settings: Settings) -> int:
    """Runs the simulated engine until SIGTERM; the exit code."""
    config = settings.config
    simulation = config.simulation or Simulation()
    if simulation.crash_text:
        print(simulation.crash_text, file=sys.stderr, flush=True)
        return 1
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    loading = asyncio.create_task(asyncio.sleep(simulation.load_milliseconds / 1000))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.is_set():
        await _serve_until(stop, settings, simulation)
    loading.cancel()
    stopped.cancel()
    return 0


async def _serve_until(stop: asyncio.Event, settings: Settings, simulation: Simulation) -> None:
    # Seeded per pod and process: evidence from several pods must vary as that of real ones.
    chance = random.Random(f"{settings.pod}/{os.getpid()}")  # noqa: S311
    batch = Batch(
        settings.config,
        tokens_per_second=simulation.tokens_per_second,
        acceptance_percent=simulation.acceptance_percent,
        stall_after_seconds=simulation.stall_after_seconds,
        chance=chance,
    )
    engine = SimulatedEngine(settings.config, simulation, batch)
    runner = web.AppRunner(
        engine.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    await web.TCPSite(runner, settings.host, settings.engine_port).start()
    print(f"simulated engine serves on port {settings.engine_port}", flush=True)
    await stop.wait()
    await runner.cleanup()
