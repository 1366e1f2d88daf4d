"""Real Envoy: at a shared gateway each member lets in whom it says, and as often."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import aiohttp
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec
from tests.gateway.backends import Backend, running
from tests.gateway.harness import CANARY, STABLE, Gateway, a_gateway, eventually

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

MEMBERS = ("chat", "code", "free")
CHAT_KEY, CODE_KEY, ALICE_AT_CODE = "alices-key-for-chat", "carols-key-for-code", "alices-for-code"
COMPLETIONS = "/v1/chat/completions"
AT_CHAT, AT_CODE, AT_FREE = (f"/{name}{COMPLETIONS}" for name in MEMBERS)
CHAT = gateway.Access(auth=gateway.Auth(api_keys_secret="chat-keys"))
CODE = gateway.Access(auth=gateway.Auth(api_keys_secret="code-keys"))


@dataclass
class Edge:
    """The gateway, a worker of each member, and its keys as they are mounted."""

    gateway: Gateway
    workers: dict[str, Backend]

    def keys(self, secret: str, **clients: str) -> None:
        self.gateway.mount(f"keys/{secret}", clients)

    async def ask(self, path: str, method: str = "POST", **headers: str) -> aiohttp.ClientResponse:
        url = f"http://127.0.0.1:{self.gateway.port}{path}"
        said = [(name.replace("_", "-"), value) for name, value in headers.items()]
        body = {"max_tokens": 1} if method == "POST" else None
        async with self.gateway.session.request(method, url, json=body, headers=said) as answer:
            await answer.read()
            return answer

    async def status(self, path: str, key: str = "", **headers: str) -> int:
        known = {"x_api_key": key} if key else {}
        return (await self.ask(path, **known, **headers)).status

    async def share(self, **accesses: gateway.Access) -> None:
        """What members say, until it is in force; one without a word lets in everybody."""
        hosts = {"code.example.com": "code"}
        self.gateway.share(*MEMBERS, hosts=hosts, accesses=accesses)
        wanted = {name: accesses.get(name, gateway.Access()) for name in MEMBERS}

        async def used() -> dict[str, gateway.Access]:
            kept = json.loads((self.gateway.folder / "run" / "applied.json").read_text())
            return {n: gateway.Access.model_validate(it) for n, it in kept["accesses"].items()}

        await eventually(used, lambda seen: seen == wanted, "it is in force")
        await self.gateway.until_all_threads_follow()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_edge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with a_gateway(
        tmp_path_factory.mktemp("edge"),
        shared_gateway="edge",
        secrets=("chat-keys", "code-keys"),
    ) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def edge(running_edge: Gateway) -> AsyncIterator[Edge]:
    """With both Secrets good, and nobody asked for a key yet."""
    async with running("chat") as a, running("code") as b, running("free") as c:
        found = Edge(running_edge, {each.name: each for each in (a, b, c)})
        found.keys("chat-keys", alice=CHAT_KEY)
        found.keys("code-keys", carol=CODE_KEY, alice=ALICE_AT_CODE)
        running_edge.share(*MEMBERS)
        running_edge.endpoints(**{f"{n}-{STABLE}": [w] for n, w in found.workers.items()})
        for name in MEMBERS:
            backend = gateway.Backend(hash=STABLE, service=f"{name}-{STABLE}", weight=100)
            await running_edge.member(name, backend)
        yield found
        for each in found.workers.values():
            each.release()


async def test_a_key_is_good_for_its_member_alone_whatever_else_a_request_says(edge: Edge) -> None:
    await edge.share(chat=CHAT, code=CODE)
    at_code = {"host": "code.example.com"}
    cases: list[tuple[str, str, dict[str, str], int]] = [
        (AT_CHAT, CHAT_KEY, {}, 200),
        (AT_CODE, CODE_KEY, {}, 200),
        (COMPLETIONS, CODE_KEY, at_code, 200),
        (COMPLETIONS, CHAT_KEY, {"x_model": "chat"}, 200),
        (AT_FREE, "", {}, 200),
        # what is no key here is nobody's matter where none is asked for
        (AT_FREE, CHAT_KEY, {}, 200),
        (AT_CHAT, CODE_KEY, {}, 401),
        (AT_CODE, CHAT_KEY, {}, 401),
        (AT_CODE, "", {}, 401),
        # the way that is taken decides: the path, then the host, then the header
        (AT_CODE, CHAT_KEY, {"x_model": "chat"}, 401),
        (AT_CHAT, CHAT_KEY, {**at_code, "x_model": "code"}, 200),
        (AT_CODE, "", {"x_model": "free"}, 401),
        (COMPLETIONS, CHAT_KEY, {**at_code, "x_model": "chat"}, 401),
        (COMPLETIONS, "", {**at_code, "x_model": "free"}, 401),
        (COMPLETIONS, CODE_KEY, {"x_model": "chat"}, 401),
        ("/chat/../code/v1/chat/completions", CHAT_KEY, {}, 401),
        ("/chat/..%2Fcode/v1/chat/completions", CHAT_KEY, {}, 401),
        ("//code/v1/chat/completions", CHAT_KEY, {}, 401),
        # forged words about who it is
        (AT_CODE, "", {"x_speculative_client": "carol"}, 401),
        (AT_CODE, CHAT_KEY, {"x_speculative_client": "carol", "x_speculative_lane": "native"}, 401),
        # of two keys the one in Authorization is meant
        (AT_CODE, CODE_KEY, {"authorization": f"Bearer {CHAT_KEY}"}, 401),
        (AT_CHAT, CODE_KEY, {"authorization": f"Bearer {CHAT_KEY}"}, 200),
    ]
    found = [
        (path, key, more, await edge.status(path, key, **more)) for path, key, more, _ in cases
    ]
    assert found == cases
    # no refused request reached a worker
    good = {name: len(worker.headers_seen) for name, worker in edge.workers.items()}
    assert good == {"chat": 4, "code": 2, "free": 2}
    for name in ("chat", "code"):
        for seen in edge.workers[name].headers_seen:
            assert seen["x-speculative-client"] == {"chat": "alice", "code": "carol"}[name]
            assert not {"authorization", "x-api-key"} & seen.keys()


async def test_of_two_headers_that_say_the_model_one_decides_route_and_key_alike(
    edge: Edge,
) -> None:
    await edge.share(chat=CHAT, code=CODE)
    url = f"http://127.0.0.1:{edge.gateway.port}{COMPLETIONS}"
    for order in permutations(MEMBERS, 2):
        # To Envoy a header has each of its values: of two members the older one is meant.
        meant = min(order, key=MEMBERS.index)
        for key, opened in ((CHAT_KEY, "chat"), (CODE_KEY, "code"), ("no-such-key", "")):
            said = [("x-api-key", key), *(("x-model", name) for name in order)]
            async with edge.gateway.session.post(url, json={}, headers=said) as answer:
                found = (answer.status, (await answer.json()).get("backend"))
            assert found == ((200, meant) if meant in (opened, "free") else (401, None))


async def test_clients_of_one_name_in_two_secrets_are_two_in_log_and_limits(edge: Edge) -> None:
    limit = gateway.RateLimit(requests_per_minute_per_key=2)
    own = {
        "chat": CHAT.model_copy(update={"rate_limit": limit}),
        "code": CODE.model_copy(update={"rate_limit": limit}),
    }
    await edge.share(**own)
    keys = {"chat": CHAT_KEY, "code": ALICE_AT_CODE}
    for name, key in keys.items():
        path = f"/{name}{COMPLETIONS}"
        said = {"x_request_id": f"log-{name}"}
        # by whichever way
        assert await edge.status(path, key, **said) == 200
        assert await edge.status(COMPLETIONS, key, x_model=name) == 200
        assert await edge.status(path, key) == 429
        assert await edge.status(COMPLETIONS, key, x_model=name) == 429
    assert await edge.status(AT_CODE, CODE_KEY) == 200

    async def log() -> set[tuple[str, str]]:
        lines = edge.gateway.log("supervise").splitlines()
        said = [json.loads(line) for line in lines if '"log-' in line]
        return {(each["deployment"], each["client"]) for each in said}

    await eventually(log, lambda n: n == {("chat", "alice"), ("code", "alice")}, "in the log")


async def test_each_member_has_its_own_limits_and_who_says_the_same_counts_together(
    edge: Edge,
) -> None:
    def at(**limits: int) -> gateway.Access:
        return CHAT.model_copy(update={"rate_limit": gateway.RateLimit(**limits)})

    # one Secret: its key has 2 at chat, 4 at code, and no limit at free
    await edge.share(
        chat=at(requests_per_minute_per_key=2), code=at(requests_per_minute_per_key=4), free=CHAT
    )
    for path, most, retry in ((AT_CHAT, 2, "30"), (AT_CODE, 4, "15")):
        assert [await edge.status(path, CHAT_KEY) for _ in range(most)] == [200] * most
        refused = await edge.ask(path, x_api_key=CHAT_KEY)
        assert (refused.status, refused.headers["retry-after"]) == (429, retry)
    assert [await edge.status(AT_FREE, CHAT_KEY) for _ in range(8)] == [200] * 8
    # nothing that a request says puts it into another one's count
    forged = {"x_model": "free", "x_speculative_client": "bob", "x_speculative_cost": "0"}
    assert await edge.status(AT_CHAT, CHAT_KEY, **forged) == 429
    # chat and code say the same: one bucket for both
    same = at(requests_per_minute_per_key=3)
    await edge.share(chat=same, code=same, free=CHAT)
    paths = (AT_CHAT, AT_CODE, AT_CHAT, AT_CODE, AT_CHAT)
    assert [await edge.status(path, CHAT_KEY) for path in paths] == [200, 200, 200, 429, 429]
    assert await edge.status(AT_FREE, CHAT_KEY) == 200


async def test_tokens_are_charged_where_a_member_says_so(edge: Edge) -> None:
    def at(tokens: int) -> gateway.Access:
        limit = gateway.RateLimit(tokens_per_minute_per_key=tokens)
        return CHAT.model_copy(update={"rate_limit": limit})

    # a request is charged 5 for its body and 1 for its answer
    await edge.share(chat=at(12), code=at(19), free=CHAT)
    assert [await edge.status(AT_CHAT, CHAT_KEY) for _ in range(3)] == [200, 200, 429]
    assert [await edge.status(AT_CODE, CHAT_KEY) for _ in range(4)] == [200, 200, 200, 429]
    assert [await edge.status(AT_FREE, CHAT_KEY) for _ in range(5)] == [200] * 5
    assert not any("x-speculative-cost" in each for each in edge.workers["free"].headers_seen)


async def test_requests_at_a_time_are_counted_by_member(edge: Edge) -> None:
    def at(most: int) -> gateway.Access:
        limit = gateway.RateLimit(concurrent_requests_per_key=most)
        return CHAT.model_copy(update={"rate_limit": limit})

    await edge.share(chat=at(1), code=at(2), free=CHAT)
    for each in edge.workers.values():
        each.hold_headers()
    asked: list[asyncio.Task[int]] = []

    async def waiting(path: str) -> None:
        name = path.split("/")[1]
        before = edge.workers[name].requests
        asked.append(asyncio.create_task(edge.status(path, CHAT_KEY)))
        await eventually(lambda: _requests(edge, name), lambda n: n > before, "a worker has it")

    for path in (AT_CHAT, AT_CODE, AT_CODE, AT_FREE, AT_FREE, AT_FREE):
        await waiting(path)
    for path in (AT_CHAT, AT_CODE):
        refused = await edge.ask(path, x_api_key=CHAT_KEY)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    for each in edge.workers.values():
        each.release()
    assert await asyncio.gather(*asked) == [200] * 6
    assert await edge.status(AT_CHAT, CHAT_KEY) == 200


async def _requests(edge: Edge, name: str) -> int:
    return edge.workers[name].requests


async def test_addresses_and_long_bodies_are_each_members_own(edge: Edge) -> None:
    elsewhere = gateway.Access(allowed_cidrs=("10.0.0.0/8", "fd00::/8"))
    short = gateway.Access(allowed_cidrs=("127.0.0.0/8",), max_request_body_bytes=1024)
    hosts = {"code.example.com": "code"}
    edge.gateway.share(*MEMBERS, hosts=hosts, accesses={"chat": elsewhere, "code": short})
    await eventually(lambda: edge.status(AT_CHAT), lambda seen: seen == 403, "not from here")
    assert await edge.status(COMPLETIONS, x_model="chat") == 403
    assert await edge.status(AT_CHAT, x_forwarded_for="10.0.0.1") == 403
    assert await edge.status(AT_CODE) == 200

    async def long(path: str) -> int:
        url = f"http://127.0.0.1:{edge.gateway.port}{path}"
        async with edge.gateway.session.post(url, json={"prompt": "x" * 2000}) as answer:
            return answer.status

    assert [await long(path) for path in (AT_CODE, AT_FREE)] == [413, 200]


async def test_only_models_that_everybody_may_ask_are_told_to_everybody(edge: Edge) -> None:
    await edge.share(chat=CHAT, code=CODE)
    listed = await edge.ask("/v1/models", "GET")
    assert listed.status == 200
    assert [each["id"] for each in (await listed.json())["data"]] == ["free"]
    unknown = await edge.ask(COMPLETIONS, x_model="gpt-4")
    message = (await unknown.json())["error"]["message"]
    assert (unknown.status, "may ask: free." in message, "chat" in message) == (404, True, False)
    # all ask for the same keys, only limits differ: then who has one is told all
    limit = gateway.RateLimit(requests_per_minute_per_key=100)
    await edge.share(chat=CHAT.model_copy(update={"rate_limit": limit}), code=CHAT, free=CHAT)
    assert (await edge.ask("/v1/models", "GET")).status == 401
    listed = await edge.ask("/v1/models", "GET", x_api_key=CHAT_KEY)
    assert [each["id"] for each in (await listed.json())["data"]] == list(MEMBERS)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({}, "Secret code-keys has no usable key: it is missing or empty"),
        ({"carol": "short", "dave": "has a space"}, "API key carol is not 8 to 1024 visible"),
    ],
    ids=["missing", "malformed"],
)
async def test_a_bad_secret_is_its_members_matter_alone(
    edge: Edge, entries: dict[str, str], problem: str
) -> None:
    await edge.share(chat=CHAT, code=CODE)
    edge.keys("code-keys", **entries)
    state = await edge.gateway.until(lambda s: problem in s.error, "said", member="code")
    assert not state.ready
    assert [await edge.status(AT_CODE, key) for key in (CODE_KEY, CHAT_KEY)] == [401, 401]
    assert await edge.gateway.status_of("/readyz") == 200
    for name in ("chat", "free"):
        other = await edge.gateway.state(name)
        assert other is not None
        assert (other.ready, other.error) == (True, "")
    assert [await edge.status(AT_CHAT, CHAT_KEY), await edge.status(AT_FREE)] == [200, 200]
    edge.keys("code-keys", carol=CODE_KEY)
    await edge.gateway.until(lambda s: s.ready and not s.error, "good again", member="code")
    assert await edge.status(AT_CODE, CODE_KEY) == 200
    # nobody is served once nobody could be let in
    edge.gateway.share("chat", "code", accesses={"chat": CHAT, "code": CODE})
    edge.keys("code-keys")
    edge.keys("chat-keys")
    await eventually(
        lambda: edge.gateway.status_of("/readyz"), lambda seen: seen == 503, "out of service"
    )
    edge.keys("chat-keys", alice=CHAT_KEY)
    await eventually(
        lambda: edge.gateway.status_of("/readyz"), lambda seen: seen == 200, "in service"
    )


async def test_a_removed_key_is_refused_and_streams_of_a_member_that_left_go_on(
    edge: Edge,
) -> None:
    await edge.share(chat=CHAT, code=CODE)
    worker = edge.workers["code"]
    worker.hold()
    url = f"http://127.0.0.1:{edge.gateway.port}{AT_CODE}"

    async def stream(key: str) -> bytes:
        said = {"x-api-key": key}
        async with edge.gateway.session.post(url, json={"stream": True}, headers=said) as answer:
            assert answer.status == 200
            return bytes(await answer.read())

    streams = [asyncio.create_task(stream(key)) for key in (CODE_KEY, ALICE_AT_CODE)]
    await eventually(lambda: _open(worker), lambda seen: seen == 2, "both stream")
    edge.keys("code-keys", alice=ALICE_AT_CODE)
    await eventually(lambda: edge.status("/code/v1/x", CODE_KEY), lambda s: s == 401, "refused")
    assert await edge.status("/code/v1/x", ALICE_AT_CODE) == 200
    edge.gateway.share("chat", "free", accesses={"chat": CHAT})
    await eventually(lambda: edge.status(AT_CODE, ALICE_AT_CODE), lambda s: s == 404, "it left")
    assert await edge.status(AT_CHAT, CHAT_KEY) == 200
    assert await edge.status(AT_CHAT, ALICE_AT_CODE) == 401
    worker.release()
    assert all(body.endswith(b"data: [DONE]\n\n") for body in await asyncio.gather(*streams))


async def _open(worker: Backend) -> int:
    return worker.open_streams


class Signer:
    """Signs an issuer's tokens."""

    def __init__(self, issuer: str) -> None:
        self.issuer, self._key = issuer, ec.generate_private_key(ec.SECP256R1())

    def token(self, audience: str, **claims: Any) -> str:
        said = {"iss": self.issuer, "aud": audience, "exp": time.time() + 600, **claims}
        return jwt.encode(said, self._key, algorithm="ES256", headers={"kid": self.issuer})

    def public(self) -> str:
        shown = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**shown, "kid": self.issuer, "alg": "ES256"}]})

    def access(self, audience: str, *, most: int | None = None) -> gateway.Access:
        asked = gateway.Jwt(issuer=self.issuer, audiences=(audience,), jwks_config_map=self.issuer)
        limit = gateway.RateLimit(requests_per_minute_per_key=most) if most else None
        return gateway.Access(auth=gateway.Auth(jwt=asked), rate_limit=limit)


