"""How the operator fares with many resources: `python -m bench.scale [--quick] [--count N]`.

Starts an API server and etcd of its own (no controllers, no kubelet, nothing else),
and the operator as a process. A bare loop applies the same objects in the same run,
with the operator's own client, so that the API server's speed cancels out. Prints a
table; the same figures go to build/bench-scale.json. Run it alone on a quiet machine:
the load at start and end is printed with the figures.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from bench.ending import unwind_on_sigterm
from bench.operator_process import Operator, until
from tests.cluster.envtest import Server, running

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec, SpeculativeDeploymentStatus
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import (
    BY_KIND,
    CHILDREN,
    JSON,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
)
from speculative_operator.desired.objects import CREATE_ONLY, desired_objects
from speculative_operator.desired.revision import words_of
from speculative_operator.rollout.decide import decide
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot

REPORT = Path("build/bench-scale.json")
COUNT, QUICK = 1000, 100
CREATORS = 12
"""Connections of the burst, as in the comparison with a peer."""
APPLIERS = 8
"""Applies at a time of the bare loop: as many as the operator's passes."""
IDLE_SECONDS = 30.0
EVENTS = 21
CHANGED = "r99"
"""The resource that is edited while nobody works: the last one by name."""
SPEC: JSON = {
    "target": {"model": "file:///models/target"},
    "speculation": {"method": "NGram", "numSpeculativeTokens": 4},
    "lanes": {"native": {"replicas": 1}},
}
"""Two revisions: the accelerated one and, beside it, the native one."""
LIMIT = (
    "not measured: how soon Deployments are observed. kube-controller-manager's default client "
    "limit of 20 requests/s lets about 5 Deployments a second through, whatever an operator does"
)
GOALS = {
    "times_of_bare_loop": 1.3,
    "cpu_ms_per_write": 3.0,
    "restart_seconds": 3.0,
    "rss_mib": 200.0,
    "idle_writes": 0,
    "idle_cpu_percent": 2.0,
    "idle_reads_per_second": 1.0,
    "event_p50_ms": 20.0,
}


def a_parent(namespace: str, name: str) -> JSON:
    """A resource as a user creates it."""
    return {
        "apiVersion": SPECULATIVE_DEPLOYMENT.api_version,
        "kind": SPECULATIVE_DEPLOYMENT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": SPEC,
    }


async def in_parallel(work: Iterator[Callable[[], Awaitable[object]]], connections: int) -> None:
    """Runs the calls, so many at a time."""

    async def worker() -> None:
        for call in work:
            await call()

    await asyncio.gather(*(worker() for _ in range(connections)))


async def bare_loop(client: Client, count: int) -> dict[str, float]:
    """Creates the parents, applies what the operator would, writes one status each."""
    began, cpu = time.monotonic(), _own_cpu()
    writes = 0

    async def one(number: int) -> None:
        nonlocal writes
        parent = await client.create(SPECULATIVE_DEPLOYMENT, a_parent("bare", f"r{number}"))
        bodies, status = rendered(parent)
        for body in bodies:
            kind = BY_KIND[body["kind"]]
            if body["kind"] in CREATE_ONLY:
                await client.create(kind, body)
            else:
                await client.apply(kind, body)
        await client.set_status(SPECULATIVE_DEPLOYMENT, parent, status)
        writes += len(bodies) + 1

    def call(number: int) -> Callable[[], Awaitable[object]]:
        return lambda: one(number)

    await in_parallel((call(number) for number in range(count)), APPLIERS)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "writes": writes,
        "cpu_ms_per_write": 1000 * (_own_cpu() - cpu) / writes,
    }


