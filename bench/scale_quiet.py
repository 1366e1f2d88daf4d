"""What an operator does while little happens: parts of `bench.scale`, after its burst."""

import asyncio
import statistics
import time

from bench.operator_process import Operator, until

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import SERVICE_ACCOUNT

IDLE_SECONDS = 30.0
EVENTS = 21


async def idle(operator: Operator) -> dict[str, float]:
    """An unchanged world for a while, once nothing was written for 5 s."""
    quiet_since, last = time.monotonic(), operator.writes()
    while time.monotonic() - quiet_since < 5.0:
        await asyncio.sleep(0.5)
        if (now := operator.writes()) != last:
            quiet_since, last = time.monotonic(), now
    return await _for_a_while(operator) | {"rss_mib": operator.rss_mib()}


async def idle_with_a_standby(operator: Operator, standby: Operator) -> dict[str, float]:
    """The same with a second operator, once its caches are filled; what both do, and the second."""

    async def is_ready() -> bool:
        return standby.is_ready()

    await until(is_ready)
    holder, other = await asyncio.gather(_for_a_while(operator), _for_a_while(standby))
    sums = {name: holder[name] + other[name] for name in holder}
    return sums | {f"standby_{name}": figure for name, figure in other.items()}


async def _for_a_while(operator: Operator) -> dict[str, float]:
    writes, reads, cpu = operator.writes(), operator.reads(), operator.cpu_seconds()
    began = time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    return {
        "writes": operator.writes() - writes,
        "reads_per_second": (operator.reads() - reads) / seconds,
        "cpu_percent": 100 * (operator.cpu_seconds() - cpu) / seconds,
    }


async def events(client: Client) -> dict[str, float]:
    """Somebody deletes a child: milliseconds from when that is seen until its successor is.

    Both by a watch of ours, as the operator's own: the pass, and one request, are in between.
    """
    names = [f"r{number}-gateway" for number in range(EVENTS + 1)]
    _, version = await client.list_all(SERVICE_ACCOUNT, "operated")
    seen: dict[tuple[str, str], asyncio.Future[float]] = {
        (kind, name): asyncio.get_running_loop().create_future()
        for kind in ("DELETED", "ADDED")
        for name in names
    }

    async def follow() -> None:
        async for kind, thing in client.watch(
            SERVICE_ACCOUNT, "operated", resource_version=version
        ):
            moment = seen.get((kind, thing["metadata"].get("name", "")))
            if moment is not None and not moment.done():
                moment.set_result(time.monotonic())

    watching, found = asyncio.create_task(follow()), []
    try:
        for name in names:
            live = await client.get(SERVICE_ACCOUNT, "operated", name)
            await client.delete(SERVICE_ACCOUNT, live)
            ended = await seen["DELETED", name]
            found.append(1000 * (await seen["ADDED", name] - ended))
    finally:
        watching.cancel()
    # The first one may be told late: the watch had just begun.
    return {
        "p50_ms": statistics.median(found[1:]),
        "max_ms": max(found[1:]),
        "count": len(found) - 1,
    }
