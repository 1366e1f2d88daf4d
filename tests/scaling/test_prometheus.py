"""GPU utilisation from Prometheus: what its answers mean, also those that make no sense."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from speculative_operator.external.prometheus import Prometheus
from speculative_operator.scaling.signals import Unmeasured


def a_result(value: str) -> dict[str, object]:
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [1, value]}]}
    return {"status": "success", "data": data}


@pytest.mark.parametrize(
    "status, body, expected",
    [
        (200, a_result("73.5"), 73.5),
        (200, a_result("250"), 100.0),
        (200, a_result("NaN"), "no DCGM_FI_DEV_GPU_UTIL of these pods: the query yields NaN"),
        (
            200,
            {"status": "success", "data": {"resultType": "vector", "result": []}},
            "no DCGM_FI_DEV_GPU_UTIL of these pods: the query found nothing",
        ),
        (200, {"data": 7}, "the answer is not one of Prometheus"),
        (200, a_result("x" * 100_000), "more than 65536 bytes"),
        (503, {}, "answered 503"),
        (302, {}, "answered 302"),
    ],
)
async def test_answers(status: int, body: dict[str, object], expected: float | str) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(str((await request.post())["query"]))
        return web.json_response(body, status=status)

    application = web.Application()
    application.router.add_post("/api/v1/query", answer)
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