def rendered(parent: JSON) -> tuple[tuple[JSON, ...], JSON]:
    """What the operator makes of a new resource, by its own rules."""
    metadata = parent["metadata"]
    spec = SpeculativeDeploymentSpec.model_validate(parent["spec"])
    snapshot = Snapshot(
        now=datetime.now(UTC),
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=1,
        spec=spec,
        status=SpeculativeDeploymentStatus(),
        words=words_of(spec),
    )
    decision = decide(snapshot)
    snapshot = replace(snapshot, status=decision.status)
    status = decision.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return desired_objects(snapshot, decision, Settings()), status


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def burst(client: Client, operator: Operator, count: int) -> dict[str, float]:
    """Creates the parents at once; until every child is there and every status is written."""
    parent = await client.create(SPECULATIVE_DEPLOYMENT, a_parent("operated", "first"))
    expected = len(rendered(parent)[0])

    async def children() -> int:
        lists = [await client.list_all(kind, "operated") for kind in CHILDREN if not kind.optional]
        return sum(1 for things, _ in lists for t in things if t["metadata"].get("ownerReferences"))

    async def first_is_done() -> bool:
        return await children() >= expected

    await until(first_is_done)
    before, cpu, began = operator.writes(), operator.cpu_seconds(), time.monotonic()
    reads, passes = operator.reads(), operator.passes()

    def call(number: int) -> Callable[[], Awaitable[object]]:
        body = a_parent("operated", f"r{number}")
        return lambda: client.create(SPECULATIVE_DEPLOYMENT, body)

    await in_parallel((call(number) for number in range(count)), CREATORS)
    created = time.monotonic() - began

    async def enough_written() -> bool:
        # Its own counters: listing thousands of objects again and again would be the load.
        return operator.writes() - before >= count * (expected + 1)

    await until(enough_written, every=1.0)

    async def all_there() -> bool:
        if await children() < (count + 1) * expected:
            return False
        parents, _ = await client.list_all(SPECULATIVE_DEPLOYMENT, "operated")
        return all(p.get("status", {}).get("observedGeneration") == 1 for p in parents)

    await until(all_there, every=0.5)
    seconds, writes = time.monotonic() - began, operator.writes() - before
    return {
        "seconds": seconds,
        "create_seconds": created,
        "children_each": expected,
        "writes_each": writes / count,
        "reads_each": (operator.reads() - reads) / count,
        "passes_each": (operator.passes() - passes) / count,
        "cpu_seconds": operator.cpu_seconds() - cpu,
        "cpu_ms_per_write": 1000 * (operator.cpu_seconds() - cpu) / writes,
        "rss_mib": operator.rss_mib(),
        "peak_mib": operator.rss_mib("VmHWM"),
    }


async def idle(operator: Operator) -> dict[str, float]:
    """An unchanged world for a while, once nothing was written for 5 s."""
    quiet_since, last = time.monotonic(), operator.writes()
    while time.monotonic() - quiet_since < 5.0:
        await asyncio.sleep(0.5)
        if (now := operator.writes()) != last:
            quiet_since, last = time.monotonic(), now
    writes, reads, cpu = operator.writes(), operator.reads(), operator.cpu_seconds()
    began = time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    return {
        "writes": operator.writes() - writes,
        "reads_per_second": (operator.reads() - reads) / seconds,
        "cpu_percent": 100 * (operator.cpu_seconds() - cpu) / seconds,
        "rss_mib": operator.rss_mib(),
    }


async def events(client: Client) -> dict[str, float]:
    """A child is deleted by somebody: milliseconds until its successor is seen.

    The pass began somewhere in between: both requests and our own watch are in the figure.
    """
    found: list[float] = []
    for number in range(EVENTS):
        name = f"r{number}-gateway"
        live = await client.get(SERVICE_ACCOUNT, "operated", name)
        # The object's own version may be too old to watch from.
        _, version = await client.list_all(
            SERVICE_ACCOUNT, "operated", field=f"metadata.name={name}"
        )
        watch = client.watch(SERVICE_ACCOUNT, "operated", resource_version=version)
        began = time.monotonic()
        await client.delete(SERVICE_ACCOUNT, live)
        async for kind, thing in watch:
            if thing["metadata"].get("name") == name and kind == "ADDED":
                found.append(1000 * (time.monotonic() - began))
                break
    return {
        "p50_ms": statistics.median(found),
        "max_ms": max(found),
        "count": len(found),
    }