async def test_tokens_of_one_members_issuer_or_audience_open_no_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    one, two = Signer("one"), Signer("two")
    folder = tmp_path_factory.mktemp("tokens")
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
        running("worker") as worker,
    ):
        found = Gateway(folder, session, shared_gateway="edge", key_sets=("one", "two"))
        edge = Edge(found, {"worker": worker})
        for signer in (one, two):
            found.mount(f"key-set/{signer.issuer}", {"jwks.json": signer.public()})
        found.keys(alice=CHAT_KEY)
        names = ("chat", "code", "images", "keyed")
        try:
            await found.start()
            found.endpoints(**{f"{name}-{STABLE}": [worker] for name in names})
            found.share(
                *names,
                accesses={
                    "chat": one.access("chat", most=2),
                    "code": two.access("code"),
                    "images": one.access("images", most=3),
                    "keyed": CHAT,
                },
            )
            for name in names:
                await found.member(
                    name, gateway.Backend(hash=STABLE, service=f"{name}-{STABLE}", weight=100)
                )

            async def status(name: str, token: str, model: str = "") -> int:
                said = {"x_model": name} if model else {}
                path = COMPLETIONS if model else f"/{name}{COMPLETIONS}"
                return await edge.status(path, **said, authorization=f"Bearer {token}")

            ours, theirs = one.token("chat", sub="ann"), two.token("code", sub="ann")
            cases = [
                ("code", theirs, 200),
                ("images", one.token("images", sub="ann"), 200),
                ("keyed", CHAT_KEY, 200),
                ("chat", theirs, 401),
                ("code", ours, 401),
                # the same issuer, but for another member's users
                ("images", ours, 403),
                ("keyed", ours, 401),
                ("chat", CHAT_KEY, 401),
                # each client has a bucket, those without a name one together, at each way in
                ("chat", ours, 200),
                ("chat", ours, 200),
                ("chat", ours, 429),
                ("chat", one.token("chat", sub="ben"), 200),
                ("chat", one.token("chat"), 200),
                ("chat", one.token("chat"), 200),
                ("chat", one.token("chat"), 429),
                ("images", one.token("images", sub="ann"), 200),
                ("images", one.token("images", sub="ann"), 200),
                ("images", one.token("images", sub="ann"), 429),
            ]
            assert [await status(name, token) for name, token, _ in cases] == [
                code for *_, code in cases
            ]
            assert await status("chat", ours, "header") == 429
            # one issuer's keys are lost: nobody else notices
            found.mount("key-set/two", {"jwks.json": "{"})
            await found.until(lambda s: "jwks.json" in s.error, "said", member="code")
            assert await status("code", theirs) == 403
            assert await status("chat", one.token("chat", sub="eve")) == 200
            assert await found.status_of("/readyz") == 200
        finally:
            await found.stop()


