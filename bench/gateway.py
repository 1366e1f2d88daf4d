"""What the gateway costs, beside others, in one run: `python -m bench.gateway [--quick]`.

Direct, through our gateway with keys, limits and log, through vllm-router (from
PyPI, in a virtual environment of its own, without keys or limits) and through a
plain aiohttp proxy. Rounds are interleaved, each beginning with another way, so
that a noisy minute hits all of them. Client, proxy and worker share the machine:
compare within a run, not between machines. Figures go to build/bench-gateway.json.

Per way: milliseconds at 200 requests a second (from the moment a request was due),
the most requests a second over 32 connections, and per second of the proxy's own
CPU; milliseconds to a stream's first byte; resident memory without and with 1,000
open streams. The proxy's CPU and memory are Envoy's alone for ours.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.ending import unwind_on_sigterm
from bench.http_client import Connection, Request, a_request
from bench.proxies import KEY, Way, ways

REPORT = Path("build/bench-gateway.json")
RATE_PER_SECOND = 200
PACED_CONNECTIONS, MOST_CONNECTIONS = 8, 32
STREAMS_OPEN = 1000
_ASKED = {"model": "m", "max_tokens": 64}
CHAT = {**_ASKED, "messages": [{"role": "user", "content": "x" * 600}]}
STREAM = {**_ASKED, "prompt": "x" * 600, "stream": True}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Found:
    """All rounds of one way."""

    latencies: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)

    def report(self) -> dict[str, Any]:
        return {
            "milliseconds_at_200_per_second": _percentiles(self.latencies),
            "most_requests_per_second": round(statistics.median(self.per_second)),
            "requests_per_cpu_second": round(statistics.median(self.per_cpu_second))
            if self.per_cpu_second
            else None,
            "first_byte_milliseconds": _percentiles(self.first_bytes),
            "memory_mib": self.memory or None,
        }


def _percentiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}


async def paced(request: Request, seconds: float) -> list[float]:
    """Latencies in milliseconds, from when each request was due."""
    loop = asyncio.get_running_loop()
    began, latencies = loop.time(), list[float]()
    numbers = iter(range(int(seconds * RATE_PER_SECOND)))

    async def one() -> None:
        async with Connection(request) as connection:
            await connection.whole()
            for number in numbers:
                due = began + 0.1 + number / RATE_PER_SECOND
                await asyncio.sleep(max(0.0, due - loop.time()))
                await connection.whole()
                latencies.append(1000 * (loop.time() - due))

    await asyncio.gather(*(one() for _ in range(PACED_CONNECTIONS)))
    return latencies


async def most(request: Request, seconds: float) -> float:
    """Requests answered per second, as fast as 32 connections go."""
    loop = asyncio.get_running_loop()
    count, began = 0, loop.time()

    async def one() -> None:
        nonlocal count
        async with Connection(request) as connection:
            while loop.time() < began + seconds:
                await connection.whole()
                count += 1

    await asyncio.gather(*(one() for _ in range(MOST_CONNECTIONS)))
    return count / (loop.time() - began)


async def first_bytes(request: Request, count: int) -> list[float]:
    """Milliseconds until a stream's first byte, one stream after the other."""
    found = []
    for _ in range(count):
        async with Connection(request) as connection:
            began = time.perf_counter()
            await connection.first_byte()
            found.append(1000 * (time.perf_counter() - began))
    return found


async def memory(way: Way, request: Request) -> dict[str, float]:
    """Resident MiB before, and with 1,000 streams open."""
    before = _resident_mib(way)
    async with AsyncExitStack() as stack:
        for _ in range(STREAMS_OPEN // 50):
            opened = [await stack.enter_async_context(Connection(request)) for _ in range(50)]
            await asyncio.gather(*(each.first_byte() for each in opened))
        return {"before": before, "with_1000_streams": _resident_mib(way)}


def _resident_mib(way: Way) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in way.pids())
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def _cpu_seconds(way: Way) -> float:
    texts = (Path(f"/proc/{pid}/stat").read_text() for pid in way.pids())
    return sum(sum(map(int, text.rsplit(")", 1)[1].split()[11:13])) for text in texts) / TICKS


async def one_round(way: Way, found: Found, *, seconds: float, streams: int) -> None:
    """Everything about one way but its memory."""
    headers = {"authorization": f"Bearer {KEY}"} if way.name == "our gateway" else {}
    whole = a_request(way.port, "/v1/chat/completions", json.dumps(CHAT).encode(), **headers)
    stream = a_request(way.port, "/v1/completions", json.dumps(STREAM).encode(), **headers)
    found.latencies += await paced(whole, seconds)
    cpu = _cpu_seconds(way)
    rate = await most(whole, seconds)
    found.per_second.append(rate)
    if used := _cpu_seconds(way) - cpu:
        found.per_cpu_second.append(rate * seconds / used)
    found.first_bytes += await first_bytes(stream, streams)


async def measured(
    folder: Path, *, rounds: int, seconds: float, streams: int, router: bool
) -> dict[str, Found]:
    """Interleaved rounds over all ways, then memory."""
    async with ways(folder, router=router) as all_ways:
        found = {way.name: Found() for way in all_ways}
        for number in range(rounds):
            turn = number % len(all_ways)
            for way in all_ways[turn:] + all_ways[:turn]:
                print(f"round {number + 1} of {rounds}: {way.name}", flush=True)
                await one_round(way, found[way.name], seconds=seconds, streams=streams)
        for way in all_ways:
            if way.pids():
                headers = {"authorization": f"Bearer {KEY}"} if way.name == "our gateway" else {}
                body = json.dumps(STREAM).encode()
                stream = a_request(way.port, "/v1/completions", body, **headers)
                found[way.name].memory = await memory(way, stream)
        return found


def _table(found: dict[str, Found]) -> str:
    lines = [
        "| | p50 | p99 | added p99 | max req/s | req per CPU s | first byte | MiB, 1,000 streams |",
        "|---|---|---|---|---|---|---|---|",
    ]
    base = found["direct"].report()["milliseconds_at_200_per_second"]["p99"]
    for name, each in found.items():
        said = each.report()
        paced_ = said["milliseconds_at_200_per_second"]
        kept = (said["memory_mib"] or {}).get("with_1000_streams", "")
        lines.append(
            f"| {name} | {paced_['p50']} | {paced_['p99']} | {paced_['p99'] - base:.2f} | "
            f"{said['most_requests_per_second']} | {said['requests_per_cpu_second'] or ''} | "
            f"{said['first_byte_milliseconds']['p50']} | {kept} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the table and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--without-router", action="store_true", help="installs nothing")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    load = os.getloadavg()
    size: dict[str, Any] = {"rounds": 2, "seconds": 3.0, "streams": 30}
    if not arguments.quick:
        size = {"rounds": 8, "seconds": 10.0, "streams": 100}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        router = not arguments.without_router
        found = asyncio.run(measured(Path(folder), router=router, **size))
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": {"before": load, "after": os.getloadavg()},
        "size": size,
        "ways": {name: each.report() for name, each in found.items()},
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")
    print(_table(found))


if __name__ == "__main__":
    unwind_on_sigterm()
    main()
