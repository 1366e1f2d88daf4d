"""The ways that `bench.gateway` compares: each a running program on loopback.

The worker is an Envoy that answers whole requests by itself and passes streams on
to a small server, which sends one event and then holds still.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import envoy
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend
from tests.ports import free_port

from speculative_api import gateway

ROUTER_VERSION = "0.1.17"
ROUTER_FOLDER = Path("build/bench-vllm-router")
KEY = "a-key-for-measuring"
ANSWER = json.dumps({"choices": [{"message": {"content": "x" * 400}}]})
STARTING_SECONDS = 180.0

STREAMS = """
import asyncio, sys
from aiohttp import web
async def stream(request):
    await request.read()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'data: {"choices": []}\\n\\n')
    await asyncio.Event().wait()
application = web.Application()
application.router.add_post("/v1/completions", stream)
web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
"""
PLAIN_PROXY = """
import sys
import aiohttp
from aiohttp import web
async def passed_on(request):
    session = request.app["session"]
    url = f"http://127.0.0.1:{sys.argv[2]}{request.path_qs}"
    kind = {"content-type": request.headers.get("content-type", "")}
    body = await request.read()
    async with session.request(request.method, url, data=body, headers=kind) as found:
        response = web.StreamResponse(status=found.status)
        response.content_type = found.content_type
        await response.prepare(request)
        async for chunk in found.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response
async def sessions(application):
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        application["session"] = session
        yield
application = web.Application()
application.cleanup_ctx.append(sessions)
application.router.add_route("*", "/{path:.*}", passed_on)
web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
"""
"""What anybody would write in a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the worker; `pids` are its processes, none for the direct one."""

    name: str
    port: int
    pids: Callable[[], list[int]] = field(default=list)


@asynccontextmanager
async def ways(folder: Path, *, router: bool) -> AsyncIterator[list[Way]]:
    """All of them, running; `router` installs vllm-router in a virtual environment of its own."""
    async with AsyncExitStack() as stack:
        worker = await a_worker(stack, folder)
        found = [Way("direct", worker), await _ours(stack, folder, worker)]
        if router:
            found.append(await _router(stack, folder, worker))
        port = free_port()
        program = [sys.executable, "-c", PLAIN_PROXY, str(port), str(worker)]
        plain = await start(stack, folder, "aiohttp", program, port)
        found.append(Way("aiohttp proxy", port, lambda: [plain]))
        yield found


async def a_worker(stack: AsyncExitStack, folder: Path, *, streams: str = STREAMS) -> int:
    """An Envoy that answers, in front of the program `streams`; its port."""
    port, behind = free_port(), free_port()
    program = [sys.executable, "-c", streams, str(behind)]
    await start(stack, folder, "streams", program, behind)
    path = folder / "worker.json"
    path.write_text(json.dumps(_worker_configuration(port, behind)))
    binary = Path(envoy.__file__).parent / "_bin" / "envoy"
    program = [str(binary), "-c", str(path), "--concurrency", "1", "--disable-hot-restart"]
    await start(stack, folder, "worker", program, port)
    return port


def _worker_configuration(port: int, streams: int) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.filters."
    answer = {"status": 200, "body": {"inline_string": ANSWER}}
    manager = {
        "@type": kind + "network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "worker",
        "stream_idle_timeout": "0s",
        "http_filters": [
            {
                # An answer before the request's end would cost the connection.
                "name": "envoy.filters.http.buffer",
                "typed_config": {
                    "@type": kind + "http.buffer.v3.Buffer",
                    "max_request_bytes": 1_048_576,
                },
            },
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": kind + "http.router.v3.Router"},
            },
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"path": "/v1/completions"},
                            "route": {"cluster": "streams", "timeout": "0s"},
                        },
                        {"match": {"prefix": "/"}, "direct_response": answer},
                    ],
                }
            ]
        },
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "static_resources": {
            "listeners": [{"address": _address(port), "filter_chains": [{"filters": filters}]}],
            "clusters": [
                {
                    "name": "streams",
                    "type": "STATIC",
                    "connect_timeout": "2s",
                    "circuit_breakers": {
                        "thresholds": [
                            {"max_connections": 9999, "max_requests": 9999},
                        ]
                    },
                    "load_assignment": {
                        "cluster_name": "streams",
                        "endpoints": [
                            {"lb_endpoints": [{"endpoint": {"address": _address(streams)}}]}
                        ],
                    },
                }
            ],
        }
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


async def _ours(stack: AsyncExitStack, folder: Path, worker: int) -> Way:
    """Our gateway: keys, both limits per key, and the access log, into a file."""
    session = await stack.enter_async_context(aiohttp.ClientSession())
    ours = Gateway(folder, session)
    ours.keys(bench=KEY)
    await ours.start()
    stack.push_async_callback(ours.stop)
    ours.endpoints(**{STABLE: [Backend("worker", port=worker)]})
    await ours.route(
        backend(STABLE, 100),
        schema_version=2,
        auth=gateway.Auth(api_keys_secret="keys"),  # noqa: S106
        rate_limit=gateway.RateLimit(
            requests_per_minute_per_key=1_000_000, tokens_per_minute_per_key=1_000_000_000
        ),
    )
    await ours.until(
        lambda state: any(each.endpoints for each in state.clusters), "the worker is healthy"
    )
    return Way("our gateway", ours.port, lambda: [ours.envoy_pid()])


async def _router(stack: AsyncExitStack, folder: Path, worker: int) -> Way:
    program = ROUTER_FOLDER / "bin" / "vllm-router"
    if not await asyncio.to_thread(program.exists):
        await asyncio.to_thread(_install_router)
    port, metrics = free_port(), free_port()
    arguments = [
        *(str(program), "--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"),
        *("--worker-urls", f"http://127.0.0.1:{worker}"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)),
        *("--log-level", "error"),
    ]
    pid = await start(stack, folder, "vllm-router", arguments, port)
    return Way("vllm-router", port, lambda: [pid])


def _install_router() -> None:
    subprocess.run([sys.executable, "-m", "venv", str(ROUTER_FOLDER)], check=True)  # noqa: S603
    package = f"vllm-router=={ROUTER_VERSION}"
    pip = str(ROUTER_FOLDER / "bin" / "pip")
    subprocess.run([pip, "install", "--quiet", package], check=True)  # noqa: S603


async def start(
    stack: AsyncExitStack, folder: Path, name: str, program: list[str], port: int
) -> int:
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *program, env=os.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    async def ended() -> None:
        if process.returncode is None:
            process.kill()
            await process.wait()

    stack.push_async_callback(ended)
    async with asyncio.timeout(STARTING_SECONDS):
        while not await _answers(port):
            if process.returncode is not None:
                raise RuntimeError(f"{name} ended: see {folder / name}.log")
            await asyncio.sleep(0.05)
    return process.pid


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
