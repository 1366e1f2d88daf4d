"""external.metrics.k8s.io/v1beta1 over HTTPS, as the API server's aggregator asks for it."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import Key
from speculative_operator.desired.autoscaling import METRIC_LABEL
from speculative_operator.errors import OperatorError
from speculative_operator.external.identity import FrontProxy, Reviewer, User, front_proxy
from speculative_operator.external.values import NAMES
from speculative_operator.scaling.signals import Unmeasured, Value

log = logging.getLogger(__name__)

GROUP_VERSION: Final = "external.metrics.k8s.io/v1beta1"
_ROOT: Final = f"/apis/{GROUP_VERSION}"
PROXY_SECONDS: Final = 60.0
"""Between two looks at the front proxy's authority, which may be rotated."""
AGAIN_SECONDS: Final = 5.0
"""Likewise while it can't be read."""

Measure = Callable[[Key, str], Awaitable[Value]]


def application(measure: Measure, proxy: FrontProxy, reviewer: Reviewer) -> web.Application:
    """The whole API; /healthz needs no certificate."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def resources(request: web.Request) -> web.Response:
        if _user(request, proxy) is None:
            return _status(401, "no certificate of the front proxy")
        listed = [
            {
                "name": name,
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
            for name in sorted(NAMES)
        ]
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION}
        return web.json_response(body | {"resources": listed})

    async def metric(request: web.Request) -> web.Response:
        user = _user(request, proxy)
        if user is None:
            return _status(401, "no certificate of the front proxy")
        namespace, name = request.match_info["namespace"], request.match_info["metric"]
        if not await reviewer.may_read(user, namespace, name):
            return _status(403, f"{user.name} may not list {name} in {namespace}")
        resource = _resource(request.query.get("labelSelector", ""))
        if resource is None:
            return _status(400, f"labelSelector must be {METRIC_LABEL}=<name of the resource>")
        return _answer(await measure((namespace, resource), name), name, resource)

    found = web.Application(middlewares=[_failures])
    found.router.add_get("/healthz", healthz)
    found.router.add_get(_ROOT, resources)
    found.router.add_get(_ROOT + "/namespaces/{namespace}/{metric}", metric)
    return found


@web.middleware
async def _failures(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Nobody is let through because the API server did not answer."""
    try:
        return await handler(request)
    except OperatorError as error:
        log.warning("event=metric-not-served path=%s why=%r", request.path, str(error))
        return _status(503, "the API server does not answer")


def _user(request: web.Request, proxy: FrontProxy) -> User | None:
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not proxy.trusts(certificate):
        return None
    name = next((v for h in proxy.user_headers if (v := request.headers.get(h))), "")
    groups = tuple(g for h in proxy.group_headers for g in request.headers.getall(h, []))
    return User(name, groups) if name else None


def _resource(selector: str) -> str | None:
    """The name in `speculative_dev_name=NAME`, the only selector our autoscalers use."""
    key, _, value = selector.replace("==", "=").partition("=")
    plain = bool(value) and not set(value) & set(",=!() ")
    return value if key.strip() == METRIC_LABEL and plain else None


def _answer(found: Value, name: str, resource: str) -> web.Response:
    if isinstance(found, Unmeasured):
        # An error and not 0: the autoscaler then leaves the pods as they are.
        return _status(404, f"{name} of {resource} is not measured: {found.why}")
    item = {
        "metricName": name,
        "metricLabels": {METRIC_LABEL: resource},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{round(found * 1000)}m",
    }
    body = {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}}
    return web.json_response(body | {"items": [item]})


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return web.json_response(body | {"code": code, "message": message}, status=code)


class ExternalMetrics:
    """Serves until cancelled; begins anew with a rotated authority. Off without certificates."""

    def __init__(
        self, client: Client, measure: Measure, *, port: int, certificates: Path | None
    ) -> None:
        self._client = client
        self._measure = measure
        self._port = port
        self._certificates = certificates
        """Folder with tls.crt and tls.key, which the API server knows by the APIService."""
        self._reviewer = Reviewer(client)
        self.serving = asyncio.Event()

    def not_ready(self) -> str:
        """Whether the API server could not ask us yet; empty when it can, or needn't."""
        off = self._certificates is None or self.serving.is_set()
        return "" if off else "external metrics are not served yet"

    async def run(self) -> None:
        """Never returns, unless it is off."""
        if self._certificates is None:
            return
        proxy = await self._proxy()
        while True:
            async with self._serving(proxy, self._certificates):
                self.serving.set()
                newer = proxy
                while newer == proxy:
                    await asyncio.sleep(PROXY_SECONDS)
                    newer = await self._proxy()
                proxy = newer

    async def _proxy(self) -> FrontProxy:
        while True:
            try:
                return await front_proxy(self._client)
            except OperatorError as error:
                log.warning("event=front-proxy-unknown why=%r", str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    @asynccontextmanager
    async def _serving(self, proxy: FrontProxy, certificates: Path) -> AsyncIterator[None]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        tls.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
        tls.load_verify_locations(cadata=proxy.authority)
        # Optional, so that /healthz stays open; every other path asks for it.
        tls.verify_mode = ssl.CERT_OPTIONAL
        runner = web.AppRunner(application(self._measure, proxy, self._reviewer), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, port=self._port, ssl_context=tls).start()
            log.info("event=external-metrics-served port=%d", self._port)
            yield
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await runner.cleanup()