async def test_weights_move_and_members_change_their_minds_under_load(edge: Edge) -> None:
    """Nobody with a good key is refused while another member's access changes."""
    await edge.share(chat=CHAT, code=CODE)
    done, seen = asyncio.Event(), Counter[int]()

    async def load() -> None:
        while not done.is_set():
            seen[await edge.status(AT_CHAT, CHAT_KEY)] += 1

    loads = [asyncio.create_task(load()) for _ in range(4)]
    limited = CODE.model_copy(
        update={"rate_limit": gateway.RateLimit(requests_per_minute_per_key=1)}
    )
    for access in (limited, gateway.Access(), CODE, CHAT):
        await edge.share(chat=CHAT, code=access)
    backends = [
        gateway.Backend(hash=STABLE, service=f"code-{STABLE}", weight=100),
        gateway.Backend(hash=CANARY, service=f"code-{CANARY}", weight=0),
    ]
    await edge.gateway.member("code", *backends)
    # nor when all say the same at last, and differ again
    await edge.share(chat=CHAT, code=CHAT, free=CHAT)
    edge.gateway.share(*MEMBERS, auth=CHAT.auth)
    await eventually(lambda: edge.status("/v1/models"), lambda s: s == 401, "keys for all")
    await edge.share(chat=CHAT, code=CODE)
    done.set()
    await asyncio.gather(*loads)
    assert set(seen) == {200}
