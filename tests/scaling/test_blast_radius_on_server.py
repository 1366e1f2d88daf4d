"""What an external metrics provider does to namespaces that have nothing to do with it.

Measured with the real namespace controller: an unrelated namespace is deleted with
the provider up, down, and after it was taken away (docs/autoscaling.md has the figures).
"""

import asyncio
import time
import urllib.error
from typing import Any

import pytest
import yaml
from tests.cluster.envtest import Server, controller_manager
from tests.reconcile.test_process_on_server import until
from tests.scaling.serving import NAME, is_available, registered, served

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import Key
from speculative_operator.scaling.signals import Value

pytestmark = pytest.mark.cluster

NAMESPACES = "/api/v1/namespaces"
PROMPT_SECONDS = 15.0


async def one(key: Key, name: str) -> Value:
    del key, name
    return 1.0


class Namespace:
    """An unrelated namespace with one object in it."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    async def create(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._name}}
        await self._call("POST", NAMESPACES, yaml.safe_dump(body).encode())
        thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
        path = f"{NAMESPACES}/{self._name}/configmaps"
        await self._call("POST", path, yaml.safe_dump(thing).encode())

    async def delete(self) -> float:
        """Asks for the deletion; gives the time at which it was asked."""
        await self._call("DELETE", f"{NAMESPACES}/{self._name}")
        return time.monotonic()

    async def is_gone(self) -> bool:
        return await self._live() is None

    async def discovery_failed(self) -> str:
        """The namespace controller's own words about it."""
        live = await self._live()
        for condition in (live or {}).get("status", {}).get("conditions") or []:
            if condition["type"] == "NamespaceDeletionDiscoveryFailure":
                return str(condition["message"]) if condition["status"] == "True" else ""
        return ""

    async def _live(self) -> dict[str, Any] | None:
        try:
            text = await self._call("GET", f"{NAMESPACES}/{self._name}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        found: dict[str, Any] = yaml.safe_load(text)
        return found

    async def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        return await asyncio.to_thread(self._server.raw, method, path, body)


async def test_unrelated_namespaces_with_the_provider_up_down_and_gone(api_server: Server) -> None:
    up, down, gone = (Namespace(api_server, name) for name in ("up", "down", "gone"))
    for namespace in (up, down, gone):
        await namespace.create()
    seconds = {}
    async with Client(api_server.access) as client:
        with controller_manager(api_server, "namespace-controller"):
            async with served(api_server, client, one) as port:
                registration = registered(api_server, client, port)
                await registration.__aenter__()
                await until(lambda: is_available(api_server))
                began = await up.delete()
                await until(up.is_gone)
                seconds["up"] = time.monotonic() - began

            async def is_down() -> bool:
                return not await is_available(api_server)

            await until(is_down)
            began = await down.delete()
            # It stalls: this is what the chart's default keeps away from clusters.
            said = await until(down.discovery_failed)
            assert "external.metrics.k8s.io" in said
            assert not await down.is_gone()
            # The provider is uninstalled: what stalled goes on, and others are as ever.
            await registration.__aexit__(None, None, None)
            unregistered = time.monotonic()
            await until(down.is_gone)
            seconds["stalled, after uninstall"] = time.monotonic() - unregistered
            began = await gone.delete()
            await until(gone.is_gone)
            seconds["gone"] = time.monotonic() - began
    print({name: round(value, 2) for name, value in seconds.items()}, NAME)
    assert seconds["up"] < PROMPT_SECONDS
    assert seconds["gone"] < PROMPT_SECONDS
