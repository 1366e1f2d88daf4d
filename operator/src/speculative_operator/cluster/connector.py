"""Connections that ask whether a request may still be sent, and the lines of a watch."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from speculative_operator.errors import Unavailable

LONGEST_LINE: Final = 8 * 2**20
"""Bytes of one watch event; etcd stores at most 1.5 MiB per object."""
FAREWELL_SECONDS: Final = 2.0
"""For so long at most closing waits for the other side's end of TLS."""


class AskingConnector(aiohttp.TCPConnector):
    """Asks once more when a connection is there, right before the request is sent.

    Waiting for one may take long, and so may a process that was stopped meanwhile. (aiohttp's
    own hooks for this cost a fifth of each request.)
    """

    def __init__(self, ask: Callable[[], None], *, limit: int) -> None:
        super().__init__(limit=limit)
        self._ask = ask
        self._made: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, *arguments: Any, **named: Any) -> Connection:
        connection = await super().connect(*arguments, **named)
        if connection.protocol is not None:
            self._made.add(connection.protocol)
        try:
            self._ask()
        except Unavailable:
            connection.release()
            raise
        return connection

    async def ended(self) -> None:
        """Waits until no connection is open any more, once all are being closed.

        aiohttp's own close waits for those in use, not for the watches that were cut off
        right before: they would end after the loop does, with their sockets left open.
        """
        open_ones = [future for each in self._made if (future := each.closed) is not None]
        if open_ones:
            ended, _ = await asyncio.wait(open_ones, timeout=FAREWELL_SECONDS)
            for each in ended:
                # How one ended is nobody's concern any more; asyncio complains where nobody asks.
                each.cancelled() or each.exception()


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
