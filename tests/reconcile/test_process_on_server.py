"""The operator's program as a process: starts, works, survives kill -9, leaves cleanly."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server
from tests.ports import free_port

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import (
    CONTROLLER_REVISION,
    DEPLOYMENT,
    LEASE,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)
from speculative_operator.errors import ApiError

pytestmark = pytest.mark.cluster

PATIENCE = 60.0
"""Starting Python with kopf takes seconds on a busy machine."""


NAMELESS = """
import pwd, runpy
def getpwuid(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
runpy.run_module("speculative_operator", run_name="__main__")
"""
"""The program as a container runs it: with a user that has a number and no name."""


def a_kubeconfig(url: str, folder: Path, identity: str) -> Path:
    cluster = {"server": url, "insecure-skip-tls-verify": True}
    path = folder / f"kubeconfig-{identity}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": f"test-{identity}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def an_operator(
    server: Server,
    folder: Path,
    *,
    port: int,
    identity: str = "one",
    url: str = "",
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    nameless = {"LOGNAME", "USER", "LNAME", "USERNAME"}
    environment = {k: v for k, v in os.environ.items() if k not in nameless} | {
        "KUBECONFIG": str(a_kubeconfig(url or server.url, folder, identity)),
        "HTTP_PORT": str(port),
        "IDENTITY": identity,
        **(settings or {}),
    }
    with (folder / f"{identity}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", NAMELESS, env=environment, stderr=log
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def until(question: Callable[[], Coroutine[Any, Any, object]]) -> Any:
    """The first true answer; errors of a server that is not there yet count as no."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + PATIENCE
    while True:
        try:
            answer = await question()
        except (ApiError, aiohttp.ClientError) as error:
            answer = None
            why = str(error)
        else:
            why = "the answer was no"
        if answer:
            return answer
        assert loop.time() < limit, why
        await asyncio.sleep(0.1)


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def a_resource(client: Client, name: str) -> None:
    body = {
        "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
        "kind": SPECULATIVE_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": a_raw_spec(),
    }
    await client.create(SPECULATIVE_DEPLOYMENT, body)


async def test_operator_works_survives_kill_and_releases_its_lease(
    api_server: Server, tmp_path: Path
) -> None:
    async with Client(api_server.access) as client:

        async def children(resource: Resource, name: str) -> list[Any]:
            selector = f"speculative.dev/name={name}"
            return (await client.list_all(resource, "default", selector=selector))[0]

        async def is_ready() -> bool:
            return (await get(port, "/readyz"))[0] == 200

        port = free_port()
        await a_resource(client, "first")
        async with an_operator(api_server, tmp_path, port=port) as process:
            await until(lambda: children(DEPLOYMENT, "first"))
            assert len(await children(CONTROLLER_REVISION, "first")) == 1
            parent = await client.get(SPECULATIVE_DEPLOYMENT, "default", "first")
            assert "finalizers" not in parent["metadata"]
            assert "annotations" not in parent["metadata"]
            assert (await get(port, "/livez"))[0] == 200
            # It acts on what is new before it has listed everything.
            await until(is_ready)
            metrics = (await get(port, "/metrics"))[1]
            assert "speculative_operator_leading 1.0" in metrics
            process.kill()
            await process.wait()
        await a_resource(client, "second")
        async with an_operator(api_server, tmp_path, port=port) as process:
            await until(lambda: children(DEPLOYMENT, "second"))
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 15) == 0
        lease = await client.get(LEASE, "kube-public", "speculative-operator")
        assert not lease["spec"].get("holderIdentity")
        text = (tmp_path / "one.log").read_text()
        assert "Traceback" not in text, text
