"""A small HTTP/1.1 server: what h11 parses, over an asyncio protocol.

Serves the worker's probes and the simulated engine. Used instead of aiohttp,
which took a third of a worker's start. A client that leaves cancels its
handler, as vLLM aborts such a request.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import h11

if TYPE_CHECKING:
    from ssl import SSLContext

LARGEST_BODY: Final = 64 * 1024 * 1024
"""Bytes of one request; more is answered with 413."""
_SHUTDOWN_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request."""

    method: str
    path: str
    """Without the query."""
    body: bytes
    peer: str
    """Address of the client; empty when unknown."""
    id: str = ""
    """`x-request-id` as it came; empty where there is none."""
    takes_gzip: bool = False
    """Whether the answer may be compressed."""
    query: str = ""
    """Without the question mark, as it came."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; `body` may be a stream, which goes out part by part as it comes."""

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


def _takes_gzip(accepted: bytes) -> bool:
    """Whether `Accept-Encoding` names gzip, other than to refuse it."""
    for each in accepted.decode("ascii", "replace").lower().split(","):
        name, _, quality = each.replace(" ", "").partition(";q=")
        if name == "gzip":
            return quality.strip("0.") != "" or not quality
    return False


def json_response(content: Any, *, status: int = 200) -> Response:
    """An answer of JSON."""
    return Response(status=status, body=json.dumps(content).encode())


class HttpServer:
    """Serves one handler until it is closed."""

    def __init__(
        self,
        handler: Handler,
        *,
        largest_body: int = LARGEST_BODY,
        idle_seconds: float | None = None,
    ) -> None:
        """Args:
        idle_seconds: a connection without a whole request for so long is closed; None: never.
        """
        self._handler = handler
        self._limits = _Limits(largest_body, idle_seconds)
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def start(
        self, host: str | None, port: int, *, encryption: "SSLContext | None" = None
    ) -> int:
        """Begins to listen; the port, which the system chooses for 0.

        Raises `OSError` when the port is taken.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._handler, self._connections, self._limits),
            host,
            port,
            ssl=encryption,
        )
        port_found: int = self._server.sockets[0].getsockname()[1]
        return port_found

    async def close(self) -> None:
        """Stops listening and aborts what still runs, as vLLM does by default."""
        if self._server is not None:
            self._server.close()
        tasks = [task for each in list(self._connections) if (task := each.abort())]
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)


@dataclass(frozen=True, slots=True)
class _Limits:
    largest_body: int
    idle_seconds: float | None


class _Connection(asyncio.Protocol):
    def __init__(self, handler: Handler, connections: "set[_Connection]", limits: _Limits) -> None:
        self._handler = handler
        self._connections = connections
        self._limits = limits
        self._idle: asyncio.TimerHandle | None = None
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (narrows for mypy)
        self._transport = transport
        self._connections.add(self)
        self._wait_for_a_request()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._may_write.set()
        self._wait_no_longer()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        with self._refusing_nonsense():
            self._http.receive_data(data)
            if self._task is None:
                self._read()
            elif len(self._http.trailing_data[0]) > self._limits.largest_body:
                self._transport.abort()

    def abort(self) -> asyncio.Task[None] | None:
        """Cuts the connection; the task that still runs, if one does."""
        self._transport.abort()
        return self._task

    def _read(self) -> None:
        """Takes events until a request is whole or more bytes are needed."""
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._head, self._body = event, bytearray()
                if self._http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._limits.largest_body:
                    self._refuse(413)
                    return
            elif isinstance(event, h11.EndOfMessage):
                self._wait_no_longer()
                self._task = asyncio.ensure_future(self._answer())
                return
            else:
                if self._http.their_state in (h11.MUST_CLOSE, h11.CLOSED):
                    self._transport.close()
                return

    async def _answer(self) -> None:
        head = self._head
        assert head is not None  # noqa: S101 (a message ends after its head)
        peer = self._transport.get_extra_info("peername")
        headers = dict(head.headers)
        path, _, query = head.target.decode("ascii", "replace").partition("?")
        request = Request(
            method=head.method.decode("ascii", "replace"),
            path=path,
            body=bytes(self._body),
            peer=peer[0] if peer else "",
            id=headers.get(b"x-request-id", b"").decode("ascii", "replace"),
            takes_gzip=_takes_gzip(headers.get(b"accept-encoding", b"")),
            query=query,
        )
        try:
            await self._write(await self._handler(request))
        except Exception as error:  # noqa: BLE001 (told with its traceback; the client is let go)
            loop, message = asyncio.get_running_loop(), f"{request.method} {request.path} failed"
            loop.call_exception_handler({"message": message, "exception": error})
            self._refuse(500)
            return
        self._task = None
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.MUST_CLOSE:
            self._transport.close()
            return
        with self._refusing_nonsense():
            self._http.start_next_cycle()
            self._wait_for_a_request()
            self._read()

    async def _write(self, response: Response) -> None:
        headers = [("Content-Type", response.content_type), *response.headers.items()]
        if isinstance(response.body, bytes):
            headers.append(("Content-Length", str(len(response.body))))
            self._send(h11.Response(status_code=response.status, headers=headers))
            if self._head is not None and self._head.method != b"HEAD":
                self._send(h11.Data(data=response.body))
        else:
            # No length: h11 sends it in chunks.
            self._send(h11.Response(status_code=response.status, headers=headers))
            async with contextlib.aclosing(response.body) as parts:
                async for part in parts:
                    self._send(h11.Data(data=part))
                    await self._may_write.wait()
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._transport.write(data)

    def _wait_for_a_request(self) -> None:
        if self._limits.idle_seconds is not None:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(self._limits.idle_seconds, self._transport.close)

    def _wait_no_longer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _refuse(self, status: int) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._transport.close()
            return
        headers = [("Content-Length", "0"), ("Connection", "close")]
        self._send(h11.Response(status_code=status, headers=headers))
        self._send(h11.EndOfMessage())
        self._transport.close()

    @contextlib.contextmanager
    def _refusing_nonsense(self) -> Iterator[None]:
        try:
            yield
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)
