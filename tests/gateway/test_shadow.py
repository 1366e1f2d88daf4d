"""Real Envoy: copies for a canary without users; nobody sees their answers, and they have a cap."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, NATIVE, STABLE, Gateway, backend, cluster, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ROOM = 1000


def shadow(percent: int, most: int = ROOM) -> gateway.Shadow:
    """Copies for the canary."""
    return gateway.Shadow(hash=CANARY, percent=percent, most_requests=most)


async def shadowing(
    proxy: Gateway, stable: Backend, canary: Backend, percent: int = 100, most: int = ROOM
) -> gateway.ShadowState:
    """A route under which the canary gets copies; what they were counted at before."""
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    state = await proxy.route(backend(STABLE, 100), backend(CANARY), shadow=shadow(percent, most))
    found = copies(state)
    assert found.percent == percent
    return found


def copies(state: gateway.GatewayState) -> gateway.ShadowState:
    """What the state says about the canary's copies, of which it is no part otherwise."""
    canary = cluster(state, CANARY)
    assert canary.shadow is not None
    assert (canary.weight, sum(canary.responses.values()), canary.active) == (0, 0, 0)
    return canary.shadow


async def until_copies(
    proxy: Gateway, before: gateway.ShadowState, what: str, **grown: int
) -> gateway.ShadowState:
    """Waits until exactly so many more were counted; answers by class, `skipped` and `cut`."""

    def growth(state: gateway.GatewayState) -> dict[str, int]:
        now = copies(state)
        return {
            name: value
            for name, value in {
                **{k: n - before.responses[k] for k, n in now.responses.items()},
                "skipped": now.skipped - before.skipped,
                "cut": now.cut - before.cut,
                "active": now.active,
            }.items()
            if value
        }

    wanted = {name.removeprefix("of_"): value for name, value in grown.items()}
    return copies(await proxy.until(lambda state: growth(state) == wanted, what))


