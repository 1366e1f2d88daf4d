"""Real Envoy: only who has a key gets in, and the key stays where it is."""

import json
import stat

import aiohttp
import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import NATIVE, STABLE, Gateway, backend, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ALICE, BOB = "alice-secret-key-1", "bob-secret-key-2"
WITH_KEYS = {"schema_version": 2, "auth": gateway.Auth(api_keys_secret="chat-keys")}


async def status_with(proxy: Gateway, **headers: str) -> int:
    async with proxy.post(**headers) as answer:
        await answer.read()
        return int(answer.status)


async def guarded(proxy: Gateway, stable: Backend) -> None:
    """Alice and Bob may come in."""
    proxy.keys(alice=ALICE, bob=BOB + "\n")
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), **WITH_KEYS)


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong-secret-key"}, 401),
        ({"x_speculative_client": "alice"}, 401),
        ({"Authorization": f"Bearer {ALICE}"}, 200),
        ({"x_api_key": BOB}, 200),
    ],
    ids=["no key", "wrong key", "forged client", "bearer", "x-api-key"],
)
async def test_only_a_known_key_gets_in(
    proxy: Gateway, stable: Backend, headers: dict[str, str], expected: int
) -> None:
    await guarded(proxy, stable)
    assert await status_with(proxy, **headers) == expected
    assert stable.requests == (expected == 200)


async def test_a_refusal_has_the_shape_of_an_openai_error(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    async with proxy.post() as answer:
        error = (await answer.json())["error"]
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert "Authorization: Bearer" in error["message"]


async def test_the_worker_sees_the_client_and_no_key(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    headers = {"Authorization": f"Bearer {ALICE}", "x_api_key": BOB, "x_speculative_client": "bob"}
    assert await status_with(proxy, **headers) == 200
    (seen,) = stable.headers_seen
    assert seen["x-speculative-client"] == "alice"
    assert not {"authorization", "x-api-key"} & seen.keys()


async def test_without_auth_a_header_passes_and_a_client_names_nobody(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    headers = {"Authorization": "Bearer mine", "x_speculative_client": "alice"}
    assert await status_with(proxy, **headers) == 200
    (seen,) = stable.headers_seen
    assert seen["authorization"] == "Bearer mine"
    assert "x-speculative-client" not in seen


async def test_a_rotation_reaches_kept_alive_connections(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    new = "alice-secret-key-3"
    one = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=one) as session:

        async def status(key: str) -> int:
            async with session.post(
                f"http://127.0.0.1:{proxy.port}/v1/chat/completions",
                json={},
                headers={"x-api-key": key},
            ) as answer:
                await answer.read()
                return answer.status

        assert await status(ALICE) == 200
        proxy.keys(alice=ALICE, alice_new=new)
        await eventually(lambda: status(new), lambda seen: seen == 200, "the new key gets in")
        assert await status(ALICE) == 200
        proxy.keys(alice_new=new)
        await eventually(lambda: status(ALICE), lambda seen: seen == 401, "the old key is refused")
        assert await status(new) == 200


async def test_without_keys_nobody_gets_in_and_the_gateway_is_not_ready(
    proxy: Gateway, stable: Backend
) -> None:
    await guarded(proxy, stable)
    proxy.keys()
    state = await proxy.until(lambda state: not state.ready, "not ready")
    assert "Secret chat-keys has no usable key" in state.error
    assert await proxy.status_of("/readyz") == 503
    assert await status_with(proxy, x_api_key=ALICE) == 401
    assert await status_with(proxy, x_api_key="") == 401
    proxy.keys(alice=ALICE)
    await proxy.until(lambda state: state.ready and not state.error, "ready again")
    assert await status_with(proxy, x_api_key=ALICE) == 200


async def test_a_bad_entry_is_named_and_the_others_work(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    proxy.keys(alice=ALICE, short="abc", twin=ALICE)
    state = await proxy.until(lambda state: "short" in state.error, "the entry is named")
    assert state.ready
    assert "API key twin equals alice" in state.error
    assert "abc" not in state.error
    assert await status_with(proxy, x_api_key=ALICE) == 200


async def test_lanes_ask_for_a_key_too(proxy: Gateway, stable: Backend) -> None:
    await guarded(proxy, stable)
    proxy.endpoints(**{STABLE: [stable], NATIVE: [stable]})
    await proxy.route(backend(STABLE, 100), native=backend(NATIVE), **WITH_KEYS)
    assert await status_with(proxy, x_speculative_lane="native") == 401
    assert await status_with(proxy, x_speculative_lane="native", x_api_key=BOB) == 200


async def test_a_key_is_nowhere_but_in_files_that_only_the_owner_reads(
    proxy: Gateway, stable: Backend
) -> None:
    await guarded(proxy, stable)
    await status_with(proxy, x_api_key=ALICE, x_request_id="of-alice")

    async def log() -> str:
        return proxy.log("supervise")

    text = await eventually(log, lambda text: "of-alice" in text, "the line is written")
    line = next(json.loads(each) for each in text.splitlines() if "of-alice" in each)
    assert line["client"] == "alice"
    shown = [text, proxy.log("agent")]
    for port, path in (
        (proxy.admin_port, "/config_dump"),
        (proxy.admin_port, "/config_dump?include_eds"),
        (proxy.agent_port, "/state"),
        (proxy.agent_port, "/metrics"),
    ):
        async with proxy.session.get(f"http://127.0.0.1:{port}{path}") as answer:
            shown.append(await answer.text())
    assert "chat-keys" not in shown[2]
    assert not [each for each in shown if ALICE in each or BOB in each]
    holding = [path for path in (proxy.folder / "run").rglob("*.json") if ALICE in path.read_text()]
    assert [path.name for path in holding] == ["rds.json"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600
