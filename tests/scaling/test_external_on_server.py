"""external.metrics.k8s.io behind the real aggregator: who may read, and the real autoscaler."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cluster.envtest import Server, controller_manager
from tests.reconcile.simulation import Simulation
from tests.reconcile.test_process_on_server import until
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    Run,
    is_complete,
    never,
    words_hash,
)
from tests.scaling.serving import is_available, registered, served

from speculative_api import labels
from speculative_api.worker import Digest
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import AUTOSCALER, DEPLOYMENT, JSON, Key
from speculative_operator.desired.autoscaling import METRIC_LABEL
from speculative_operator.external.prometheus import Prometheus
from speculative_operator.external.values import Values
from speculative_operator.scaling.signals import Unmeasured, Value
from speculative_operator.settings import Settings

pytestmark = pytest.mark.cluster

ROOT = "/apis/external.metrics.k8s.io/v1beta1"
PATH = f"{ROOT}/namespaces/default/speculative_requests_waiting"
SELECTOR = f"labelSelector={METRIC_LABEL}%3Dchat"


async def seven(key: Key, name: str) -> Value:
    return 7.0 if key == ("default", "chat") else Unmeasured(f"no {name} of {key[1]}")


def with_certificate(folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "proxy-ca.crt"))
    if name:
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


@pytest.mark.parametrize(
    "certificate, user, code",
    [
        pytest.param("", "admin", 401, id="no certificate"),
        pytest.param("other", "admin", 401, id="another name of the same authority"),
        pytest.param("front-proxy", "", 401, id="the proxy without a user"),
        pytest.param("front-proxy", "nobody", 403, id="a user without the right"),
        pytest.param("front-proxy", "admin", 200, id="a user with the right"),
    ],
)
async def test_only_the_front_proxy_and_only_for_whom_may_read(
    api_server: Server, certificate: str, user: str, code: int
) -> None:
    headers = {"X-Remote-User": user} if user else {}
    if user == "admin":
        headers["X-Remote-Group"] = "system:masters"
    async with (
        Client(api_server.access) as client,
        served(api_server, client, seven) as port,
        aiohttp.ClientSession() as session,
    ):
        url = f"https://localhost:{port}"
        tls = with_certificate(api_server.folder, certificate)
        async with session.get(f"{url}{PATH}?{SELECTOR}", headers=headers, ssl=tls) as answer:
            assert answer.status == code
            if code == 200:
                (item,) = (await answer.json())["items"]
                assert item["value"] == "7000m"
        async with session.get(f"{url}{ROOT}", headers=headers, ssl=tls) as answer:
            assert answer.status == (200 if code == 403 else code)
        async with session.get(f"{url}/healthz", ssl=tls) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "query, code, words",
    [
        ("", 400, "labelSelector must be"),
        (f"labelSelector={METRIC_LABEL}+in+(a,b)", 400, "labelSelector must be"),
        (f"labelSelector={METRIC_LABEL}%3Dother", 404, "not measured: no"),
    ],
)
async def test_what_is_not_measured_is_an_error_and_no_zero(
    api_server: Server, query: str, code: int, words: str
) -> None:
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    async with (
        Client(api_server.access) as client,
        served(api_server, client, seven) as port,
        aiohttp.ClientSession() as session,
        session.get(
            f"https://localhost:{port}{PATH}?{query}",
            headers=headers,
            ssl=with_certificate(api_server.folder, "front-proxy"),
        ) as answer,
    ):
        assert answer.status == code
        assert words in (await answer.json())["message"]


class Loaded(Simulation):
    """A simulation whose engines have a queue."""

    waiting = 0
    silent = False

    def digest(self, uid: str) -> Digest | None:
        found = super().digest(uid)
        if found is None or self.silent:
            return None
        share, rest = divmod(self.waiting, len(self.revisions))
        mine = share + (list(self.revisions).index(uid) < rest)
        return found.model_copy(update={"waiting": mine})


AUTOSCALING = {
    "minReplicas": 1,
    "maxReplicas": 6,
    "metrics": [{"name": "RequestsWaiting", "targetPerPod": 4}],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
}
HELD = {"steps": [{"weight": 50}, {"pause": {}}], "guard": {"durationSeconds": 30}}


class Scaled(Run):
    """A run in which the real autoscaler has time to act."""

    async def until_spec(self, condition: Callable[[JSON, JSON], object]) -> JSON:
        """Passes and steps, without a look away from what stable is given."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + 60
        while loop.time() < limit:
            before = (await self.simulation.parent())["spec"]["replicas"]
            await self.passes()
            parent = await self.simulation.parent()
            status = parent.get("status", {})
            await self.stable_is_whole(status, min(before, parent["spec"]["replicas"]))
            if condition(parent["spec"], status):
                return status  # type: ignore[no-any-return]
            await self.simulation.step()
        pytest.fail(f"not reached: {parent['spec']['replicas']} {status}")

    async def stable_is_whole(self, status: JSON, asked: int) -> None:
        """The autoscaler may have moved meanwhile; stable has the fewer of both at least."""
        name = f"{self.simulation.name}-{status['stable']['hash']}"
        deployment = await self.simulation.client.get(DEPLOYMENT, "default", name)
        assert deployment["spec"]["replicas"] >= asked