async def test_half_of_the_requests_are_copied_and_counted_at_both_ends(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    before = await shadowing(proxy, stable, canary, percent=50)
    answers = [await proxy.answer() for _ in range(200)]
    assert answers == [(200, STABLE)] * 200
    assert stable.requests == 200

    def is_counted(state: gateway.GatewayState) -> bool:
        now = copies(state)
        return now.responses["2xx"] - before.responses["2xx"] == canary.requests and not now.active

    state = await proxy.until(is_counted, "each copy counted")
    # 100 expected; five standard deviations.
    assert 65 <= canary.requests <= 135
    assert copies(state).responses == {"2xx": copies(state).responses["2xx"]} | dict.fromkeys(
        ("3xx", "4xx", "5xx"), 0
    )
    assert cluster(state, STABLE).shadow is None


async def test_a_copy_is_marked_and_carries_no_key(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.keys(bob="bobs-key")
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    await proxy.route(
        *(backend(STABLE, 100), backend(CANARY)),
        shadow=shadow(100),
        schema_version=2,
        auth=gateway.Auth(api_keys_secret="keys"),
        rate_limit=gateway.RateLimit(
            requests_per_minute_per_key=6, tokens_per_minute_per_key=60_000
        ),
    )
    statuses = []
    for _ in range(7):
        async with proxy.post(authorization="Bearer bobs-key", x_api_key="bobs-key") as answer:
            statuses.append(answer.status)
    # Copies take nothing of a key's limits: the seventh is the first too many.
    assert statuses == [200] * 6 + [429]

    async def copied() -> int:
        return canary.requests

    await eventually(copied, lambda count: count == 6, "six copies")
    original, copy = stable.headers_seen[-1], canary.headers_seen[-1]
    assert copy["host"] == original["host"].replace(":", "-shadow:")
    ours = {"host", "x-envoy-internal", "x-forwarded-for"}
    assert {k: v for k, v in copy.items() if k not in ours}.keys() == original.keys() - ours
    assert "bobs-key" not in str(copy)
    # One line each: when that of a later request is there, all are.
    await (await proxy.session.get(f"http://127.0.0.1:{proxy.port}/last")).read()

    async def log() -> str:
        return proxy.log("supervise")

    lines = await eventually(log, lambda text: '"path":"/last"' in text, "the last line")
    assert [lines.count(f'"{each["x-request-id"]}"') for each in canary.headers_seen] == [1] * 6


async def test_another_percentage_leaves_the_buckets_of_the_limits_alone(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.keys(bob="bobs-key")
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    limited = {
        "schema_version": 2,
        "auth": gateway.Auth(api_keys_secret="keys"),
        "rate_limit": gateway.RateLimit(requests_per_minute_per_key=2),
    }

    async def statuses() -> list[int]:
        found = []
        for _ in range(2):
            async with proxy.post(authorization="Bearer bobs-key") as answer:
                found.append(answer.status)
        return found

    await proxy.route(backend(STABLE, 100), backend(CANARY), shadow=shadow(0), **limited)
    assert await statuses() == [200, 200]
    for percent in (100, 0):
        state = await proxy.route(
            backend(STABLE, 100), backend(CANARY), shadow=shadow(percent), **limited
        )
        assert copies(state).percent == percent
        assert await statuses() == [429, 429]


async def test_copies_beyond_the_cap_are_not_made_and_are_no_error(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    before = await shadowing(proxy, stable, canary, most=3)
    canary.hold_headers()
    # The canary hangs, and nobody notices.
    assert [await proxy.answer() for _ in range(10)] == [(200, STABLE)] * 10
    await until_copies(proxy, before, "three hang", of_skipped=7, of_active=3)
    assert (canary.requests, stable.requests) == (3, 10)
    canary.release()
    await until_copies(proxy, before, "three answered", of_2xx=3, of_skipped=7)


async def test_failures_of_copies_are_the_canary_s_and_no_user_s(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    before = await shadowing(proxy, stable, canary)
    canary.status = 500
    assert [await proxy.answer() for _ in range(3)] == [(200, STABLE)] * 3
    await until_copies(proxy, before, "three errors", of_5xx=3)
    canary.kill()
    await proxy.until(lambda state: cluster(state, CANARY).endpoints == 0, "no endpoint")
    assert await proxy.answer() == (200, STABLE)
    await until_copies(proxy, before, "nobody there", of_5xx=4)


async def test_a_copy_that_breaks_off_counts_once_before_its_answer_and_once_within(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    before = await shadowing(proxy, stable, canary)
    canary.reset_requests = True
    assert [await proxy.answer() for _ in range(2)] == [(200, STABLE)] * 2
    await until_copies(proxy, before, "two without an answer", of_5xx=2)
    canary.reset_requests, canary.reset_streams = False, True
    canary.hold()
    assert (await proxy.answer_stream()).endswith(b"data: [DONE]\n\n")
    await until_copies(proxy, before, "one has begun", of_5xx=2, of_2xx=1, of_active=1)
    canary.release()
    await until_copies(proxy, before, "and is cut", of_5xx=2, of_2xx=1, of_cut=1)


@asynccontextmanager
async def deaf() -> AsyncIterator[Backend]:
    """A worker that answers its probe, and reads nothing of any other request's body."""
    begun: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.append(writer)
        while (await reader.readline()).startswith(b"GET /readyz"):
            while await reader.readline() not in (b"\r\n", b""):
                pass
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()

    # A small limit: what is not asked for stays in the sender's hands.
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
    try:
        yield Backend("deaf", port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in begun:
            writer.transport.abort()


async def test_a_canary_that_reads_no_body_holds_no_upload_back(
    proxy: Gateway, stable: Backend
) -> None:
    async with deaf() as canary:
        before = await shadowing(proxy, stable, canary)
        url, body = f"http://127.0.0.1:{proxy.port}/v1/embeddings", io.BytesIO(bytes(30_000_000))
        async with asyncio.timeout(30), proxy.session.post(url, data=body) as answer:
            assert answer.status == 200
        await until_copies(proxy, before, "its copy still hangs", of_active=1)


async def test_a_client_that_vanishes_does_not_end_the_copy(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    before = await shadowing(proxy, stable, canary)
    stable.hold()
    canary.hold()
    answer = await proxy.post(stream=True)
    await answer.content.readline()

    async def streams() -> tuple[int, int]:
        return stable.open_streams, canary.open_streams

    await eventually(streams, lambda seen: seen == (1, 1), "both generate")
    answer.close()
    await eventually(streams, lambda seen: seen == (0, 1), "only the copy goes on")
    canary.release()
    await until_copies(proxy, before, "and is answered to its end", of_2xx=1)
    assert canary.requests == 1


async def test_only_the_accelerated_lane_is_copied(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary], NATIVE: [stable]})
    await proxy.route(
        *(backend(STABLE, 100), backend(CANARY)),
        shadow=shadow(100),
        native=backend(NATIVE),
        lane_rules=(gateway.LaneRule(lane="native", path="/v1/chat"),),
    )
    async with proxy.post(x_speculative_lane="native") as answer:
        assert answer.headers["x-speculative-revision"] == NATIVE
    async with proxy.post() as answer:
        assert answer.headers["x-speculative-revision"] == NATIVE
    async with proxy.post(x_speculative_lane="accelerated") as answer:
        assert answer.headers["x-speculative-revision"] == STABLE

    async def copied() -> int:
        return canary.requests

    await eventually(copied, lambda count: count == 1, "the one of three")


async def test_copies_end_in_order_and_an_open_one_is_seen(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    before = await shadowing(proxy, stable, canary)
    canary.hold()
    assert (await proxy.answer_stream()).endswith(b"data: [DONE]\n\n")
    await until_copies(proxy, before, "one is open", of_2xx=1, of_active=1)
    state = await proxy.route(backend(STABLE, 100), backend(CANARY), shadow=shadow(0))
    assert (copies(state).percent, copies(state).active) == (0, 1)
    await asyncio.gather(*(proxy.answer() for _ in range(20)))
    assert canary.requests == 1
    canary.release()
    await until_copies(proxy, before, "it has ended", of_2xx=1)
    state = await proxy.route(backend(STABLE, 100), backend(CANARY))
    assert cluster(state, CANARY).shadow is None


async def test_users_come_after_the_copies_without_an_error(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    await shadowing(proxy, stable, canary)
    answers: list[tuple[int, str]] = []

    async def client() -> None:
        while len(answers) < 300:
            answers.append(await proxy.answer())

    async def operator() -> None:
        await proxy.route(backend(STABLE, 100), backend(CANARY), shadow=shadow(0))
        await proxy.route(backend(STABLE, 50), backend(CANARY, 50), shadow=shadow(0))
        await proxy.route(backend(CANARY, 100), backend(STABLE))

    await asyncio.gather(client(), client(), operator())
    assert {status for status, _ in answers} == {200}
    assert {revision for _, revision in answers} == {STABLE, CANARY}
