"""Real Envoy: what a request asks for is known from its body, which nobody holds back."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, cluster, eventually

from speculative_api.gateway import GatewayState
from speculative_api.v1alpha1 import Analysis
from speculative_gateway.kinds import LONGEST
from speculative_operator.analysis import Sample, assess, begin, observe
from speculative_operator.snapshot import GatewayPod

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "f", "parameters": {"format": "date"}}}
LONG = "word " * 30_000


async def kinds(proxy: Gateway, revision: str) -> dict[str, int]:
    """Answers below 300 by kind, without those that have none."""
    state = await proxy.state()
    assert state is not None
    found = cluster(state, revision).kinds
    return {kind: n for kind, each in found.items() if (n := each.responses["2xx"])}


async def send(proxy: Gateway, body: bytes | Any, media: str = "application/json") -> int:
    url = f"http://127.0.0.1:{proxy.port}/v1/responses"
    async with proxy.session.post(url, data=body, headers={"content-type": media}) as answer:
        await answer.read()
        return answer.status


ASKED = {
    "schema": ({"response_format": SCHEMA}, "structured"),
    "object": ({"response_format": {"type": "json_object"}}, "structured"),
    "grammar": ({"structured_outputs": {"grammar": "g"}}, "structured"),
    "older": ({"guided_regex": "a+"}, "structured"),
    "responses": ({"text": {"format": SCHEMA}}, "structured"),
    "tools": ({"tools": [CALL]}, "tools"),
    "both": ({"tools": [CALL], "response_format": SCHEMA}, "structured"),
    "schema after a long prompt": ({"prompt": LONG, "response_format": SCHEMA}, "structured"),
    "text": ({"response_format": {"type": "text"}}, None),
    "null": ({"response_format": None, "guided_json": None, "tools": None}, None),
    "no tools": ({"tools": []}, None),
    "quoted": ({"prompt": '{"response_format": {"type": "json_object"}, "tools": [1]}'}, None),
    "plain": ({"prompt": LONG}, None),
}


@pytest.mark.parametrize(("body", "kind"), ASKED.values(), ids=ASKED.keys())
async def test_a_request_is_counted_by_what_it_asks_for(
    proxy: Gateway, stable: Backend, body: dict[str, Any], kind: str | None
) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    before = await kinds(proxy, STABLE)
    for text in (json.dumps(body), json.dumps(body, indent=2)):
        assert await send(proxy, text.encode()) == 200
    wanted = {**before, **({kind: before.get(kind, 0) + 2} if kind else {})}
    # Another request, of which is known that it is counted.
    assert await send(proxy, b'{"tools": [1]}') == 200
    wanted["tools"] = wanted.get("tools", 0) + 1
    await eventually(lambda: kinds(proxy, STABLE), lambda found: found == wanted, f"{wanted}")


@pytest.mark.parametrize("cut", [1, 25, LONGEST])
async def test_a_field_may_come_in_two_pieces(proxy: Gateway, stable: Backend, cut: int) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    before = (await kinds(proxy, STABLE)).get("structured", 0)
    field = json.dumps({"response_format": SCHEMA})[1:]
    whole = ('{"prompt": "' + LONG + '", ' + field).encode()
    arrived = asyncio.Event()

    async def pieces() -> Any:
        where = whole.index(b'"response_format"') + cut
        yield whole[:where]
        await arrived.wait()
        yield whole[where:]

    task = asyncio.create_task(send(proxy, pieces()))
    # The worker has the request before its end was sent: nothing is held back.
    requests = stable.begun
    await eventually(lambda: _value(stable), lambda found: found > requests, "the request began")
    arrived.set()
    assert await task == 200
    wanted = before + 1
    await eventually(
        lambda: kinds(proxy, STABLE), lambda found: found.get("structured") == wanted, "counted"
    )


async def test_what_is_no_json_is_of_no_kind(proxy: Gateway, stable: Backend) -> None:
    proxy.endpoints(**{STABLE: [stable]})
    await proxy.route(backend(STABLE, 100))
    before = await kinds(proxy, STABLE)
    with aiohttp.MultipartWriter("form-data") as form:
        form.append('{"tools": [1]}')
    assert await send(proxy, form, form.content_type) == 200
    assert await send(proxy, b'{"tools": [1]}') == 200
    wanted = {**before, "tools": before.get("tools", 0) + 1}
    await eventually(lambda: kinds(proxy, STABLE), lambda found: found == wanted, f"{wanted}")


async def test_a_kind_that_only_the_canary_fails_is_proved_worse(
    proxy: Gateway, stable: Backend, canary: Backend
) -> None:
    """H05 c: from bodies through Envoy's counters to the verdict; all other requests are fine."""
    canary.fails_formats = 4
    proxy.endpoints(**{STABLE: [stable], CANARY: [canary]})
    state = await proxy.route(backend(STABLE, 70), backend(CANARY, 30))
    evidence, sent = begin("r2", Analysis(), at=0.0), _answers(state)

    async def answered() -> GatewayState:
        return await proxy.until(lambda state: _answers(state) == sent, f"{sent} counted")

    for look in range(40):
        sample = Sample(
            at=11.0 * look,
            weight=30,
            candidate=CANARY,
            control=STABLE,
            pods=(),
            gateways=(GatewayPod("g", "g", ready=True, state=await answered()),),
        )
        evidence = observe(evidence, sample)
        (_, errors) = assess(evidence).metrics
        if errors.outcome == "Failed":
            break
        bodies = [{}, {"response_format": SCHEMA}, {"response_format": {"type": "text"}}] * 15
        for body in bodies:
            async with proxy.session.post(
                f"http://127.0.0.1:{proxy.port}/v1/chat/completions", json=body
            ) as answer:
                await answer.read()
        sent += len(bodies)
    assert errors.outcome == "Failed", errors.message
    assert "of requests for a format" in errors.message
    kind = next(kind for kind in evidence.kinds if kind.name == "structured")
    assert kind.stake * kind.worse > evidence.errors.worse, "all requests proved it as well"


def _answers(state: GatewayState) -> int:
    return sum(sum(each.responses.values()) for each in state.clusters)


async def _value(worker: Backend) -> int:
    return worker.begun
