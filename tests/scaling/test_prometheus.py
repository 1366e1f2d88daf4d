"""GPU utilisation from Prometheus: what its answers mean, also those that make no sense."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from speculative_operator.external.prometheus import Prometheus
from speculative_operator.scaling.signals import Unmeasured


def a_result(value: str) -> dict[str, object]:
    return {"status": "success", "data": {"result": [{"metric": {}, "value": [1, value]}]}}


@pytest.mark.parametrize(
    "status, body, expected",
    [
        (200, a_result("73.5"), 73.5),
        (200, a_result("250"), 100.0),
        (200, a_result("NaN"), "has no DCGM_FI_DEV_GPU_UTIL"),
        (200, {"data": {"result": []}}, "has no DCGM_FI_DEV_GPU_UTIL"),
        (200, {"data": 7}, "can't be read"),
        (200, a_result("x" * 100_000), "can't be read"),
        (503, {}, "answered 503"),
        (302, {}, "answered 302"),
    ],
)
async def test_answers(status: int, body: dict[str, object], expected: float | str) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        return web.json_response(body, status=status)

    application = web.Application()
    application.router.add_get("/api/v1/query", answer)
    async with TestServer(application) as server:
        source = Prometheus(str(server.make_url("/")))
        found = await source.utilization_percent("llm", ("chat-a", "chat-b"))
    assert asked == ['avg(DCGM_FI_DEV_GPU_UTIL{namespace="llm",pod=~"chat-a|chat-b"})']
    if isinstance(expected, float):
        assert found == expected
    else:
        assert isinstance(found, Unmeasured)
        assert expected in found.why


@pytest.mark.parametrize(
    "url, why", [("", "has no prometheusUrl"), ("http://127.0.0.1:1", "does not answer")]
)
async def test_no_prometheus_is_no_value(url: str, why: str) -> None:
    found = await Prometheus(url).utilization_percent("llm", ("chat-a",))
    assert isinstance(found, Unmeasured)
    assert why in found.why