async def restart(client: Client, operator: Operator) -> dict[str, float]:
    """SIGTERM, a change while nobody works, and the time until a new process acted on it."""
    began = time.monotonic()
    operator.stop()
    ended = time.monotonic() - began
    path = SPECULATIVE_DEPLOYMENT.path("operated", CHANGED)
    patch = {"spec": {"speculation": {"numSpeculativeTokens": 2}}}
    await client.request(
        "edit", SPECULATIVE_DEPLOYMENT, "PATCH", path, body=patch, content_type=MERGE_PATCH
    )
    began = time.monotonic()
    operator.start()

    async def acted() -> bool:
        live = await client.get(SPECULATIVE_DEPLOYMENT, "operated", CHANGED)
        return bool(live["status"].get("observedGeneration") == 2)

    await until(acted, every=0.02)
    seconds = time.monotonic() - began
    return {
        "end_seconds": ended,
        "seconds": seconds,
        "cpu_seconds": operator.cpu_seconds(),
        "rss_mib": operator.rss_mib(),
    }


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
        if operator.process is not None and operator.process.poll() is None:
            operator.process.kill()
            operator.process.wait()


async def measure(count: int, port: int) -> dict[str, Any]:
    """Everything, in one run."""
    report: dict[str, Any] = {"count": count, "load_before": os.getloadavg()[0]}
    with a_server() as (server, folder):
        async with Client(server.access, timeout_seconds=60) as client:
            say("bare loop", report.setdefault("bare", await bare_loop(client, count)))
            async with an_operator(server, folder, port) as operator:
                say("burst", report.setdefault("burst", await burst(client, operator, count)))
                say("idle", report.setdefault("idle", await idle(operator)))
                say("events", report.setdefault("events", await events(client)))
                say("restart", report.setdefault("restart", await restart(client, operator)))
    report["load_after"] = os.getloadavg()[0]
    report["times_of_bare_loop"] = report["burst"]["seconds"] / report["bare"]["seconds"]
    report["goals"] = GOALS
    return report


def say(name: str, figures: dict[str, float]) -> None:
    """One line of the table."""
    text = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
    print(f"{name:10} {text}", flush=True)


def verdict(report: dict[str, Any]) -> Iterator[str]:
    """Each goal and whether it was met; figures of a busy machine prove nothing."""
    found = {
        "times_of_bare_loop": report["times_of_bare_loop"],
        "cpu_ms_per_write": report["burst"]["cpu_ms_per_write"],
        "restart_seconds": report["restart"]["seconds"],
        "rss_mib": max(report["idle"]["rss_mib"], report["restart"]["rss_mib"]),
        "idle_writes": report["idle"]["writes"],
        "idle_cpu_percent": report["idle"]["cpu_percent"],
        "idle_reads_per_second": report["idle"]["reads_per_second"],
        "event_p50_ms": report["events"]["p50_ms"],
    }
    for name, goal in GOALS.items():
        word = "met" if found[name] <= goal else "OVER"
        yield f"{name:24} {found[name]:9.3f}  goal {goal:g}  {word}"
    yield LIMIT
    yield from beside_a_peer(report)
    load = f"{report['load_before']:.1f} before, {report['load_after']:.1f} after"
    yield f"load {load}, {os.cpu_count()} cores"


def beside_a_peer(report: dict[str, Any]) -> Iterator[str]:
    """The same per child object for a peer, measured on two such cores with 1,000 resources.

    Argo Rollouts (commit 9f8d111d8f8e) makes one ReplicaSet per resource: 16.9 CPU s, 184 MiB,
    8.0 requests, 0.1 % of a core and 0.5 requests/s when idle, 18 to 20 s to act after a restart.
    """
    burst = report["burst"]
    children, count = burst["children_each"], report["count"]
    requests = burst["writes_each"] + burst["reads_each"]
    yield "per child object: ours, a peer's"
    yield f"  CPU ms            {1000 * burst['cpu_seconds'] / count / children:8.2f}  16.9"
    yield f"  requests          {requests / children:8.2f}  8.0"
    yield f"  resident KiB      {1024 * burst['rss_mib'] / count / children:8.1f}  188"


def main() -> int:
    """Exit status 0 whatever the figures say: they are for people."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} resources")
    parser.add_argument("--count", type=int, help=f"resources, {COUNT} unless said otherwise")
    parser.add_argument("--port", type=int, default=18082, help="of the operator's metrics")
    arguments = parser.parse_args()
    count = arguments.count or (QUICK if arguments.quick else COUNT)
    if count < QUICK:
        parser.error(f"--count {count} is too few: {CHANGED} is to be among them")
    report = asyncio.run(measure(count, arguments.port))
    for line in verdict(report):
        print(line)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))
    print(f"written to {REPORT}")
    return 0


if __name__ == "__main__":
    unwind_on_sigterm()
    raise SystemExit(main())
