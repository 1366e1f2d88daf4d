"""Real Envoy: only the allowed addresses get in, and a header moves nobody."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

HERE, ELSEWHERE = "127.0.0.0/8", "198.51.100.0/24"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """A gateway that trusts one proxy in front."""
    async with aiohttp.ClientSession() as session:
        folder = tmp_path_factory.mktemp("proxied")
        gateway = Gateway(folder, session, trusted_proxy_hops=1)
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()


async def status(proxy: Gateway, forwarded: str | None = None) -> int:
    headers = {"x_forwarded_for": forwarded} if forwarded else {}
    async with proxy.post(**headers) as answer:
        if answer.status == 403:
            error = (await answer.json())["error"]
            assert error["code"] == "forbidden"
        return int(answer.status)


@pytest.mark.parametrize(
    "cidrs, expected",
    [((), 200), ((HERE,), 200), ((ELSEWHERE, HERE), 200), ((ELSEWHERE,), 403), (("::1/128",), 403)],
    ids=["no list", "in", "in the second", "not in", "another family"],
)
async def test_only_the_allowed_get_in(
    proxy: Gateway, stable: Backend, cidrs: tuple[str, ...], expected: int
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), schema_version=3, allowed_cidrs=cidrs)
    assert await status(proxy) == expected
    assert stable.requests == (expected == 200)


async def test_a_claimed_address_is_not_believed(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), schema_version=3, allowed_cidrs=(ELSEWHERE,))
    assert await status(proxy, forwarded="198.51.100.7") == 403


@pytest.mark.parametrize(
    "forwarded, expected",
    [
        ("198.51.100.7", 200),
        ("203.0.113.9", 403),
        # What the client itself wrote stands before what the proxy added.
        ("198.51.100.7, 203.0.113.9", 403),
        ("203.0.113.9, 198.51.100.7", 200),
    ],
)
async def test_behind_a_trusted_proxy_its_word_counts(
    behind_a_proxy: Gateway, stable: Backend, forwarded: str, expected: int
) -> None:
    gateway = behind_a_proxy
    gateway.endpoints(**{STABLE: [stable]})
    await gateway.route(backend(STABLE, 100), schema_version=3, allowed_cidrs=(ELSEWHERE,))
    assert await status(gateway, forwarded) == expected


async def test_an_impossible_range_is_refused_and_the_last_route_stays(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    proxy.ask(backend(STABLE, 100), schema_version=3, allowed_cidrs=("10.0.0.1/8",))
    state = await proxy.until(lambda state: state.error != "", "an error is reported")
    assert "allowedCidrs: 10.0.0.1/8 has host bits set" in state.error
    assert await proxy.answer() == (200, STABLE)
