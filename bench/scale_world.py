"""What the parts of `bench.scale` stand on: a server, an operator at work, many resources."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import yaml
from bench.operator_process import Operator, until
from tests.cluster.envtest import Server, running

from speculative_operator.cluster.resources import JSON, SPECULATIVE_DEPLOYMENT

CREATORS = 12
"""Connections of the burst, as in the comparison with a peer."""
SPEC: JSON = {
    "speculation": {"method": "NGram", "numSpeculativeTokens": 4},
    "lanes": {"native": {"replicas": 1}},
}
"""Two revisions: the accelerated one and, beside it, the native one."""


def a_parent(namespace: str, name: str, **more: JSON) -> JSON:
    """A resource as a user creates it; each has a model of its own, and so words of its own."""
    return {
        "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
        "kind": SPECULATIVE_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**SPEC, "target": {"model": f"file:///models/{name}"}, **more},
    }


async def in_parallel(work: Iterator[Callable[[], Awaitable[object]]], connections: int) -> None:
    """Runs the calls, so many at a time."""

    async def worker() -> None:
        for call in work:
            await call()

    await asyncio.gather(*(worker() for _ in range(connections)))


@contextmanager
def a_server() -> Iterator[tuple[Server, Path]]:
    """An API server in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as name:
        folder = Path(name)
        with running(folder) as server:
            for namespace in ("bare", "operated"):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                server.raw("POST", "/api/v1/namespaces", yaml.safe_dump(body).encode())
            yield server, folder


@asynccontextmanager
async def a_standby(server: Server, folder: Path, port: int) -> AsyncIterator[Operator]:
    """A second operator, that waits for the first one's Lease."""
    operator = Operator(server, folder, port, identity="standby")
    operator.start()
    try:
        yield operator
    finally:
        operator.end()


@asynccontextmanager
async def an_operator(server: Server, folder: Path, port: int) -> AsyncIterator[Operator]:
    """The operator, at work."""
    operator = Operator(server, folder, port)
    operator.compile()
    operator.start()
    try:

        async def works() -> bool:
            return bool(operator.requests().get(("list", "SpeculativeDeployment")))

        await until(works)
        yield operator
    finally:
        operator.end()
