"""The operator's external metrics behind a real aggregator, for tests."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from tests.cluster.envtest import Server
from tests.ports import free_port

from speculative_operator.cluster.client import Client
from speculative_operator.external.server import ExternalMetrics, Measure

APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = "v1beta1.external.metrics.k8s.io"


def certificates(server: Server) -> Path:
    """A folder with the serving certificate, as a mounted Secret."""
    folder = server.folder / "served"
    folder.mkdir(exist_ok=True)
    for kind in ("crt", "key"):
        source = server.folder / f"served.{kind}"
        (folder / f"tls.{kind}").write_bytes(source.read_bytes())
    return folder


@asynccontextmanager
async def served(server: Server, client: Client, measure: Measure) -> AsyncIterator[int]:
    """The API on a free port, which is given."""
    port = free_port()
    metrics = ExternalMetrics(client, measure, port=port, certificates=certificates(server))
    task = asyncio.create_task(metrics.run())
    try:
        await metrics.serving.wait()
        yield port
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def registered(server: Server, client: Client, port: int) -> AsyncIterator[None]:
    """An APIService that leads to this port, taken away at the end."""
    services = "/api/v1/namespaces/default/services"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    authority = base64.b64encode((server.folder / "proxy-ca.crt").read_bytes()).decode()
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": NAME},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": authority,
            "service": {"namespace": "default", "name": "metrics", "port": port},
        },
    }
    await asyncio.to_thread(server.raw, "POST", services, yaml.safe_dump(service).encode())
    await asyncio.to_thread(server.raw, "POST", APISERVICES, yaml.safe_dump(api).encode())
    try:
        yield
    finally:
        await asyncio.to_thread(server.raw, "DELETE", f"{APISERVICES}/{NAME}")
        await asyncio.to_thread(server.raw, "DELETE", f"{services}/metrics")


async def is_available(server: Server) -> bool:
    text = await asyncio.to_thread(server.raw, "GET", f"{APISERVICES}/{NAME}")
    conditions = yaml.safe_load(text).get("status", {}).get("conditions") or []
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)
