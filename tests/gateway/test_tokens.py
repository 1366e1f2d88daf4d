"""Real Envoy: only tokens of the issuer get in, and its keys change without a restart."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, eventually

from speculative_api import gateway
from speculative_gateway.tokens import key_set

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

ISSUER, AUDIENCE = "https://issuer.example", "chat"


@dataclass
class Issuer:
    """Signs tokens, and serves its public keys once `uri` is set."""

    keys: dict[str, ec.EllipticCurvePrivateKey] = field(default_factory=dict)
    uri: str = ""
    away: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def key(self, name: str) -> None:
        self.keys[name] = ec.generate_private_key(ec.SECP256R1())

    def token(self, key: str = "one", **claims: Any) -> str:
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, self.keys[key], algorithm="ES256", headers={"kid": key})

    def public(self) -> str:
        shown = [
            {
                **jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True),
                "kid": name,
                "alg": "ES256",
            }
            for name, key in self.keys.items()
        ]
        return json.dumps({"keys": shown})

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.set()
        await self.answers.wait()
        return web.Response(text=self.public(), status=503 if self.away else 200)


@asynccontextmanager
async def an_issuer() -> AsyncIterator[Issuer]:
    """One with an address, that answers nobody until it is told to."""
    found = Issuer()
    found.key("one")
    application = web.Application()
    application.router.add_get("/keys", found.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.uri = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    try:
        yield found
    finally:
        found.answers.set()
        await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="module")
async def issuer() -> AsyncIterator[Issuer]:
    async with an_issuer() as found:
        found.answers.set()
        yield found


def fields(issuer: Issuer, *, mounted: bool = False, **more: Any) -> dict[str, Any]:
    """Of a route that asks for tokens."""
    source = {"jwks_config_map": "keys"} if mounted else {"jwks_uri": issuer.uri}
    asked = gateway.Jwt(issuer=ISSUER, audiences=(AUDIENCE, "other"), **source)
    return {"schema_version": 3, "auth": gateway.Auth(jwt=asked), **more}


async def guarded(proxy: Gateway, stable: Backend, issuer: Issuer, **more: Any) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100), **fields(issuer, **more))
    # Until an issuer's keys were fetched for the first time everybody is refused: 403.
    await eventually(lambda: status(proxy, ""), lambda found: found == 401, "tokens are read")


async def status(proxy: Gateway, token: str, **headers: str) -> int:
    async with proxy.post(authorization=f"Bearer {token}", **headers) as answer:
        await answer.read()
        return int(answer.status)


async def test_only_good_tokens_get_in(proxy: Gateway, stable: Backend, issuer: Issuer) -> None:
    await guarded(proxy, stable, issuer)
    stranger = Issuer()
    stranger.key("one")
    unsigned = jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "exp": 2**40}, None, algorithm="none")
    cases = [
        (issuer.token(), 200),
        (issuer.token(aud=["x", "other"]), 200),
        (issuer.token(aud="x"), 403),
        (issuer.token(aud=None), 403),
        (issuer.token(exp=time.time() - 600), 401),
        (issuer.token(exp=None), 401),
        (issuer.token(nbf=time.time() + 600), 401),
        (issuer.token(iss="https://somebody.example"), 401),
        (stranger.token(), 401),
        (issuer.token()[:-6] + "AAAAAA", 401),
        (unsigned, 401),
        ("", 401),
    ]
    assert [await status(proxy, token) for token, _ in cases] == [code for _, code in cases]
    assert stable.requests == 2
    async with proxy.session.post(
        f"http://127.0.0.1:{proxy.port}/v1/chat/completions?access_token={issuer.token()}", json={}
    ) as answer:
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


async def test_the_worker_sees_the_client_and_no_token(
    proxy: Gateway, stable: Backend, issuer: Issuer
) -> None:
    await guarded(proxy, stable, issuer)
    request = {"x_request_id": "by-token", "x_speculative_client": "root"}
    assert await status(proxy, issuer.token(sub="team-a"), **request) == 200
    (seen,) = stable.headers_seen
    assert seen["x-speculative-client"] == "team-a"
    assert "authorization" not in seen

    async def log() -> list[str]:
        return [line for line in proxy.log("supervise").splitlines() if "by-token" in line]

    (line,) = await eventually(log, bool, "the line is written")
    assert json.loads(line)["client"] == "team-a"


async def test_new_keys_are_taken_and_old_ones_dropped_with_a_config_map(
    proxy: Gateway, stable: Backend, issuer: Issuer, canary: Backend
) -> None:
    folder = proxy.folder / "key-set"
    folder.mkdir(exist_ok=True)

    def mount() -> None:
        (folder / ".new").write_text(issuer.public())
        (folder / ".new").replace(folder / "jwks.json")

    mount()
    limit = {"rate_limit": gateway.RateLimit(requests_per_minute_per_key=1)}
    await guarded(proxy, stable, issuer, mounted=True, **limit)
    old = issuer.token()
    assert [await status(proxy, old), await status(proxy, old)] == [200, 429]
    issuer.key("two")
    mount()
    new = issuer.token("two", sub="bob")
    await eventually(lambda: status(proxy, new), lambda seen: seen == 200, "the new key counts")
    # What alice has used up is not refilled by it, and she is still let in.
    assert await status(proxy, old) == 429
    del issuer.keys["one"]
    mount()
    await eventually(lambda: status(proxy, old), lambda seen: seen == 401, "the old key is out")


async def test_another_address_for_keys_refuses_nobody_while_they_are_fetched(
    proxy: Gateway, stable: Backend, issuer: Issuer
) -> None:
    await guarded(proxy, stable, issuer)
    async with an_issuer() as other:
        await proxy.route(backend(STABLE, 100), **fields(other))
        await asyncio.wait_for(other.asked.wait(), 30)
        assert await status(proxy, issuer.token()) == 200
        assert await proxy.status_of("/readyz") == 200
        other.answers.set()
        await eventually(lambda: status(proxy, other.token()), lambda seen: seen == 200, "new in")
        assert await status(proxy, issuer.token()) == 401


async def test_an_issuer_that_is_away_changes_nothing_not_even_for_the_next_agent(
    proxy: Gateway, stable: Backend, issuer: Issuer
) -> None:
    await guarded(proxy, stable, issuer)
    token = issuer.token()
    assert await status(proxy, token) == 200
    issuer.away = True
    assert proxy.agent is not None
    proxy.agent.kill()
    await proxy.agent.wait()
    await proxy.start_agent()
    await proxy.until(lambda state: state.ready and "status 503" in state.error, "it says so")
    assert await status(proxy, token) == 200


async def test_without_keys_nobody_gets_in_and_the_gateway_is_not_ready(
    proxy: Gateway, stable: Backend, issuer: Issuer
) -> None:
    issuer.uri += "-nowhere"
    proxy.endpoints(**{STABLE: [stable]})
    proxy.ask(backend(STABLE, 100), **fields(issuer))
    await proxy.until(lambda state: not state.ready and "status 404" in state.error, "it says so")
    assert await status(proxy, issuer.token()) == 403
    assert stable.requests == 0


async def test_each_client_has_its_own_measure(
    proxy: Gateway, stable: Backend, issuer: Issuer, canary: Backend
) -> None:
    limit = {"rate_limit": gateway.RateLimit(requests_per_minute_per_key=2)}
    await guarded(proxy, stable, issuer, **limit)
    for client in ("alice", "bob"):
        token = issuer.token(sub=client)
        assert [await status(proxy, token) for _ in range(3)] == [200, 200, 429]
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})


@pytest.mark.parametrize(
    "text, problem",
    [
        ("{", "it is not JSON of the form"),
        ('{"keys": 3}', "it is not JSON of the form"),
        ('{"keys": []}', "it has no key of kind RSA, EC, OKP"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "it has no key of kind"),
        ("[" * 100_000, "it is not JSON of the form"),
        (" " * 300_000, "it is longer than 262144 bytes"),
    ],
)
async def test_what_is_no_public_key_set_is_refused(text: str, problem: str) -> None:
    found = key_set(text)
    assert found.text == ""
    assert problem in found.problem
    assert "c2VjcmV0" not in found.problem


async def test_private_parts_are_left_out() -> None:
    found = key_set('{"keys": [{"kty": "EC", "x": "1", "y": "2", "d": "c2VjcmV0"}]}')
    assert json.loads(found.text) == {"keys": [{"kty": "EC", "x": "1", "y": "2"}]}
