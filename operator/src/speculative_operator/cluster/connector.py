"""Connections that ask whether a request may still be sent, and the lines of a watch."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection

from speculative_operator.errors import Unavailable

LONGEST_LINE: Final = 8 * 2**20
"""Bytes of one watch event; etcd stores at most 1.5 MiB per object."""


class AskingConnector(aiohttp.TCPConnector):
    """Asks once more when a connection is there, right before the request is sent.

    Waiting for one may take long, and so may a process that was stopped meanwhile. (aiohttp's
    own hooks for this cost a fifth of each request.)
    """

    def __init__(self, ask: Callable[[], None], *, limit: int) -> None:
        super().__init__(limit=limit)
        self._ask = ask

    async def connect(self, *arguments: Any, **named: Any) -> Connection:
        connection = await super().connect(*arguments, **named)
        try:
            self._ask()
        except Unavailable:
            connection.release()
            raise
        return connection


async def lines_of(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length up to LONGEST_LINE (aiohttp's own reader stops at 128 KiB)."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > LONGEST_LINE:
            raise aiohttp.ClientPayloadError("a watch event is longer than 8 MiB")
