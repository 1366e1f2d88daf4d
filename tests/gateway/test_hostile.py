"""Real Envoy: clients that mean harm get a clear error, and workers never see them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend, cluster, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n"
JSON = b"content-type: application/json\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """A gateway that gives requests little time to arrive."""
    async with aiohttp.ClientSession() as session:
        folder = tmp_path_factory.mktemp("impatient")
        gateway = Gateway(folder, session, headers_seconds=1, request_seconds=2)
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()


async def serving(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))


async def raw(proxy: Gateway, sent: bytes) -> bytes:
    """What comes back for these bytes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(sent)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def listening() -> list[tuple[str, int]]:
    """Addresses, as the kernel writes them, and ports that somebody listens on."""
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [line[1].split(":") for line in table if line[3] == "0A"]
    return [(host, int(port, 16)) for host, port in found]


@pytest.mark.parametrize(
    "headers, expected",
    [
        (b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", b"400"),
        (b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", b"501"),
        (b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", b"501"),
        (b"content-length: +2\r\n\r\n{}", b"400"),
        (b"x-a: b\x00c\r\ncontent-length: 0\r\n\r\n", b"400"),
        (b"x a: b\r\ncontent-length: 0\r\n\r\n", b"400"),
        (b"x-a: %s\r\ncontent-length: 0\r\n\r\n" % (b"a" * 70_000), b"431"),
        (b"".join(b"x-%d: b\r\n" % n for n in range(120)) + b"\r\n", b"431"),
    ],
    ids=[
        "length and chunks",
        "two lengths",
        "two encodings",
        "unknown encoding",
        "signed length",
        "null byte",
        "space in a name",
        "too long",
        "too many",
    ],
)
async def test_requests_that_can_be_read_two_ways_are_refused(
    proxy: Gateway, stable: Backend, headers: bytes, expected: bytes
) -> None:
    await serving(proxy, stable)
    answer = await raw(proxy, HEAD + headers)
    assert answer.split(b" ", 2)[1] == expected, answer
    assert stable.requests == 0
    # The gateway is none the worse for it.
    assert await proxy.answer() == (200, STABLE)


async def test_nothing_is_smuggled_behind_a_request(proxy: Gateway, stable: Backend) -> None:
    await serving(proxy, stable)
    inner = HEAD + JSON + b"content-length: 2\r\n\r\n{}"
    chunked = b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n"
    await raw(proxy, HEAD + b"content-length: %d\r\n" % len(inner) + chunked + inner)
    assert stable.requests == 0


async def test_no_header_commands_envoy_or_names_somebody_else(
    proxy: Gateway, stable: Backend
) -> None:
    await serving(proxy, stable)
    stable.reset_requests = True
    async with proxy.post(
        x_envoy_retry_on="5xx,reset",
        x_envoy_max_retries="5",
        x_envoy_upstream_rq_timeout_ms="1",
        x_envoy_original_path="/admin",
        x_speculative_client="root",
        x_speculative_cost="0",
        x_speculative_revision=STABLE,
    ) as answer:
        assert answer.status == 503
        assert not [name for name in answer.headers if name.lower().startswith("x-envoy")]
    # A retry would have been a second generation.
    (seen,) = stable.headers_seen
    named = {name for name in seen if name.startswith(("x-envoy", "x-speculative"))}
    # That one is Envoy's own: nobody is internal.
    assert named == {"x-envoy-external-address"}


@pytest.mark.parametrize("path", ["/v1/..%2fmetrics", "/v1/..%5Cmetrics", "/v1%2f..%2fmetrics"])
async def test_an_escaped_slash_leads_nowhere_that_a_plain_one_does_not(
    proxy: Gateway, stable: Backend, path: str
) -> None:
    """Engines decode it: what passed as a path under /v1/ would be another one there."""
    await serving(proxy, stable)
    end = b"connection: close\r\n\r\n"
    answer = await raw(proxy, f"GET {path} HTTP/1.1\r\nhost: h\r\n".encode() + end)
    assert b" 404 " in answer.split(b"\r\n")[0]
    assert stable.requests == 0
    # in a model's name, as OpenAI's client sends it, it is a slash
    named = b"GET /v1/models/org%2Fmodel HTTP/1.1\r\nhost: h\r\n"
    assert b'"path": "/v1/models/org/model"' in await raw(proxy, named + end)


async def test_names_with_underscores_reach_no_worker(proxy: Gateway, stable: Backend) -> None:
    await serving(proxy, stable)
    body = b"x_speculative_client: root\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
    assert b" 200 " in await raw(proxy, HEAD + JSON + body)
    (seen,) = stable.headers_seen
    assert not [name for name in seen if "_" in name]


async def test_invalid_text_is_passed_on_as_it_is_and_leaves_the_log_readable(
    proxy: Gateway, stable: Backend
) -> None:
    await serving(proxy, stable)
    strange = b"x-request-id: strange-\xff\xfe\r\nconnection: close\r\n"
    await raw(proxy, HEAD + strange + b'content-length: 5\r\n\r\n{"\xff\xfe}')

    async def log() -> list[str]:
        return [line for line in proxy.log("supervise").splitlines() if "strange-" in line]

    (line,) = await eventually(log, bool, "the line is written")
    assert json.loads(line)["status"] in (400, 500)
    assert await proxy.answer() == (200, STABLE)


async def test_headers_that_never_end_are_given_up(impatient: Gateway, stable: Backend) -> None:
    await serving(impatient, stable)
    assert b" 408 " in await raw(impatient, HEAD + b"x-slow: ")
    assert stable.requests == 0


async def test_a_body_that_never_ends_is_given_up_and_a_long_answer_is_not(
    impatient: Gateway, stable: Backend
) -> None:
    await serving(impatient, stable)
    stable.hold()
    async with impatient.post(stream=True) as answer:
        await answer.content.readline()
        # This takes as long as a request may take to arrive; the answer outlives it.
        assert b" 408 " in await raw(impatient, HEAD + JSON + b"content-length: 100\r\n\r\n{")
        stable.release()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


async def test_a_client_that_vanishes_ends_its_generation(proxy: Gateway, stable: Backend) -> None:
    await serving(proxy, stable)
    stable.hold()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    body = b'{"stream": true}'
    writer.write(HEAD + JSON + b"content-length: %d\r\n\r\n" % len(body) + body)
    await reader.readuntil(b'"event": 0')

    async def generating() -> int:
        return stable.open_streams

    await eventually(generating, lambda count: count == 1, "a generation runs")
    # Without a word: reset, as when a machine is switched off and comes back.
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()
    await eventually(generating, lambda count: count == 0, "the worker stops generating")
    await proxy.until(lambda state: cluster(state, STABLE).active == 0, "none in flight")


async def test_the_admin_port_is_only_the_pod_s_own(proxy: Gateway, stable: Backend) -> None:
    await serving(proxy, stable)
    sockets = listening()
    # 127.0.0.1 and nothing else.
    assert [host for host, port in sockets if port == proxy.admin_port] == ["0100007F"]
    for path in ("/config_dump", "/../config_dump", "/v1/../config_dump", "/v1/%2e%2e/stats"):
        answer = await raw(
            proxy, f"GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".encode()
        )
        assert b" 404 " in answer.split(b"\r\n")[0]
