"""A simulated engine of several pods: they meet at the leader before it loads, and end together.

What a real one does through NCCL, reduced to a connection from each follower to
the leader. Whoever leaves ends the others.
"""

import asyncio
import signal
import sys
from typing import Final

from speculative_worker.group import Node

_RETRY_SECONDS: Final = 0.2


class Meeting:
    """The leader's side: who has come, and whether one has left."""

    def __init__(self, others: int, port: int) -> None:
        self.complete, self.left = asyncio.Event(), asyncio.Event()
        self._port = port
        self._others = others
        self._ranks: set[bytes] = set()
        self._guests: list[tuple[asyncio.StreamWriter, asyncio.Task[None] | None]] = []
        self._server: asyncio.Server | None = None

    async def start(self, host: str | None) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._meet, host, self._port)

    async def close(self) -> None:
        """Ends every connection, and with them the followers."""
        if self._server is not None:
            self._server.close()
            for writer, _ in self._guests:
                writer.close()
            # Else the end of the loop cancels them, which asyncio takes for a failure.
            await asyncio.gather(*(task for _, task in self._guests if task is not None))
            await self._server.wait_closed()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests.append((writer, asyncio.current_task()))
        try:
            rank = await reader.readline()
            self._ranks.add(rank)
            if len(self._ranks) == self._others:
                self.complete.set()
            await reader.read()
            self.left.set()
        except ConnectionError:
            self.left.set()
        finally:
            writer.close()


async def follow(node: Node, port: int) -> int:
    """The follower's side: until SIGTERM (0), or until the leader has ended (1)."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    stopped = asyncio.create_task(stop.wait())
    with_leader = asyncio.create_task(_beside_leader(node, port))
    await asyncio.wait({stopped, with_leader}, return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        with_leader.cancel()
        return 0
    stopped.cancel()
    print("RuntimeError: the leader of the group has ended", file=sys.stderr, flush=True)
    return 1


async def _beside_leader(node: Node, port: int) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection(node.leader, port)
            break
        except OSError:
            await asyncio.sleep(_RETRY_SECONDS)
    print(f"simulated engine: rank {node.rank} has met its leader", flush=True)
    try:
        writer.write(f"{node.rank}\n".encode())
        await writer.drain()
        await reader.read()
    except ConnectionError:
        return
    finally:
        writer.close()
