"""Real Envoy, fake workers: one gateway for several resources, each with its own rollout."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.gateway.backends import Backend, running
from tests.gateway.harness import (
    CANARY,
    NATIVE,
    STABLE,
    Gateway,
    a_gateway,
    backend,
    cluster,
    eventually,
)

from speculative_api import gateway

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

MEMBERS = ("chat", "code")


def of(member: str, revision: str, weight: int = 0) -> gateway.Backend:
    """Two members have the same hashes: the same words were given to both."""
    return gateway.Backend(hash=revision, service=f"{member}-{revision}", weight=weight)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One shared gateway for the module."""
    async with a_gateway(tmp_path_factory.mktemp("edge"), shared_gateway="edge") as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def workers(edge: Gateway) -> AsyncIterator[dict[str, Backend]]:
    """A worker of each member's stable and canary, all of them ready, and both members there."""
    async with (
        running("chat-stable") as a,
        running("chat-canary") as b,
        running("code-stable") as c,
        running("code-canary") as d,
    ):
        edge.endpoints(
            **{
                f"chat-{STABLE}": [a],
                f"chat-{CANARY}": [b],
                f"code-{STABLE}": [c],
                f"code-{CANARY}": [d],
            }
        )
        edge.share(*MEMBERS)
        for name in MEMBERS:
            await edge.member(name, of(name, STABLE, 100))
        yield {each.name: each for each in (a, b, c, d)}
        for each in (a, b, c, d):
            each.release()


