"""Real Envoy: what the log and the metrics say about a request, and what they never say."""

import json
from typing import Any

import pytest
from tests.gateway.backends import Backend
from tests.gateway.harness import NATIVE, STABLE, Gateway, backend, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

USAGE = {"prompt_tokens": 7, "total_tokens": 19, "completion_tokens": 12, "details": None}


async def serving(proxy: Gateway, stable: Backend, **fields: object) -> None:
    """Stable, which is native too under another name."""
    proxy.endpoints(**{STABLE: [stable], NATIVE: [stable]})
    await proxy.route(backend(STABLE, 100), native=backend(NATIVE), **fields)


async def line_of(proxy: Gateway, request: str) -> dict[str, Any]:
    """The log line of the request with this id."""

    async def log() -> list[str]:
        return [line for line in proxy.log("supervise").splitlines() if f'"{request}"' in line]

    found: dict[str, Any] = json.loads((await eventually(log, bool, "the line is written"))[0])
    return found


@pytest.mark.parametrize(
    "usage, expected",
    [
        (USAGE, (7, 12)),
        ({"input_tokens": 3, "output_tokens": 5}, (3, 5)),
        (None, (None, None)),
    ],
    ids=["completions", "responses", "not said"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_log_has_the_tokens(
    proxy: Gateway,
    stable: Backend,
    usage: dict[str, object] | None,
    expected: tuple[int | None, int | None],
    stream: bool,
) -> None:
    stable.usage = usage
    await serving(proxy, stable)
    request = f"tokens-{stream}-{expected[0]}"
    async with proxy.post(stream=stream, x_request_id=request) as answer:
        assert (await answer.read()).endswith(b"[DONE]\n\n" if stream else b"}")
    line = await line_of(proxy, request)
    assert (line.get("prompt_tokens"), line.get("completion_tokens")) == expected
    # Three of the worker, its word on usage, and [DONE].
    assert line.get("events") == ((5 if usage else 4) if stream else None)


async def test_words_inside_an_answer_are_not_taken_for_usage(
    proxy: Gateway, stable: Backend
) -> None:
    stable.name = '"usage":{"prompt_tokens":1000000}'
    await serving(proxy, stable)
    async with proxy.post(x_request_id="quoting") as answer:
        await answer.read()
    assert (await line_of(proxy, "quoting"))["prompt_tokens"] is None


@pytest.mark.parametrize("lane, revision", [("accelerated", STABLE), ("native", NATIVE)])
async def test_the_log_and_the_answer_name_revision_and_lane(
    proxy: Gateway, stable: Backend, lane: str, revision: str
) -> None:
    await serving(proxy, stable)
    stable.hold()
    async with proxy.post(
        stream=True, x_speculative_lane=lane, x_request_id=f"in-{lane}"
    ) as answer:
        assert answer.headers["x-speculative-lane"] == lane
        assert answer.headers["x-speculative-revision"] == revision
        stable.release()
        await answer.read()
    line = await line_of(proxy, f"in-{lane}")
    assert (line["lane"], line["revision"]) == (lane, revision)
    assert 0 <= line["first_byte_milliseconds"] <= line["duration_milliseconds"]


async def test_revision_and_lane_can_be_kept_from_clients(proxy: Gateway, stable: Backend) -> None:
    await serving(proxy, stable, revision_headers=False)
    for lane in ("", "native"):
        async with proxy.post(x_speculative_lane=lane) as answer:
            assert answer.status == 200
            assert not [name for name in answer.headers if "speculative" in name.lower()]


async def test_a_client_can_t_choose_what_is_logged_of_it(proxy: Gateway, stable: Backend) -> None:
    await serving(proxy, stable)
    async with proxy.post(
        x_speculative_client="root", x_speculative_lane="nowhere", x_request_id="forged"
    ) as answer:
        assert answer.status == 200
    line = await line_of(proxy, "forged")
    assert (line["client"], line["lane"]) == (None, "accelerated")


async def test_metrics_tell_times_and_tokens_by_revision_and_lane(
    proxy: Gateway, stable: Backend
) -> None:
    stable.usage = USAGE
    mine, native = "d" * 10, "e" * 10
    proxy.endpoints(**{mine: [stable], native: [stable]})
    await proxy.route(backend(mine, 100), native=backend(native))
    for lane in ("", "", "native"):
        async with proxy.post(x_speculative_lane=lane) as answer:
            await answer.read()

    async def metrics() -> list[str]:
        async with proxy.session.get(f"http://127.0.0.1:{proxy.agent_port}/metrics") as answer:
            return (await answer.text()).splitlines()

    wanted = {
        f'speculative_gateway_{name}{{revision="{revision}",lane="{lane}"}} {value}'
        for revision, lane, values in ((mine, "accelerated", (24, 2)), (native, "native", (12, 1)))
        for name, value in zip(
            ("completion_tokens", "first_byte_milliseconds_count"), values, strict=True
        )
    }
    # Envoy sums its histograms up every five seconds.
    lines = await eventually(metrics, lambda seen: wanted <= set(seen), "all is counted")
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    # What dashboards use, not the hundreds of figures that Envoy has, nor those of the past.
    assert all(each.startswith("speculative_gateway_") for each in families)
    assert not [line for line in lines if f'revision="{STABLE}"' in line]
