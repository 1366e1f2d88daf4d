"""What each part of the gateway costs: `python -m bench.gateway_filters [--quick]`.

One Envoy per variant, each the shipped configuration without one part, all of them
running at once; rounds are interleaved, each beginning with another variant. Counted
is Envoy's own CPU time per request, whole answers and streams of 64 events, which
the load of other processes hardly moves. A part's cost is what goes with it.
Figures go to build/bench-gateway-filters.json.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import envoy
from bench.ending import unwind_on_sigterm
from bench.gateway import CHAT, STREAM
from bench.http_client import Connection, Request, a_request
from bench.proxies import KEY, a_worker, start
from tests.gateway.harness import STABLE, backend
from tests.ports import free_port

from speculative_api import gateway
from speculative_gateway import bootstrap, configuration, policies
from speculative_gateway.concurrency import ANSWERS
from speculative_gateway.keys import Keys
from speculative_gateway.render import Endpoint, rendered
from speculative_gateway.settings import Settings

REPORT = Path("build/bench-gateway-filters.json")
EVENTS = 64
WHOLE_A_ROUND, STREAMS_A_ROUND = 64, 16
CONNECTIONS = 8
EVENT_STREAMS = f"""
import asyncio, sys
from aiohttp import web
EVENT = b'data: {{"choices": [{{"index": 0, "text": " word", "finish_reason": null}}]}}\\n\\n'
LAST = b'data: {{"choices": [], "usage": {{"prompt_tokens": 9, "completion_tokens": {EVENTS}}}}}'
async def ready(request):
    return web.Response()
async def stream(request):
    await request.read()
    response = web.StreamResponse(headers={{"content-type": "text/event-stream"}})
    await response.prepare(request)
    for _ in range({EVENTS} - 2):
        await response.write(EVENT)
        await asyncio.sleep(0)
    await response.write(LAST + b'\\n\\ndata: [DONE]\\n\\n')
    await response.write_eof()
    return response
application = web.Application()
application.router.add_get("/readyz", ready)
application.router.add_post("/v1/completions", stream)
web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
"""

Parts = dict[str, Any]
"""The two places a part may be in: `manager` of the listener and `host` of the route."""


def _without_filters(*names: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        kept = [each for each in parts["manager"]["http_filters"] if each["name"] not in names]
        parts["manager"]["http_filters"] = kept
        for name in names:
            parts["host"]["typed_per_filter_config"].pop(name, None)

    return change


def _without_settings(name: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        parts["host"]["typed_per_filter_config"].pop(name)

    return change


def _without(part: str, *names: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        for name in names:
            parts[part].pop(name, None)

    return change


def _without_loggers(kind: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        loggers = parts["manager"]["access_log"]
        parts["manager"]["access_log"] = [each for each in loggers if each["name"] != kind]

    return change


def _all_of(*changes: Callable[[Parts], None]) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        for each in changes:
            each(parts)

    return change


def _told_nothing(parts: Parts) -> None:
    for entry in parts["host"]["routes"]:
        entry.pop("response_headers_to_add", None)
        weighted = entry.get("route", {}).get("weighted_clusters", {})
        for each in weighted.get("clusters", []):
            each.pop("response_headers_to_add", None)


_LIMITS = (policies.REQUEST_LIMIT, policies.COST, policies.CHARGE_LIMIT, ANSWERS)
VARIANTS: dict[str, Callable[[Parts], None]] = {
    "everything": lambda parts: None,
    "addresses": _without_filters(policies.ADDRESSES),
    "API keys": _without_filters(policies.API_KEYS),
    "requests per minute": _without_filters(policies.REQUEST_LIMIT),
    "requests at a time": _without_settings(ANSWERS),
    "tokens per minute": _all_of(
        _without_filters(policies.COST, policies.CHARGE_LIMIT),
        _without("host", "request_body_buffer_limit"),
    ),
    "requests at a time, counted tokens": _without_filters(ANSWERS),
    "log lines": _without_loggers("envoy.access_loggers.stdout"),
    "figures": _without_loggers("envoy.access_loggers.stats"),
    "forged headers": _without("manager", "early_header_mutation_extensions"),
    "own answers": _without("manager", "local_reply_config"),
    "revision headers": _told_nothing,
    "all of them": _all_of(
        _without_filters(policies.ADDRESSES, policies.API_KEYS, configuration.TOKENS),
        _without_filters(policies.BODY_LIMIT, *_LIMITS),
        _without("host", "request_body_buffer_limit"),
        _without("manager", "access_log", "early_header_mutation_extensions", "local_reply_config"),
        _told_nothing,
    ),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One running Envoy."""

    port: int
    pid: int


