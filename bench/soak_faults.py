"""Faults, one after the other, under load: `MINUTES=30 python -m bench.soak_faults [--seed N]`.

A real API server and etcd, the operator's program, gateways with real Envoy on
loopback, and workers played here (see `bench.loopback`). A client asks all the while;
a person edits the resource once a minute; `bench.faults` has what goes wrong. Then the
same edits are made in a second world without faults. Ends with status 0 if no request
failed, no program ended by itself and both worlds are in the same state. Figures go to
build/soak-faults.json.
Uses the loopback addresses of `bench.loopback`: not beside `make bench-abort`.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.ending import unwind_on_sigterm
from bench.faults import FAULTS
from bench.soak_world import LOGS, SoakWorld, a_spec

from speculative_operator.cluster.resources import JSON

REPORT = Path("build/soak-faults.json")
SLOT_SECONDS = 60.0
FAULT_SECONDS = 40.0
BACK_SECONDS = 60.0
"""After a fault an edit must be through within this, beside the rollout's own time."""
ROLLOUT_SECONDS = 120.0


def plan(minutes: int, seed: int) -> list[tuple[str, JSON]]:
    """Per minute a fault and an edit: every fault once before any comes twice."""
    chance, k = random.Random(seed), 4  # noqa: S311 - no secret
    names: list[str] = []
    edits: list[JSON] = []
    while len(names) < minutes:
        names += chance.sample(sorted(FAULTS), len(FAULTS))
    for _ in range(minutes):
        k = chance.choice([n for n in range(2, 9) if n != k])
        edits.append({"spec": a_spec(k=k, replicas=chance.randint(1, 3))})
    return list(zip(names[:minutes], edits, strict=True))


async def disturbed(world: SoakWorld, planned: list[tuple[str, JSON]]) -> list[JSON]:
    """Each fault with an edit in the middle of it; what each took."""
    found: list[JSON] = []
    for number, (name, edit) in enumerate(planned, start=1):
        began = time.monotonic()
        refused, failed = world.api.refused, len(world.asking.failed)
        fault = asyncio.ensure_future(FAULTS[name](world, FAULT_SECONDS))
        await asyncio.sleep(1.0)
        await world.member.until(partial(_edited, world, edit))
        await fault
        over = time.monotonic()
        await world.until_complete(BACK_SECONDS + ROLLOUT_SECONDS)
        found.append(
            {
                "fault": name,
                "seconds": round(over - began, 1),
                "through_after_seconds": round(time.monotonic() - over, 1),
                "refused_requests": world.api.refused - refused,
                "failed_requests": len(world.asking.failed) - failed,
                "operator_starts": world.operator_starts,
            }
        )
        print(f"{number}/{len(planned)} {found[-1]}", flush=True)
        await asyncio.sleep(max(0.0, SLOT_SECONDS - (time.monotonic() - began)))
    return found


async def _edited(world: SoakWorld, edit: JSON) -> bool:
    await world.member.edit(edit)
    return True


async def undisturbed(world: SoakWorld, edits: list[JSON]) -> None:
    """The same edits, each when the last one is through."""
    for number, edit in enumerate(edits, start=1):
        await world.member.edit(edit)
        await world.until_complete(ROLLOUT_SECONDS)
        print(f"without faults {number}/{len(edits)}", flush=True)


async def soak(minutes: int, seed: int) -> JSON:
    """Both worlds, one after the other."""
    planned = plan(minutes, seed)
    pictures, report = [], {"minutes": minutes, "seed": seed, "load_average": os.getloadavg()}
    for with_faults in (True, False):
        async with AsyncExitStack() as stack:
            part = "with_faults" if with_faults else "without"
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))
            folder = Path(made) / part
            folder.mkdir()
            world = await stack.enter_async_context(SoakWorld(folder))
            client = asyncio.create_task(world.ask())
            stack.callback(client.cancel)
            if with_faults:
                report["faults"] = await disturbed(world, planned)
            else:
                await undisturbed(world, [edit for _, edit in planned])
            world.asking.stopped = True
            await client
            pictures.append(await world.picture())
            report[part] = {
                "answered": world.asking.answered,
                "failed": world.asking.failed,
                "ended": world.ended(),
            }
    differing = sorted(
        key
        for key in pictures[0].keys() | pictures[1].keys()
        if pictures[0].get(key) != pictures[1].get(key)
    )
    return report | {"differing": {key: [p.get(key) for p in pictures] for key in differing}}


def main() -> int:
    """Exit status 1: a request failed, a program ended, or the two worlds differ in the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=int, default=int(os.environ.get("MINUTES", "30")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "1")))
    arguments = parser.parse_args()
    report = asyncio.run(soak(arguments.minutes, arguments.seed))
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")
    failed, answered = report["with_faults"]["failed"], report["with_faults"]["answered"]
    ended = report["with_faults"]["ended"]
    print(f"{answered} requests answered, {len(failed)} failed: {failed[:5]}")
    print(f"programs that ended though nobody killed them: {', '.join(ended) or 'none'}")
    print(f"differing in the end: {sorted(report['differing']) or 'nothing'}")
    print(f"written to {REPORT}, logs to {LOGS}")
    return 1 if failed or ended or report["differing"] else 0


if __name__ == "__main__":
    unwind_on_sigterm()
    raise SystemExit(main())
