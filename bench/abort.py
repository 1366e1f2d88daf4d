"""From an abort to weight 0 in every Envoy, many times: `python -m bench.abort`.

Without a cluster: a real API server, the operator's program, and gateways (real
Envoy, real agent) on loopback addresses, each with the ports it has in a pod. What
a cluster has beside that is played here: Deployments get pods that are ready at
once, Services get EndpointSlices. With `--cluster`, the local cluster of
`make cluster-up` with simulated workers; everything then is real. With `--played`
gateways and workers are only answers: what the operator and the API server need where
no Envoy takes their processors, without `weight_zero`. With
`--rollouts 16`, so many resources are aborted at the same moment, again and again.

Per abort, in milliseconds from the moment the annotation was sent:
`written`, when the API server told of a route that gives it nothing; `weight_zero`,
when the last Envoy's own runtime said 0; `observed`, when the operator said that it had
seen that everywhere. Goal: `weight_zero` under 100 at the median and under 300 at 95 of 100.
Figures go to build/bench-abort.json, after every
round and for each case (where, how many gateways and rollouts) beside the others, with
`--resume` on top of what the case has; `--minutes` ends it sooner.
On loopback a gateway's files lie in memory, as in its pod, and an Envoy is asked
only once its file has changed: the questions were most of what was measured.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.asked import PATIENCE_SECONDS, POLL_SECONDS, Asked, of_all
from bench.ending import unwind_on_sigterm
from bench.loopback import Loopback
from bench.on_cluster import on_cluster
from bench.on_played_pods import on_played_pods

from speculative_api.labels import ABORT, RETRY

REPORT = Path("build/bench-abort.json")
GOALS = {"p50": 100.0, "p95": 300.0}


@dataclass
class Times:
    """Milliseconds of all aborts."""

    written: list[float] = field(default_factory=list)
    weight_zero: list[float] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)

    @classmethod
    def known(cls, case: dict[str, Any]) -> "Times":
        """Those of a case in the report."""
        return cls(**{name: list(values) for name, values in case.get("times", {}).items()})

    def report(self) -> dict[str, Any]:
        return {
            "written": _figures(self.written),
            "weight_zero": _figures(self.weight_zero) if self.weight_zero else {},
            "observed": _figures(self.observed),
        }


def _figures(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    # Of a single one each rank is itself.
    rank = statistics.quantiles(ordered * (1 + (len(ordered) == 1)), n=100, method="inclusive")
    return {
        "count": len(ordered),
        "p50": round(rank[49], 1),
        "p95": round(rank[94], 1),
        "p99": round(rank[98], 1),
        "max": round(ordered[-1], 1),
    }


async def one_abort(member: Asked, number: int, times: Times, *, rollouts: int) -> None:
    """Aborts its canary, waits until it is out, and allows it again."""
    loop = asyncio.get_running_loop()
    canary = await member.until(member.canary_with_weight)
    # Asked less often where many ask: the questions shall not be the load.
    zero = asyncio.create_task(member.until_weight_zero(canary, every=POLL_SECONDS * rollouts))
    written = asyncio.create_task(member.until_written(canary))
    await asyncio.sleep(0)
    began = loop.time()
    await member.annotate({ABORT: f"{canary}@{number}"})
    times.written.append(1000 * (await written - began))
    if (at_zero := await zero) is not None:
        times.weight_zero.append(1000 * (at_zero - began))
    observed = await member.until_observed(canary)
    times.observed.append(1000 * (observed - began))
    await member.until_removed(canary)
    await member.annotate({RETRY: f"{canary}@{number}"})


async def measured(
    members: Sequence[Asked],
    times: Times,
    *,
    aborts: int,
    minutes: float,
    save: Callable[[], None],
) -> None:
    """Aborts, one of each member at the same moment, until there are so many or it is time."""
    until = asyncio.get_running_loop().time() + 60 * minutes
    for number in itertools.count():
        if len(times.observed) >= aborts or asyncio.get_running_loop().time() >= until:
            break
        await of_all(f"round {number}: canaries", members, Asked.canary_with_weight)
        async with asyncio.timeout(PATIENCE_SECONDS):
            each = (one_abort(m, number, times, rollouts=len(members)) for m in members)
            await asyncio.gather(*each)
        print(
            f"\r{len(times.observed)}/{aborts}  written after {times.written[-1]:6.1f} ms, seen "
            f"everywhere after {times.observed[-1]:6.1f} ms",
            end="",
            flush=True,
        )
        save()
    print()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aborts", type=int, default=200)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=1, help="aborted at the same moment")
    parser.add_argument("--cluster", action="store_true", help="on the local cluster")
    parser.add_argument("--played", action="store_true", help="gateways are only answers")
    parser.add_argument("--minutes", type=float, default=math.inf, help="for so long at most")
    parser.add_argument("--resume", action="store_true", help="adds to what is known of the case")
    arguments = parser.parse_args()
    load_before = os.getloadavg()
    times = Times.known(_cases().get(_name(arguments), {}) if arguments.resume else {})
    async with AsyncExitStack() as stack:
        members: Sequence[Asked]
        if arguments.cluster:
            world = on_cluster(arguments.gateways, arguments.rollouts)
            members = await stack.enter_async_context(world)
        elif arguments.played:
            alone = on_played_pods(arguments.gateways, arguments.rollouts)
            members = await stack.enter_async_context(alone)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abort-")))
            loopback = Loopback(folder, arguments.gateways, arguments.rollouts)
            members = (await stack.enter_async_context(loopback)).members
        await measured(
            members,
            times,
            aborts=arguments.aborts,
            minutes=arguments.minutes,
            save=lambda: _save(_name(arguments), _case(times, load_before)),
        )
    print(json.dumps(times.report(), indent=1))


def _name(arguments: argparse.Namespace) -> str:
    where = "cluster" if arguments.cluster else "played" if arguments.played else "loopback"
    return f"{where}, {arguments.gateways} gateways, {arguments.rollouts} in step"


def _cases() -> dict[str, dict[str, Any]]:
    """What the report has; nothing where it is of another form."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(REPORT.read_text())["cases"]
    except (FileNotFoundError, ValueError, KeyError):
        return {}
    return found


def _save(name: str, case: dict[str, Any]) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    report = {"goals_milliseconds": GOALS, "cases": _cases() | {name: case}}
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


def _case(times: Times, load_before: tuple[float, float, float]) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "milliseconds": times.report(),
        "times": asdict(times),
    }


if __name__ == "__main__":
    unwind_on_sigterm()
    asyncio.run(main())
