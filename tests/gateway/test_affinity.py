"""Real Envoy: one session, one revision; a growing weight only adds sessions."""

import asyncio

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

SESSIONS = 1000
AT_ONCE = 8


async def at_weight(proxy: Gateway, weight: int, salt: str = "first") -> None:
    """A canary with this weight, sessions being named by `x-session-id`."""
    affinity = gateway.Affinity(header="x-session-id", salt=salt)
    await proxy.route(backend(STABLE, 100 - weight), backend(CANARY, weight), affinity=affinity)


async def revision_of(proxy: Gateway, **headers: str) -> str:
    async with proxy.post(**headers) as answer:
        await answer.read()
        assert answer.status == 200
        return str(answer.headers["x-speculative-revision"])


async def on_the_canary(proxy: Gateway, sessions: range) -> set[int]:
    """The sessions that the canary answers; each is asked once."""
    waiting = iter(sessions)
    found = set()

    async def client() -> None:
        for session in waiting:
            if await revision_of(proxy, x_session_id=f"user-{session}") == CANARY:
                found.add(session)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return found


@pytest.fixture(autouse=True)
def both(proxy: Gateway, stable: Backend, canary: Backend) -> None:
    """Both revisions are ready."""
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})


async def test_all_requests_of_a_session_go_to_one_revision(proxy: Gateway) -> None:
    await at_weight(proxy, 50)
    for session in ("user-1", "user-2", "user-3"):
        seen = {await revision_of(proxy, x_session_id=session) for _ in range(200)}
        assert len(seen) == 1


async def test_sessions_are_split_by_weight_and_stay_while_it_grows(proxy: Gateway) -> None:
    await at_weight(proxy, 5)
    few = await on_the_canary(proxy, range(SESSIONS))
    await at_weight(proxy, 20)
    more = await on_the_canary(proxy, range(SESSIONS))
    # 20 percent of 1000, give or take three standard deviations.
    assert 160 <= len(more) <= 240
    assert 20 <= len(few) <= 80
    assert few <= more
    await at_weight(proxy, 100)
    assert await on_the_canary(proxy, range(100)) == set(range(100))


async def test_another_salt_chooses_other_sessions(proxy: Gateway) -> None:
    await at_weight(proxy, 50, salt="first")
    first = await on_the_canary(proxy, range(200))
    await at_weight(proxy, 50, salt="second")
    second = await on_the_canary(proxy, range(200))
    # Half of the half: independent choices.
    assert 25 <= len(first & second) <= 75


async def test_requests_without_a_session_are_split_by_chance(proxy: Gateway) -> None:
    await at_weight(proxy, 50)
    assert {await revision_of(proxy) for _ in range(60)} == {STABLE, CANARY}
