"""HTTP over plain connections, as little as a measurement needs: no pool, no retry, no parser.

A whole client costs more than the proxies that are to be compared.
"""

import asyncio
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Request:
    """Where to, and the bytes that are sent each time."""

    port: int
    payload: bytes


def a_request(port: int, path: str, body: bytes, **headers: str) -> Request:
    """A POST of JSON to loopback."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return Request(port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


class Connection:
    """One kept-alive connection; `async with` closes it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._request.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def whole(self) -> None:
        """One request and its whole answer.

        Raises:
            ValueError: the answer is no 200.
        """
        head = await self._head()
        length = _header(head, b"content-length")
        if length is not None:
            await self._reader.readexactly(int(length))
            return
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await self._reader.readexactly(size + 2)
        await self._reader.readuntil(b"\r\n")

    async def first_byte(self) -> None:
        """One request, until the first bytes of the body; the rest is left where it is."""
        await self._head()
        if not await self._reader.read(1):
            raise ValueError("the answer ended before its first byte")

    async def _head(self) -> bytes:
        self._writer.write(self._request.payload)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise ValueError(head.decode(errors="replace"))
        return head.lower()


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n"):
        if line.startswith(name + b":"):
            return line.split(b":", 1)[1].strip()
    return None