async def test_the_real_autoscaler_goes_up_and_down_during_a_rollout_and_revives_no_canary(
    api_server: Server,
) -> None:
    async with (
        Client(api_server.access) as outside,
        CrashingClient(api_server.access, before=never, after=never) as client,
    ):
        simulation = Loaded(outside, "scaled")
        run = Scaled(simulation, client)
        values = Values(
            run.stores,
            simulation,
            Settings(),
            Prometheus(""),
            utc_now=lambda: simulation.now,
        )
        with controller_manager(api_server, "horizontal-pod-autoscaler-controller"):
            async with (
                served(api_server, outside, values.of) as port,
                registered(api_server, outside, port),
            ):
                await until(lambda: is_available(api_server))
                await simulation.create(autoscaling=AUTOSCALING, rollout=HELD)
                await run.until(is_complete)
                await run.until_spec(lambda _, s: state(s) == "True")
                await simulation.change(ANOTHER_K)
                second = words_hash(await simulation.parent())
                await run.until_spec(lambda _, s: (s.get("canary") or {}).get("held"))

                simulation.waiting = 16
                status = await run.until_spec(
                    lambda spec, s: (
                        spec["replicas"] == 4
                        and s["stable"]["readyReplicas"] == 4
                        and s["canary"]["replicas"] == 2
                    )
                )
                assert status["canary"]["hash"] == second
                simulation.waiting = 0
                await run.until_spec(lambda spec, s: spec["replicas"] == s["replicas"] == 1)

                abort = {"metadata": {"annotations": {labels.ABORT: second}}}
                await simulation.change(abort)
                await run.until_spec(lambda _, s: s.get("failedRevisions") and not s["retiring"])
                simulation.waiting = 16
                await run.until_spec(
                    lambda spec, s: spec["replicas"] == 4 and s["stable"]["readyReplicas"] == 4
                )
                canary = await outside.get(DEPLOYMENT, "default", f"scaled-{second}")
                assert canary["spec"]["replicas"] == 0
                # The metric goes: nothing moves, and status says so in the autoscaler's words.
                simulation.silent = True
                status = await run.until_spec(lambda _, s: state(s) == "False")
                (said,) = [c for c in status["conditions"] if c["type"] == "AutoscalingActive"]
                assert "FailedGetExternalMetric" in said["message"]
                assert (await simulation.parent())["spec"]["replicas"] == 4
                hpa = await outside.get(AUTOSCALER, "default", "scaled")
                assert hpa["spec"]["maxReplicas"] == 6


def state(status: JSON) -> str:
    found: dict[str, Any] = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return str(found.get("AutoscalingActive", ""))