def _cpu_seconds(pid: int) -> float:
    """Of all threads, with the scheduler's resolution of nanoseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


async def _used(variant: Variant, request: Request, *, requests: int) -> float:
    """CPU microseconds of Envoy per request, over kept-alive connections."""
    numbers = iter(range(requests))

    async def one() -> None:
        async with Connection(request) as connection:
            await connection.whole()
            for _ in numbers:
                await connection.whole()

    before = _cpu_seconds(variant.pid)
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return 1e6 * (_cpu_seconds(variant.pid) - before) / (requests + CONNECTIONS)


def _files(folder: Path, endpoint: int, change: Callable[[Parts], None]) -> tuple[Path, int]:
    """The variant's files; its bootstrap and its port."""
    settings = Settings(
        folder, gateway_port=free_port(), admin_port=free_port(), listen_address="127.0.0.1"
    )
    route = gateway.Route(
        schema_version=2,
        owner_uid="uid",
        sequence=1,
        model="m",
        backends=(backend(STABLE, 100),),
        auth=gateway.Auth(api_keys_secret="keys"),  # noqa: S106
        rate_limit=gateway.RateLimit(
            requests_per_minute_per_key=1_000_000,
            tokens_per_minute_per_key=1_000_000_000,
            concurrent_requests_per_key=1000,
        ),
    )
    endpoints = {STABLE: (Endpoint("127.0.0.1", endpoint, endpoint),)}
    keys = Keys({"bench": KEY})
    wanted = rendered(route, endpoints, folder=settings.xds, keys=keys)
    static, listener = bootstrap.bootstrap(settings), bootstrap.listener(settings)
    manager = listener["resources"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    change({"manager": manager, "host": wanted.routes["virtual_hosts"][0]})
    settings.xds.mkdir(parents=True)
    texts = {**configuration.files(wanted), bootstrap.LDS_FILE: json.dumps(listener)}
    for name, text in texts.items():
        (settings.xds / name).write_text(text)
    path = folder / "bootstrap.json"
    path.write_text(json.dumps(static))
    return path, settings.gateway_port


@asynccontextmanager
async def variants(folder: Path) -> AsyncIterator[dict[str, Variant]]:
    """All of them, running in front of one worker."""
    async with AsyncExitStack() as stack:
        endpoint = await a_worker(stack, folder, streams=EVENT_STREAMS)
        found = {}
        binary = str(Path(envoy.__file__).parent / "_bin" / "envoy")
        for number, (name, change) in enumerate(VARIANTS.items()):
            path, port = _files(folder / str(number), endpoint, change)
            program = [
                *(binary, "-c", str(path), "--concurrency", "1", "--log-level", "warning"),
                *("--file-flush-interval-msec", "1000", "--disable-hot-restart"),
                *("--service-node", "bench", "--service-cluster", "bench"),
            ]
            pid = await start(stack, folder, f"variant-{number}", program, port)
            found[name] = Variant(port, pid)
        yield found


@dataclass
class Found:
    """CPU microseconds per request, by round."""

    whole: list[float] = field(default_factory=list)
    streamed: list[float] = field(default_factory=list)


async def measured(folder: Path, *, rounds: int) -> dict[str, Found]:
    """Many short rounds over all variants."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with variants(folder) as running:
        found = {name: Found() for name in running}
        for number in range(-1, rounds):
            for name, each in running.items():
                body = json.dumps(CHAT).encode()
                whole = a_request(each.port, "/v1/chat/completions", body, **headers)
                body = json.dumps(STREAM).encode()
                stream = a_request(each.port, "/v1/completions", body, **headers)
                used = await _used(each, whole, requests=WHOLE_A_ROUND)
                used_by_streams = await _used(each, stream, requests=STREAMS_A_ROUND)
                # The first round is for warming up.
                if number >= 0:
                    found[name].whole.append(used)
                    found[name].streamed.append(used_by_streams)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        return found


def report(found: dict[str, Found]) -> dict[str, dict[str, float]]:
    """The lower tenth of the rounds, and what is less without a part.

    Neighbours on the machine cool caches and only ever add, so low is near the truth.
    """
    full = found["everything"]

    def low(values: list[float]) -> float:
        return statistics.quantiles(values, n=10, method="inclusive")[0]

    return {
        name: {
            "microseconds": round(low(each.whole), 1),
            "its_part": round(low(full.whole) - low(each.whole), 1),
            "stream_microseconds": round(low(each.streamed), 1),
            "stream_its_part": round(low(full.streamed) - low(each.streamed), 1),
        }
        for name, each in found.items()
    }


def _table(rows: dict[str, dict[str, float]]) -> str:
    lines = [
        f"| without | CPU µs a request | its part | CPU µs a stream of {EVENTS} | its part |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        shown = "nothing (all is on)" if name == "everything" else name
        lines.append(f"| {shown} | " + " | ".join(str(value) for value in row.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the table and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    size = {"rounds": 25}
    if not parser.parse_args().quick:
        size = {"rounds": 80}
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found = asyncio.run(measured(Path(folder), **size))
    rows = report(found)
    said = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": {"before": load, "after": os.getloadavg()},
        "size": size,
        "without": rows,
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    print(_table(rows))


if __name__ == "__main__":
    unwind_on_sigterm()
    main()
