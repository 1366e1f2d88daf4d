"""The worker's small HTTP server and client, against each other, aiohttp and raw bytes."""

import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from speculative_worker.http_client import HttpClient, HttpError
from speculative_worker.http_server import HttpServer, Response, json_response


async def echo(request):
    if request.path == "/broken":
        raise ValueError("the handler's own fault")
    return json_response({"path": request.path, "body": request.body.decode()})


@contextlib.asynccontextmanager
async def a_server(handler=echo, **limits):
    server = HttpServer(handler, **limits)
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def raw(port):
    """A connection that says whatever it likes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def a_client(port):
    client = HttpClient("127.0.0.1", port)
    try:
        yield client
    finally:
        await client.close()


async def test_a_head_is_answered_without_a_body_and_the_connection_serves_on():
    async with (
        a_server() as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        async with session.head("/x") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
            assert int(answer.headers["Content-Length"]) > 0
        async with session.get("/x") as answer:
            assert (await answer.json())["path"] == "/x"


async def test_a_handler_that_fails_closes_the_connection_and_is_told():
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with a_server() as port, raw(port) as (reader, writer):
        writer.write(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 500 ")
    assert [str(each["exception"]) for each in told] == ["the handler's own fault"]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHos"], ids=["nothing", "half a head"])
async def test_a_client_that_asks_nothing_whole_is_let_go(sent):
    async with a_server(idle_seconds=0.05) as port, raw(port) as (reader, writer):
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 5) == b""


async def test_a_slow_answer_is_no_idle_connection():
    async def slow(request):
        await asyncio.sleep(0.1)
        return Response(body=b"late")

    async with a_server(slow, idle_seconds=0.02) as port, a_client(port) as client:
        assert await client.get("/", seconds=5) == (200, b"late")


async def test_a_larger_body_than_is_taken_is_refused():
    async with a_server(largest_body=10) as port, a_client(port) as client:
        assert (await client.post("/", b"x" * 10, seconds=5))[0] == 200
        assert (await client.post("/", b"x" * 11, seconds=5))[0] == 413


async def test_answers_in_pieces_by_length_and_to_the_end_are_read():
    async def chunked(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        for part in (b"a" * 100_000, b"b"):
            await answer.write(part)
        return answer

    async def last(_):
        return web.Response(body=b"c" * 100_000, headers={"Connection": "close"})

    application = web.Application()
    application.router.add_get("/chunked", chunked)
    application.router.add_get("/last", last)
    async with TestServer(application) as server, a_client(server.port) as client:
        assert await client.get("/chunked", seconds=5) == (200, b"a" * 100_000 + b"b")
        assert await client.get("/last", seconds=5) == (200, b"c" * 100_000)
        assert (await client.get("/none", seconds=5))[0] == 404


async def test_a_connection_is_kept_for_the_next_look():
    peers = []

    async def note(request):
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response()

    application = web.Application()
    application.router.add_get("/", note)
    async with TestServer(application) as server, a_client(server.port) as client:
        for _ in range(3):
            await client.get("/", seconds=5)
    assert len(peers) == 3
    assert len(set(peers)) == 1


@contextlib.asynccontextmanager
async def a_listener(serve):
    """A server of raw bytes; closes what `serve` leaves open."""
    serving = []

    async def whole(reader, writer):
        serving.append(asyncio.current_task())
        await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(whole, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*serving)


async def test_a_kept_connection_that_its_server_drops_is_replaced_for_a_look():
    """The second request on each connection is met by its end, as with a server that tidies up."""

    async def once(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")

    async with a_listener(once) as port, a_client(port) as client:
        for _ in range(3):
            assert await client.get("/", seconds=5) == (200, b"ok")


async def test_silence_on_a_kept_connection_is_waited_for_once():
    connections = []

    async def once(reader, writer):
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()

    async with a_listener(once) as port, a_client(port) as client:
        await client.get("/", seconds=5)
        with pytest.raises(HttpError, match="TimeoutError"):
            await client.get("/", seconds=0.05)
    assert len(connections) == 1


@pytest.mark.parametrize(
    "answer, why",
    [
        (b"", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "RemoteProtocolError"),
        (b"nonsense\r\n\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, "RemoteProtocolError"),
    ],
    ids=["nothing", "half", "nonsense", "endless head"],
)
async def test_what_is_no_answer_is_an_error(answer, why):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with a_listener(serve) as port, a_client(port) as client:
        with pytest.raises(HttpError, match=why):
            await client.get("/", seconds=5)


async def test_silence_and_closed_doors_are_errors():
    async def serve(reader, writer):
        await reader.read()

    async with a_listener(serve) as port, a_client(port) as client:
        with pytest.raises(HttpError, match="TimeoutError"):
            await client.get("/", seconds=0.05)
    async with a_client(port) as client:
        with pytest.raises(HttpError, match="ConnectionRefusedError"):
            await client.post("/", b"{}", seconds=5)


@pytest.mark.parametrize(
    "accepted, taken",
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=1.0", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("", False),
    ],
)
async def test_a_client_says_whether_it_takes_gzip(accepted, taken):
    seen = []

    async def note(request):
        seen.append(request.takes_gzip)
        return Response()

    async with a_server(note) as port, raw(port) as (reader, writer):
        writer.write(f"GET / HTTP/1.0\r\nAccept-Encoding: {accepted}\r\n\r\n".encode())
        await asyncio.wait_for(reader.read(), 5)
    assert seen == [taken]
