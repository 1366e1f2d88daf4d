"""Real Envoy: a body beyond the limit is refused, said beforehand or not."""

import io
from collections.abc import AsyncIterator

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

LIMIT = 100_000


def a_body(size: int) -> bytes:
    """JSON of exactly this many bytes."""
    frame = b'{"prompt": "%s"}'
    return frame % (b"a" * (size - len(frame) + 2))


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """A body whose length is not said beforehand."""
    for start in range(0, len(body), 16_384):
        yield body[start : start + 16_384]


async def send(proxy: Gateway, data: object) -> tuple[int, str]:
    """Status and body of the answer."""
    async with proxy.session.post(
        f"http://127.0.0.1:{proxy.port}/v1/chat/completions", data=data
    ) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("chunked", [False, True], ids=["length said", "length not said"])
async def test_up_to_the_limit_is_let_in_and_beyond_is_413(
    proxy: Gateway, stable: Backend, chunked: bool
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), max_request_body_bytes=LIMIT)

    def data(size: int) -> object:
        body = a_body(size)
        assert len(body) == size
        return in_pieces(body) if chunked else io.BytesIO(body)

    assert (await send(proxy, data(LIMIT)))[0] == 200
    status, text = await send(proxy, data(LIMIT + 1))
    assert status == 413
    assert '"type":"invalid_request_error"' in text.replace(" ", "")
    # The one beyond never became a generation.
    assert stable.requests == 1


async def test_without_a_limit_there_is_none(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    assert (await send(proxy, io.BytesIO(a_body(LIMIT + 1))))[0] == 200
