"""The endpoints say what is wrong, and telemetry counts what changed something."""

import aiohttp
from tests.ports import free_port

from speculative_operator.serving import serving
from speculative_operator.telemetry import Telemetry


async def test_probes_answer_with_what_is_wrong() -> None:
    telemetry = Telemetry()
    wrong = {"/livez": "", "/readyz": "not listed yet: Pod"}
    port = free_port()
    async with (
        serving(
            port=port,
            telemetry=telemetry,
            alive=lambda: wrong["/livez"],
            ready=lambda: wrong["/readyz"],
        ),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        async with session.get("/livez") as answer:
            assert answer.status == 200
        async with session.get("/readyz") as answer:
            assert answer.status == 503
            assert await answer.text() == "not listed yet: Pod"
        telemetry.request("apply", "Deployment", 200)
        async with session.get("/metrics") as answer:
            line = 'api_requests_total{kind="Deployment",status="200",verb="apply"} 1.0'
            assert line in await answer.text()


def test_only_writes_to_our_objects_count_as_writes() -> None:
    telemetry = Telemetry()
    for verb, kind in [
        ("get", "ConfigMap"),
        ("watch", "Pod"),
        ("update", "Lease"),
        ("create", "Event"),
        ("apply", "Service"),
        ("patch-status", "SpeculativeDeployment"),
    ]:
        telemetry.request(verb, kind, 200)
    telemetry.request("apply", "Service", 409)
    assert telemetry.writes() == 2
