"""The simulated engine's HTTP server: the part of vLLM's API that gateways and tests use.

`/health`, `/v1/models`, `/v1/chat/completions`, `/v1/completions` (streamed or
not), `/metrics`, and for this machine only `/simulation/faults`. Like vLLM's
default, SIGTERM aborts what still runs: not cutting streams is the worker's task.
"""

import asyncio
import itertools
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from speculative_worker.adaptive.report import Report, settings_from
from speculative_worker.http_server import HttpServer, Request, Response, json_response
from speculative_worker.simulate.calls import BadRequest, Call, body_of
from speculative_worker.simulate.faults import Fault, Faults, fault_from
from speculative_worker.simulate.generation import Batch
from speculative_worker.simulate.lengths import Lengths
from speculative_worker.simulate.metrics import only
from speculative_worker.simulate.plan import BadPlan, Plan, plan_from

if TYPE_CHECKING:
    from speculative_worker.simulate.group import Meeting

_LOOPBACK: Final = ("127.", "::1", "::ffff:127.")
_HTML: Final = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"
_CONFIG_VARIABLE: Final = "SPECULATIVE_WORKER_CONFIG"
_ENGINE_PORT: Final = 8000
_END_LOOK_SECONDS: Final = 0.25
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class SimulatedEngine:
    """Routes and their answers."""

    def __init__(self, plan: Plan, *, chance: random.Random, state_path: str = "") -> None:
        self.plan = plan
        self._chance = chance
        self._numbers = itertools.count(1)
        self.faults = Faults(plan.faults, now=time.monotonic())
        lengths = Lengths(plan, Report(state_path))
        self.batch = Batch(plan, chance=chance, faults=self.faults, lengths=lengths)

    async def answer(self, request: Request) -> Response:
        """The answer to any request."""
        match request.method, request.path:
            case "GET", "/health":
                return Response(content_type="text/plain")
            case "GET", "/v1/models":
                return self._models()
            case "GET", "/metrics" | "/metrics/":
                return self._metrics(request)
            case "POST", "/v1/chat/completions":
                return await self._generate(request, chat=True)
            case "POST", "/v1/completions":
                return await self._generate(request, chat=False)
            case (("GET" | "POST" | "DELETE"), "/simulation/faults") if request.peer.startswith(
                _LOOPBACK
            ):
                return self._control(request)
            case _:
                return json_response({"detail": "Not Found"}, status=404)

    def _models(self) -> Response:
        model = {
            "id": self.plan.served_model_name,
            "object": "model",
            "owned_by": "speculative-worker",
            "max_model_len": self.plan.max_model_len,
        }
        return json_response({"object": "list", "data": [model]})

    def _metrics(self, request: Request) -> Response:
        now = time.monotonic()
        if self.faults.found("EmptyMetrics", now):
            return Response(content_type="text/plain")
        if self.faults.found("HtmlMetrics", now):
            return Response(body=_HTML, content_type="text/html")
        text = self.batch.render_metrics()
        if request.path.endswith("/") and (names := parse_qs(request.query).get("name[]")):
            text = only(text, frozenset(names))
        return Response(body=text.encode(), content_type="text/plain; charset=utf-8")

    def _control(self, request: Request) -> Response:
        now = time.monotonic()
        if request.method == "DELETE":
            self.faults.clear()
        elif request.method == "POST":
            try:
                content = json.loads(request.body)
                found = [
                    fault_from(c) for c in (content if isinstance(content, list) else [content])
                ]
            except (ValueError, RecursionError) as error:
                return _error(400, str(error), "BadRequestError")
            for fault in found:
                self.faults.add(fault, now=now)
        shown = [
            {"beginsInSeconds": round(begins - now, 3), **asdict(fault)}
            for begins, fault in self.faults.all
        ]
        return json_response({"faults": shown})

    async def _generate(self, request: Request, *, chat: bool) -> Response:
        now = time.monotonic()
        number = f"{os.getpid()}-{next(self._numbers)}"
        try:
            body = body_of(request.body)
            if refused := self.faults.refuses(body, now):
                raise BadRequest(f"Unsupported parameter: '{refused}'.")
            call = Call(body, self.plan, chat=chat, number=number, created=int(time.time()))
        except BadRequest as error:
            return _error(error.status, str(error), "BadRequestError")
        if self.faults.draws("Errors", now, self._chance):
            return _error(500, "simulated error", "InternalServerError")
        # Whoever counts generations (was one request answered by two workers?) reads this line.
        print(f"generation request={_request_id(request)} id={number}", flush=True)
        steps = self.batch.generate(
            prompt=call.prompt, max_tokens=call.max_tokens, finish_reason=call.finish_reason
        )
        if call.stream:
            return Response(
                body=_events(call, steps),
                content_type="text/event-stream; charset=utf-8",
                headers={"Cache-Control": "no-cache"},
            )
        async with aclosing(steps):
            tokens = [token async for step in steps for token in step]
        return json_response(call.whole(tokens))


def _request_id(request: Request) -> str:
    """The id that a gateway gave the request; `-` where there is none fit to be printed."""
    return request.id if _REQUEST_ID.fullmatch(request.id) else "-"


