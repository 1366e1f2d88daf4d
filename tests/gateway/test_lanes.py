"""Real Envoy, fake workers: lanes by rule, and every OpenAI path on its way through."""

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import NATIVE, STABLE, Gateway, backend

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

RULES = (
    gateway.LaneRule(lane="native", path="/v1/embeddings"),
    gateway.LaneRule(
        lane="accelerated", header=gateway.HeaderMatch(name="X-Tier", value="gold"), model="chat"
    ),
    gateway.LaneRule(lane="native", header=gateway.HeaderMatch(name="X-Tier", value="gold")),
    gateway.LaneRule(lane="native", model="plain"),
)

CASES = [
    ("/v1/embeddings", {}, "native"),
    ("/v1/embeddings/batch", {}, "native"),
    ("/v1/embeddings?user=1", {}, "native"),
    ("/v1/embeddingsX", {}, "stable"),
    ("/v1/chat/completions", {}, "stable"),
    ("/v1/chat/completions", {"x-tier": "gold"}, "native"),
    ("/v1/chat/completions", {"x-tier": "gold", "x-model": "chat"}, "stable"),
    ("/v1/chat/completions", {"x-model": "plain"}, "native"),
    ("/v1/chat/completions", {"x-model": "plainer"}, "stable"),
    # Who names a lane gets it, whatever the rules say.
    ("/v1/chat/completions", {"x-speculative-lane": "native"}, "native"),
    ("/v1/embeddings", {"x-speculative-lane": "accelerated"}, "stable"),
]


async def lane(proxy: Gateway, path: str, **headers: str) -> str:
    url = f"http://127.0.0.1:{proxy.port}{path}"
    async with proxy.session.post(url, json={"model": "plain"}, headers=headers) as answer:
        assert answer.status == 200
        found: str = (await answer.json())["backend"]
        return found


async def test_the_first_rule_that_holds_decides(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    canary.name = "native"
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    await proxy.route(backend(STABLE, 100), native=backend(NATIVE), lane_rules=RULES)
    found = [(path, headers, await lane(proxy, path, **headers)) for path, headers, _ in CASES]
    assert found == CASES


async def test_a_rule_to_a_lane_that_is_not_there_yet_waits(
    proxy: Gateway, stable: Backend
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), lane_rules=RULES)
    assert await lane(proxy, "/v1/embeddings") == "stable"


async def test_a_share_goes_to_native_by_chance(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    canary.name = "native"
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    half = (gateway.LaneRule(lane="native", percent=50),)
    await proxy.route(backend(STABLE, 100), native=backend(NATIVE), lane_rules=half)
    found = [await lane(proxy, "/v1/completions") for _ in range(200)]
    # Beyond five standard deviations only once in millions of runs.
    assert 64 <= found.count("native") <= 136
    everything = (gateway.LaneRule(lane="native", percent=100),)
    await proxy.route(backend(STABLE, 100), native=backend(NATIVE), lane_rules=everything)
    assert {await lane(proxy, "/v1/completions") for _ in range(20)} == {"native"}


async def test_native_takes_a_part_of_the_accelerated_lane_and_stays_a_lane(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    canary.name = "native"
    proxy.endpoints(**{STABLE: [stable], NATIVE: [canary]})
    for weight in (0, 50, 100):
        shared = (backend(STABLE, 100 - weight), backend(NATIVE, weight))
        await proxy.route(*shared, native=backend(NATIVE))
        found = [await lane(proxy, "/v1/completions") for _ in range(100)]
        assert 0.2 * weight <= found.count("native") <= 100 - 0.2 * (100 - weight)
        named = await lane(proxy, "/v1/completions", **{"x-speculative-lane": "native"})
        assert named == "native"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/llama?x=1"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/embeddings"),
    ],
)
async def test_every_openai_path_arrives_as_it_was_sent(
    proxy: Gateway, stable: Backend, method: str, path: str
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    body = '{"model": "m", "input": "\u00e9"}' if method == "POST" else ""
    async with proxy.session.request(
        method, f"http://127.0.0.1:{proxy.port}{path}", data=body or None
    ) as answer:
        assert answer.status == 200
        arrived = {"backend": "stable", "method": method, "path": path, "body": body}
        assert await answer.json() == arrived
        assert answer.headers["x-speculative-revision"] == STABLE


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("chat.example.com", 200),
        ("CHAT.example.com:8080", 200),
        ("a.b.wild.example.com", 200),
        ("wild.example.com", 404),
        ("example.com", 404),
        ("127.0.0.1", 404),
    ],
)
async def test_only_named_hosts_are_served(
    proxy: Gateway, stable: Backend, host: str, status: int
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), hosts=("chat.example.com", "*.wild.example.com"))
    async with proxy.post(Host=host) as answer:
        assert answer.status == status
        if status == 404:
            assert "host name is not served" in (await answer.json())["error"]["message"]


async def test_an_unknown_host_is_not_asked_for_a_key(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    proxy.keys(alice="alices-secret-key")
    await proxy.route(
        backend(STABLE, 100),
        hosts=("chat.example.com",),
        schema_version=2,
        auth=gateway.Auth(api_keys_secret="chat-keys"),
    )
    async with proxy.post(Host="chat.example.com") as answer:
        assert answer.status == 401
    async with proxy.post(Host="elsewhere.example.com") as answer:
        assert answer.status == 404
    assert stable.requests == 0