async def asked(
    edge: Gateway, path: str, method: str = "POST", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """Status, body and headers of one request."""
    url = f"http://127.0.0.1:{edge.port}{path}"
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": "m"} if method == "POST" else None
    async with edge.session.request(method, url, json=body, headers=said) as answer:
        text = await answer.text()
        seen = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, json.loads(text) if text else None, seen


async def who(edge: Gateway, path: str, **headers: str) -> str:
    """The worker that answers."""
    status, body, _ = await asked(edge, path, **headers)
    return str(body["backend"]) if status == 200 else str(status)


COMPLETIONS = "/v1/chat/completions"


async def test_a_request_says_which_by_path_by_header_or_by_host(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    edge.share(*MEMBERS, hosts={"code.example.com": "code", "*.code.example.com": "code"})
    await eventually(
        lambda: who(edge, COMPLETIONS, host="code.example.com"),
        lambda seen: seen == "code-stable",
        "the host is code's",
    )
    cases: list[tuple[str, dict[str, str], str]] = [
        (f"/chat{COMPLETIONS}", {}, "chat-stable"),
        (f"/code{COMPLETIONS}", {}, "code-stable"),
        (COMPLETIONS, {"x_model": "chat"}, "chat-stable"),
        (COMPLETIONS, {"x_model": "code"}, "code-stable"),
        (COMPLETIONS, {"host": "Code.example.com:8080"}, "code-stable"),
        (COMPLETIONS, {"host": "a.code.example.com"}, "code-stable"),
        # the path first, then the host: there x-model may name something else, an adapter
        (f"/chat{COMPLETIONS}", {"x_model": "code"}, "chat-stable"),
        (COMPLETIONS, {"host": "code.example.com", "x_model": "chat"}, "code-stable"),
        (COMPLETIONS, {}, "404"),
        (COMPLETIONS, {"x_model": "chats"}, "404"),
        (COMPLETIONS, {"host": "xcode.example.com"}, "404"),
        (f"/chats{COMPLETIONS}", {}, "404"),
        ("/chat/health", {}, "404"),
    ]
    found = [(path, headers, await who(edge, path, **headers)) for path, headers, _ in cases]
    assert found == cases
    # a worker sees the path that it knows
    _, body, headers = await asked(edge, "/chat/v1/embeddings?user=1")
    assert body["path"] == "/v1/embeddings?user=1"
    assert headers["x-speculative-lane"] == "accelerated"
    assert (await asked(edge, f"/chat{COMPLETIONS}"))[2]["x-speculative-revision"] == STABLE


async def test_models_are_listed_and_an_unknown_one_is_told_which_there_are(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    status, body, headers = await asked(edge, "/v1/models", "GET")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body["object"] == "list"
    assert [(each["id"], each["object"]) for each in body["data"]] == [
        ("chat", "model"),
        ("code", "model"),
    ]
    # who names one gets that one's own list
    assert (await asked(edge, "/chat/v1/models", "GET"))[1]["backend"] == "chat-stable"
    assert (await asked(edge, "/v1/models", "GET", x_model="code"))[1]["backend"] == "code-stable"
    status, body, headers = await asked(edge, COMPLETIONS, x_model="gpt-4")
    assert (status, headers["content-type"]) == (404, "application/json")
    error = body["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "model_not_found")
    assert "Models here: chat, code." in error["message"]


async def test_two_canaries_of_the_same_words_have_their_own_weights(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    await edge.member("chat", of("chat", STABLE, 100), of("chat", CANARY, 0))
    await edge.member("code", of("code", STABLE, 100), of("code", CANARY, 0))
    chat = await edge.member("chat", of("chat", STABLE, 70), of("chat", CANARY, 30))
    code = await edge.member("code", of("code", STABLE, 0), of("code", CANARY, 100))
    assert {each.hash: each.weight for each in chat.clusters} == {STABLE: 70, CANARY: 30}
    assert {each.hash: each.weight for each in code.clusters} == {STABLE: 0, CANARY: 100}
    seen = Counter([await who(edge, f"/chat{COMPLETIONS}") for _ in range(200)])
    assert seen.keys() == {"chat-stable", "chat-canary"}
    # Beyond five standard deviations only once in millions of runs.
    assert 28 <= seen["chat-canary"] <= 92
    assert {await who(edge, COMPLETIONS, x_model="code") for _ in range(30)} == {"code-canary"}
    # each member's answers are counted as its own, in /state and for Prometheus
    state = await edge.until(
        lambda s: sum(c.responses["2xx"] for c in s.clusters) >= 200, "counted", member="chat"
    )
    code_state = await edge.state("code")
    assert code_state is not None
    assert cluster(code_state, CANARY).responses["2xx"] == 30
    assert cluster(state, CANARY).responses["2xx"] == seen["chat-canary"]
    async with edge.session.get(f"http://127.0.0.1:{edge.agent_port}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    told = f'deployment="code",revision="{CANARY}",lane="accelerated"'
    assert f"speculative_gateway_weight{{{told}}} 100" in lines
    await eventually(
        lambda: _envoys_own(edge, f"speculative_gateway_duration_milliseconds_count{{{told}}}"),
        lambda seen: seen == "30",
        "Envoy's own figures with the member's name",
    )
    wanted = {("chat", STABLE, STABLE), ("code", CANARY, CANARY)}
    # Envoy writes its log when it comes to it.
    await eventually(
        lambda: _answered(edge), lambda named: wanted <= named, "both members in the access log"
    )


async def _answered(edge: Gateway) -> set[tuple[str, str, str]]:
    """Member, wanted and answering revision of each good answer in the access log."""
    log = [json.loads(x) for x in edge.log("supervise").splitlines() if x.startswith("{")]
    return {(x["deployment"], x["revision"], x["answered_by"]) for x in log if x["status"] == 200}


async def _envoys_own(edge: Gateway, series: str) -> str:
    async with edge.session.get(f"http://127.0.0.1:{edge.agent_port}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next((x.rpartition(" ")[2] for x in lines if x.startswith(series)), "")


async def test_one_members_bad_route_is_nobody_elses(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    before = await edge.state("code")
    assert before is not None
    edge.write("code-member.json", '{"ownerUid": "code", "sequence": 999999, "backends": 7}')
    refused = await edge.until(lambda s: "route refused" in s.error, "refused", member="code")
    assert refused.sequence == before.sequence
    # the others go on, and the refused one with its last good route
    state = await edge.member("chat", of("chat", STABLE, 50), of("chat", CANARY, 50))
    assert state.error == ""
    assert await who(edge, f"/code{COMPLETIONS}") == "code-stable"
    # another resource's route under this name is none of its
    stolen = gateway.Route(owner_uid="other", sequence=1, model="m")
    edge.write("code-member.json", stolen.model_dump_json(by_alias=True))
    await edge.until(lambda s: "of another code" in s.error, "refused", member="code")
    assert await who(edge, f"/code{COMPLETIONS}") == "code-stable"


async def test_what_envoy_itself_refuses_is_found_and_set_aside(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    # A name of a header that our own checks let through and Envoy does not.
    rule = gateway.LaneRule(
        lane="accelerated", header=gateway.HeaderMatch(name="x tier\n", value="gold")
    )
    edge.sequence += 1
    bad = gateway.Route(
        owner_uid="code",
        sequence=edge.sequence,
        model="code",
        default=STABLE,
        backends=(of("code", STABLE, 100),),
        lane_rules=(rule,),
    )
    edge.write("code-member.json", bad.model_dump_json(by_alias=True))
    await edge.until(lambda s: "did not take this route" in s.error, "set aside", member="code")
    state = await edge.member("chat", of("chat", STABLE, 100), of("chat", CANARY, 0))
    assert state.error == ""
    assert await who(edge, f"/code{COMPLETIONS}") == "code-stable"
    await edge.member("code", of("code", STABLE, 100))


async def test_a_silent_endpoint_of_one_member_holds_nobody_elses_weights(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    await edge.member("code", of("code", STABLE, 0), of("code", CANARY, 100))
    asked_it, let_go = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_it.set()
        await let_go.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    hung = Backend("hung", port=server.sockets[0].getsockname()[1])
    found = {f"{name}-{STABLE}": [workers[f"{name}-stable"]] for name in MEMBERS}
    canaries = {f"chat-{CANARY}": [hung], f"code-{CANARY}": [workers["code-canary"]]}
    edge.endpoints(**found, **canaries)
    before = edge.sequence
    waiting = asyncio.create_task(
        edge.member("chat", of("chat", STABLE, 100), of("chat", CANARY, 0))
    )
    try:
        await asyncio.wait_for(asked_it.wait(), 30)
        aborted = asyncio.create_task(
            edge.member("code", of("code", STABLE, 100), of("code", CANARY, 0))
        )
        await eventually(lambda: who(edge, f"/code{COMPLETIONS}"), lambda s: s == "code-stable", "")
        # seen while Envoy still waits for the first probe of chat's new endpoint
        assert not waiting.done()
        state = await edge.state("chat")
        assert state is not None
        assert state.sequence <= before
        while not aborted.done():
            # nor is it taken back, as that proof is late
            assert await who(edge, f"/code{COMPLETIONS}") == "code-stable"
        await aborted
        await waiting
        assert await who(edge, f"/chat{COMPLETIONS}") == "chat-stable"
    finally:
        let_go.set()
        server.close()
        await server.wait_closed()


async def test_members_come_and_go_under_streams(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    async def stream(member: str) -> bytes:
        url = f"http://127.0.0.1:{edge.port}/{member}{COMPLETIONS}"
        async with edge.session.post(url, json={"stream": True}) as answer:
            assert answer.status == 200
            return bytes(await answer.read())

    for each in workers.values():
        each.hold()
    running_streams = [asyncio.create_task(stream(name)) for name in MEMBERS for _ in range(5)]
    for name in MEMBERS:
        stable = workers[f"{name}-stable"]
        await eventually(lambda s=stable: _open(s), lambda seen: seen == 5, "streams of both")
    assert [workers[f"{name}-stable"].requests for name in MEMBERS] == [5, 5]
    # code is deleted: its route, its place at the gateway, then its endpoints
    (edge.wanted / "code-member.json").unlink()
    edge.share("chat")
    await eventually(lambda: who(edge, f"/code{COMPLETIONS}"), lambda seen: seen == "404", "gone")
    state = await edge.until(lambda s: not s.clusters, "no cluster of code", member="code")
    assert (state.sequence, state.ready) == (-1, False)
    # and somebody else comes
    edge.share("chat", "third")
    third = workers["code-canary"]
    edge.endpoints(**{f"chat-{STABLE}": [workers["chat-stable"]], f"third-{STABLE}": [third]})
    await edge.member("third", of("third", STABLE, 100))
    assert await who(edge, f"/third{COMPLETIONS}") == "code-canary"
    for each in workers.values():
        each.release()
    bodies = await asyncio.gather(*running_streams)
    assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
    assert workers["chat-stable"].requests == 5


async def _open(worker: Backend) -> int:
    return worker.open_streams


async def test_a_new_agent_adopts_what_is_in_use_and_writes_nothing(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    before = await edge.state("chat")
    assert before is not None
    assert edge.agent is not None
    edge.agent.kill()
    await edge.agent.wait()
    stamps = {path.name: path.stat().st_mtime_ns for path in edge.xds.iterdir()}
    assert await who(edge, f"/chat{COMPLETIONS}") == "chat-stable"
    await edge.start_agent()
    after = await edge.until(lambda s: s.ready, "adopted", member="chat")
    assert (after.sequence, after.owner_uid) == (before.sequence, "chat")
    assert {path.name: path.stat().st_mtime_ns for path in edge.xds.iterdir()} == stamps


async def test_keys_and_limits_are_the_gateways_and_lanes_each_members_own(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    edge.keys(alice="alices-secret-key")
    limit = gateway.RateLimit(requests_per_minute_per_key=6)
    edge.share(*MEMBERS, auth=gateway.Auth(api_keys_secret="keys"), rate_limit=limit)
    await eventually(lambda: who(edge, f"/chat{COMPLETIONS}"), lambda s: s == "401", "keys asked")
    # not even the names of models are told without a key
    assert (await asked(edge, "/v1/models", "GET"))[0] == 401
    key = {"x_api_key": "alices-secret-key"}
    native = of("chat", CANARY)
    await edge.member("chat", of("chat", STABLE, 100), native=native, revision_headers=False)
    status, body, headers = await asked(
        edge, f"/chat{COMPLETIONS}", **key, x_speculative_lane="native"
    )
    assert (status, body["backend"]) == (200, "chat-canary")
    assert "x-speculative-revision" not in headers
    status, _, headers = await asked(edge, f"/code{COMPLETIONS}", **key)
    assert (status, headers["x-speculative-revision"]) == (200, STABLE)
    status, body, _ = await asked(edge, f"/code{COMPLETIONS}", **key, x_speculative_lane="native")
    assert (status, "There is no native lane" in body["error"]["message"]) == (503, True)
    # one bucket, whichever way and member is asked
    seen = [await who(edge, f"/{name}{COMPLETIONS}", **key) for name in MEMBERS * 4]
    seen += [await who(edge, COMPLETIONS, **key, x_model="chat")]
    assert "429" in seen
    assert seen[-1] == "429"
    assert backend(NATIVE).hash not in str(seen)
    edge.share(*MEMBERS)
    await eventually(lambda: who(edge, f"/chat{COMPLETIONS}"), lambda s: s != "401", "no keys")


async def test_copies_are_one_members_own(edge: Gateway, workers: dict[str, Backend]) -> None:
    shadow = gateway.Shadow(hash=CANARY, percent=100, most_requests=100)
    before = await edge.member("chat", of("chat", STABLE, 100), of("chat", CANARY), shadow=shadow)
    seen = {await who(edge, f"/{name}{COMPLETIONS}") for name in MEMBERS * 10}
    assert seen == {"chat-stable", "code-stable"}

    async def copied() -> dict[str, int]:
        return {name: workers[name].requests for name in ("chat-canary", "code-canary")}

    await eventually(copied, lambda n: n == {"chat-canary": 10, "code-canary": 0}, "ten copies")
    state = await edge.until(
        lambda state: (
            (copies := cluster(state, CANARY).shadow) is not None and copies.responses["2xx"] == 10
        ),
        "they are counted",
        member="chat",
    )
    # none of them among what users got, nor with the other member, whose hashes are the same
    assert cluster(state, CANARY).responses == cluster(before, CANARY).responses
    other = await edge.state("code")
    assert other is not None
    assert [each.hash for each in other.clusters if each.shadow] == []


async def test_sessions_stay_with_a_revision_of_one_member_alone(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    affinity = gateway.Affinity(header="x-session-id", salt="first")
    for name, fields in (("chat", {"affinity": affinity}), ("code", {})):
        await edge.member(name, of(name, STABLE, 50), of(name, CANARY, 50), **fields)
    session = {"x_session_id": "user-1"}
    assert len({await who(edge, f"/chat{COMPLETIONS}", **session) for _ in range(40)}) == 1
    assert len({await who(edge, f"/code{COMPLETIONS}", **session) for _ in range(40)}) == 2


async def test_a_member_falls_back_to_its_own_native_lane(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    lane = {"native": of("chat", CANARY), "fallback": gateway.Fallback(requests_per_endpoint=10)}
    await edge.member("chat", of("chat", STABLE, 100), **lane)
    workers["chat-stable"].ready = workers["code-stable"].ready = False
    await eventually(
        lambda: who(edge, f"/chat{COMPLETIONS}"), lambda s: s == "chat-canary", "its native lane"
    )
    await eventually(lambda: who(edge, f"/code{COMPLETIONS}"), lambda s: s == "503", "it has none")


RELEASED = gateway.Waiting(hold_seconds=0, retry_after_seconds=90)
HOLDING = gateway.Waiting(hold_seconds=60, retry_after_seconds=90)


async def requested_at(edge: Gateway, member: str) -> float | None:
    state = await edge.state(member)
    return state.activity.requested_at if state and state.activity else None


async def test_who_asks_a_member_without_pods_wakes_that_one_alone(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    edge.endpoints(**{f"code-{STABLE}": [workers["code-stable"]]})
    await edge.member("chat", of("chat", STABLE, 100), waiting=RELEASED)
    await edge.member("code", of("code", STABLE, 100), waiting=RELEASED)
    await eventually(
        lambda: who(edge, f"/code{COMPLETIONS}"), lambda seen: seen == "code-stable", "code serves"
    )
    await edge.until(
        lambda state: all(each.active == 0 for each in state.clusters), "code rests", member="code"
    )
    chat, code = await requested_at(edge, "chat"), await requested_at(edge, "code")
    url = f"http://127.0.0.1:{edge.agent_port}/wake"

    async def woken(member: str, seen: float | None) -> gateway.Activity:
        params = {"seen": "" if seen is None else repr(seen), "member": member}
        async with edge.session.get(url, params=params) as answer:
            assert answer.status == 200
            return gateway.Activity.model_validate_json(await answer.text())

    bells = {
        "chat": asyncio.ensure_future(woken("chat", chat)),
        "code": asyncio.ensure_future(woken("code", code)),
    }
    try:
        for path, headers in ((f"/chat{COMPLETIONS}", {}), (COMPLETIONS, {"x_model": "chat"})):
            status, body, seen = await asked(edge, path, **headers)
            assert (status, body["error"]["code"]) == (503, "starting")
            assert 80 <= int(seen["retry-after"]) <= 90
        found = await asyncio.wait_for(bells["chat"], 5)
        assert found.requested_at is not None
        assert found.requested_at > (chat or 0)
        assert await requested_at(edge, "code") == code
        assert not bells["code"].done()
    finally:
        for bell in bells.values():
            bell.cancel()
    async with edge.session.get(url, params={"seen": "", "member": "nobody"}) as answer:
        assert answer.status == 404
    assert await edge.state("nobody") is not None
    assert await requested_at(edge, "nobody") is None


async def test_a_held_request_goes_to_the_worker_of_its_member(
    edge: Gateway, workers: dict[str, Backend]
) -> None:
    edge.endpoints(**{f"code-{STABLE}": [workers["code-stable"]]})
    await edge.member("chat", of("chat", STABLE, 100), waiting=HOLDING)
    await edge.member("code", of("code", STABLE, 100))
    before = await requested_at(edge, "chat")
    held = [asyncio.ensure_future(who(edge, f"/chat{COMPLETIONS}")) for _ in range(3)]
    await eventually(
        lambda: requested_at(edge, "chat"), lambda seen: seen != before, "requests wait"
    )
    assert await who(edge, f"/code{COMPLETIONS}") == "code-stable"
    assert not any(each.done() for each in held)
    edge.endpoints(
        **{
            f"chat-{STABLE}": [workers["chat-stable"]],
            f"code-{STABLE}": [workers["code-stable"]],
        }
    )
    assert await asyncio.gather(*held) == ["chat-stable"] * 3
