"""How the operator fares with many resources: `python -m bench.scale [--quick] [--count N]`.

Three parts (`--parts`), each in a world of its own: a burst of resources, then idle,
events and a restart; `cycles` of creation and deletion; `rollouts` at the same time.

Starts an API server and etcd of its own (no controllers, no kubelet, nothing else),
and the operator as a process. A bare loop applies the same objects in the same run,
with the operator's own client, so that the API server's speed cancels out. Prints a
table; the same figures go to build/bench-scale.json. Run it alone on a quiet machine:
the load at start and end is printed with the figures, and how fast a processor was
while it lasted: on a shared machine even CPU seconds grow with the load.
"""

import argparse
import asyncio
import json
import os
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.ending import unwind_on_sigterm
from bench.operator_process import Operator, reference_ms, until
from bench.scale_cycles import cycles
from bench.scale_quiet import events, idle, idle_with_a_standby
from bench.scale_rollouts import rollouts
from bench.scale_world import CREATORS, a_parent, a_server, a_standby, an_operator, in_parallel

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec, SpeculativeDeploymentStatus
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import (
    BY_KIND,
    CHILDREN,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)
from speculative_operator.desired.objects import CREATE_ONLY, desired_objects
from speculative_operator.desired.revision import words_of
from speculative_operator.rollout.decide import decide
from speculative_operator.settings import Settings
from speculative_operator.snapshot import Snapshot

REPORT = Path("build/bench-scale.json")
COUNT, QUICK = 1000, 100
PARTS = ("burst", "cycles", "rollouts")
APPLIERS = 8
"""Applies at a time of the bare loop: as many as the operator's passes."""
CHANGED = "r99"
"""The resource that is edited while nobody works: the last one by name."""
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
    "two_idle_writes": 0,
    "two_idle_reads_per_second": 1.0,
    "event_p50_ms": 20.0,
    "cycles_growth_mib": 5.0,
    "cycles_kib_each": 2.0,
    "rollouts_cpu_percent": 50.0,
}


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


async def how_many(client: Client, kind: Resource, namespace: str) -> int:
    """Objects of one kind, counted by the server."""
    path = kind.path(namespace)
    _, answer = await client.request("list", kind, "GET", path, query={"limit": "1"})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))


async def burst(client: Client, operator: Operator, count: int) -> dict[str, float]:
    """Creates the parents at once; until every child is there and every status is written."""
    parent = await client.create(SPECULATIVE_DEPLOYMENT, a_parent("operated", "first"))
    expected = len(rendered(parent)[0])

    async def children() -> int:
        # Nobody else creates anything there; to read thousands of objects would be in the figure.
        kinds = [kind for kind in CHILDREN if not kind.optional]
        return sum([await how_many(client, kind, "operated") for kind in kinds])

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


async def restart(client: Client, operator: Operator, count: int) -> dict[str, float]:
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
    seconds, cpu_seconds = time.monotonic() - began, operator.cpu_seconds()

    async def looked_at_all() -> bool:
        return operator.passes() > count

    # It acts on what was edited before it knows everything else, and is largest afterwards.
    await until(looked_at_all, every=0.5)
    return {
        "end_seconds": ended,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "all_seconds": time.monotonic() - began,
        "all_cpu_seconds": operator.cpu_seconds(),
        "rss_mib": operator.rss_mib(),
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every part that is asked for, one after the other."""
    count, port = arguments.count, arguments.port
    report: dict[str, Any] = {"count": count, "load_before": os.getloadavg()[0]}
    report["reference_ms"] = [reference_ms()]

    def note(name: str, figures: dict[str, float]) -> None:
        report[name] = figures
        report["reference_ms"].append(reference_ms())
        say(name, figures)

    for part in arguments.parts:
        with a_server() as (server, folder):
            async with Client(server.access, timeout_seconds=60) as client:
                if part == "burst":
                    note("bare", await bare_loop(client, count))
                async with an_operator(server, folder, port) as operator:
                    if part == "burst":
                        note("burst", await burst(client, operator, count))
                        note("idle", await idle(operator))
                        async with a_standby(server, folder, port + 1) as standby:
                            note("two", await idle_with_a_standby(operator, standby))
                        note("events", await events(client))
                        note("restart", await restart(client, operator, count))
                    elif part == "cycles":
                        note("cycles", await cycles(client, operator, arguments.cycles))
                    else:
                        found = await rollouts(client, operator, arguments.rollouts)
                        for name, figures in found.items():
                            note(name, figures)
    report["load_after"] = os.getloadavg()[0]
    report["goals"] = GOALS
    return report


def say(name: str, figures: dict[str, float]) -> None:
    """One line of the table."""
    text = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
    print(f"{name:10} {text}", flush=True)


def verdict(report: dict[str, Any]) -> Iterator[str]:
    """Each goal and whether it was met; figures of a busy machine prove nothing."""
    found = dict(figures_of(report))
    for name, goal in GOALS.items():
        if name in found:
            word = "met" if found[name] <= goal else "OVER"
            yield f"{name:24} {found[name]:9.3f}  goal {goal:g}  {word}"
    if "burst" in report:
        yield LIMIT
        yield from beside_a_peer(report)
    load = f"{report['load_before']:.1f} before, {report['load_after']:.1f} after"
    yield f"load {load}, {os.cpu_count()} cores"
    reference = ", ".join(f"{value:.1f}" for value in report["reference_ms"])
    yield f"CPU ms of the same piece of work, before and after each part: {reference}"


def figures_of(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """What there is a goal for, as far as it was measured."""
    if "burst" in report:
        yield "times_of_bare_loop", report["burst"]["seconds"] / report["bare"]["seconds"]
        yield "cpu_ms_per_write", report["burst"]["cpu_ms_per_write"]
        yield "restart_seconds", report["restart"]["seconds"]
        yield "rss_mib", max(report["idle"]["rss_mib"], report["restart"]["rss_mib"])
        yield "idle_writes", report["idle"]["writes"]
        yield "idle_cpu_percent", report["idle"]["cpu_percent"]
        yield "idle_reads_per_second", report["idle"]["reads_per_second"]
        yield "two_idle_writes", report["two"]["writes"]
        yield "two_idle_reads_per_second", report["two"]["reads_per_second"]
        yield "event_p50_ms", report["events"]["p50_ms"]
    if "cycles" in report:
        rss = report["cycles"]
        yield "cycles_growth_mib", rss["rss_mib_at_100_percent"] - rss["rss_mib_at_25_percent"]
        yield "cycles_kib_each", rss["kib_each"]
    if "rollouts" in report:
        yield "rollouts_cpu_percent", report["rollouts"]["cpu_percent"]


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
    parser.add_argument("--cycles", type=int, help="1000 unless said otherwise")
    parser.add_argument("--rollouts", type=int, help="at once, 200 unless said otherwise")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--port", type=int, default=18082, help="of the operator's metrics")
    arguments = parser.parse_args()
    arguments.count = arguments.count or (QUICK if arguments.quick else COUNT)
    arguments.cycles = arguments.cycles or (QUICK if arguments.quick else 1000)
    arguments.rollouts = arguments.rollouts or (20 if arguments.quick else 200)
    if arguments.count < QUICK:
        parser.error(f"--count {arguments.count} is too few: {CHANGED} is to be among them")
    report = asyncio.run(measure(arguments))
    for line in verdict(report):
        print(line)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))
    print(f"written to {REPORT}")
    return 0


if __name__ == "__main__":
    unwind_on_sigterm()
    raise SystemExit(main())
