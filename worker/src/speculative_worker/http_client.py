"""Requests to one HTTP/1.1 server, written and read by h11 over asyncio's streams.

The worker asks its own engine, and in a group the leader, a few times a minute. Used instead of
aiohttp because that alone took a third of a worker's start.
"""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

import h11

if TYPE_CHECKING:
    from ssl import SSLContext

LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one answer; a longer one is cut off with `HttpError`."""
_PIECE: Final = 65536


class HttpError(Exception):
    """No answer, or none that can be read; the message says why."""


class HttpClient:
    """Keeps one connection for the next request, as long as its server does."""

    def __init__(self, host: str, port: int, *, encryption: "SSLContext | None" = None) -> None:
        self._host = host
        self._port = port
        self._encryption = encryption
        self._idle: _Connection | None = None

    async def get(self, path: str, *, seconds: float) -> tuple[int, bytes]:
        """Status and body within this time. Raises `HttpError`."""
        kept, self._idle = self._idle, None
        until = time.monotonic() + seconds
        if kept is not None and kept.is_open:
            try:
                return await self._ask(kept, "GET", path, b"", seconds)
            except HttpError:
                # Its server may close it in this very moment: that is no answer of an engine.
                # Silence is, and is not waited for twice.
                if time.monotonic() >= until:
                    raise
        return await self._ask(None, "GET", path, b"", until - time.monotonic())

    async def post(self, path: str, body: bytes, *, seconds: float) -> tuple[int, bytes]:
        """The same with JSON to send, over a connection of its own: it is never sent twice."""
        return await self._ask(None, "POST", path, body, seconds)

    async def close(self) -> None:
        """Gives the kept connection up."""
        if self._idle is not None:
            await self._idle.closed()

    async def _ask(
        self, kept: "_Connection | None", method: str, path: str, body: bytes, seconds: float
    ) -> tuple[int, bytes]:
        connection = kept
        try:
            async with asyncio.timeout(seconds):
                if connection is None:
                    reader, writer = await asyncio.open_connection(
                        self._host, self._port, ssl=self._encryption
                    )
                    connection = _Connection(reader, writer)
                answer = await connection.ask(self._head(method, path, body), body)
        except (OSError, TimeoutError, h11.ProtocolError) as error:
            raise HttpError(f"{type(error).__name__}: {error}") from error
        else:
            if connection.is_ready_again() and self._idle is None:
                self._idle, connection = connection, None
            return answer
        finally:
            if connection is not None:
                connection.close()

    def _head(self, method: str, path: str, body: bytes) -> h11.Request:
        host = f"[{self._host}]" if ":" in self._host else self._host
        headers = [("Host", f"{host}:{self._port}"), ("Accept", "*/*")]
        if body:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        return h11.Request(method=method, target=path, headers=headers)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def is_ready_again(self) -> bool:
        """Makes ready for the next request, where the server lets us."""
        if (self._http.our_state, self._http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._http.start_next_cycle()
        return self.is_open

    def close(self) -> None:
        self._writer.close()

    async def closed(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def ask(self, head: h11.Request, body: bytes) -> tuple[int, bytes]:
        for said in (head, h11.Data(data=body), h11.EndOfMessage()):
            if data := self._http.send(said):
                self._writer.write(data)
        await self._writer.drain()
        status, found = 0, bytearray()
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                found += event.data
                if len(found) > LARGEST_ANSWER:
                    raise h11.RemoteProtocolError(f"an answer of more than {LARGEST_ANSWER} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return status, bytes(found)
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection was closed without an answer")

    async def _next(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self._reader.read(_PIECE))