async def _events(
    call: Call, steps: AsyncGenerator[list[int], None]
) -> AsyncGenerator[bytes, None]:
    emitted = 0
    async with aclosing(steps):
        async for tokens in steps:
            first = emitted == 0
            emitted += len(tokens)
            yield _event(call.chunk(tokens, finished=emitted >= call.max_tokens, first=first))
    if call.include_usage:
        yield _event(call.usage_chunk())
    yield b"data: [DONE]\n\n"


def _event(content: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _error(status: int, message: str, kind: str) -> Response:
    content = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return json_response(content, status=status)


def simulate(environment: Mapping[str, str]) -> int:
    """Runs the simulated engine until SIGTERM or a fault that ends it; the exit code."""
    text = environment.get(_CONFIG_VARIABLE)
    if not text:
        print(f"{_CONFIG_VARIABLE} is not set", file=sys.stderr)
        return 2
    try:
        plan = plan_from(text)
        port = int(environment.get("ENGINE_PORT", _ENGINE_PORT))
    except (BadPlan, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if plan.nodes > 1:
        return _simulate_node(plan, environment, port)
    return asyncio.run(_run(_engine(plan, environment), _doors(environment, port)))


def _engine(plan: Plan, environment: Mapping[str, str]) -> SimulatedEngine:
    # Seeded per pod and process: evidence from several pods must vary as that of real ones.
    seed = f"{environment.get('POD_NAME', '')}/{os.getpid()}"
    chance = random.Random(seed)  # noqa: S311
    state_path, _ = settings_from(environment)
    return SimulatedEngine(plan, chance=chance, state_path=state_path)


@dataclass(frozen=True, slots=True)
class _Doors:
    """Where it listens, and with which certificate."""

    host: str | None
    port: int
    tls_folder: str | None


def _doors(environment: Mapping[str, str], port: int) -> _Doors:
    host, tls_folder = environment.get("LISTEN_HOST"), environment.get("ENGINE_TLS_FOLDER")
    return _Doors(host or None, port, tls_folder or None)


def _simulate_node(plan: Plan, environment: Mapping[str, str], port: int) -> int:
    """One pod of an engine of several."""
    # Imported here: an engine of one pod has no use for it.
    from speculative_worker.group import MASTER_PORT, node_of
    from speculative_worker.simulate import group

    try:
        node = node_of(plan.nodes, environment)
        meets_at = int(environment.get("GROUP_PORT", MASTER_PORT))
    except ValueError as error:
        print(f"this pod is in no group: {error}", file=sys.stderr)
        return 2
    if node is not None and node.rank > 0:
        return asyncio.run(group.follow(node, meets_at))
    meeting = group.Meeting(plan.nodes - 1, meets_at)
    return asyncio.run(_run(_engine(plan, environment), _doors(environment, port), meeting))


async def _run(engine: SimulatedEngine, doors: _Doors, meeting: "Meeting | None" = None) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    stopped = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(_end(engine.faults, meeting))
    server = HttpServer(engine.answer)
    renewing: asyncio.Task[None] | None = None
    try:
        await _load(engine.plan, doors, meeting, {stopped, ended})
        if not (stopped.done() or ended.done()):
            if doors.tls_folder is None:
                await server.start(doors.host, doors.port)
            else:
                renewing = await _start_encrypted(server, doors, Path(doors.tls_folder))
            print(f"simulated engine serves on port {doors.port}", flush=True)
            await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if meeting is not None:
            await meeting.close()
        await server.close()
        if renewing is not None:
            renewing.cancel()
    if ended.done():
        return _last_words(ended.result())
    ended.cancel()
    return 0


async def _load(
    plan: Plan, doors: _Doors, meeting: "Meeting | None", ends: set[asyncio.Task[Any]]
) -> None:
    """Takes the time that loading takes, once every pod is there; less where it ends first."""
    if meeting is not None:
        await meeting.start(doors.host)
        complete = asyncio.create_task(meeting.complete.wait())
        await asyncio.wait({complete, *ends}, return_when=asyncio.FIRST_COMPLETED)
        complete.cancel()
    await asyncio.wait(ends, timeout=plan.load_seconds, return_when=asyncio.FIRST_COMPLETED)


async def _start_encrypted(server: HttpServer, doors: _Doors, folder: Path) -> asyncio.Task[None]:
    """Listens with TLS; the task that takes renewed certificates."""
    # Imported here: without TLS there is no `ssl` in this process.
    from speculative_worker.simulate import encryption

    context = encryption.context_of(folder)
    await server.start(doors.host, doors.port, encryption=context)
    return asyncio.create_task(encryption.follow(context, folder))


async def _end(faults: Faults, meeting: "Meeting | None") -> Fault:
    """Waits for a fault that ends the process; new ones may come at any time."""
    while True:
        if meeting is not None and meeting.left.is_set():
            return Fault("Crash", text="RuntimeError: a pod of the group has ended")
        found = faults.next_end()
        left = found[0] - time.monotonic() if found else _END_LOOK_SECONDS
        if found and left <= 0:
            return found[1]
        await asyncio.sleep(min(left, _END_LOOK_SECONDS))


def _last_words(fault: Fault) -> int:
    if fault.kind == "HostOutOfMemory":
        # What the kernel does: no word, exit code 137.
        os.kill(os.getpid(), signal.SIGKILL)
    print(fault.text, file=sys.stderr, flush=True)
    return fault.exit_code
