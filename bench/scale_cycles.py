"""Memory over many short lives: a part of `bench.scale`.

Resources come and go in batches. There is no garbage collector here, so that the
children of deleted resources are deleted as it would. Resident memory is read
after each batch; what rises from the first quarter to the last is a leak, or
caches that are not full yet. A leak goes on: the slope of the second half says so.
"""

import asyncio
import statistics
from functools import partial

from bench.operator_process import Operator, until
from bench.scale_world import CREATORS, a_parent, in_parallel

from speculative_api import labels
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import (
    CHILDREN,
    DEPLOYMENT,
    JSON,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)

BATCH = 25
DEPLOYMENTS = 3
"""Of each resource, created last: accelerated, native, gateway."""


async def cycles(client: Client, operator: Operator, count: int) -> dict[str, float]:
    """So many resources created, made real, deleted and forgotten."""
    found: dict[str, float] = {"count": count}
    began = operator.cpu_seconds()
    lives: list[int] = []
    resident: list[float] = []
    for number in range(0, count, BATCH):
        names = [f"short-{n}" for n in range(number, min(number + BATCH, count))]
        await _lives(client, names)
        done = number + len(names)
        lives.append(done)
        resident.append(1024 * operator.rss_mib())
        for quarter in (1, 2, 3, 4):
            if number < count * quarter / 4 <= done:
                found[f"rss_mib_at_{100 * quarter // 4}_percent"] = resident[-1] / 1024
    found["cpu_ms_each"] = 1000 * (operator.cpu_seconds() - began) / count
    half = len(lives) // 2
    found["kib_each"], found["kib_each_error"] = _slope(lives[half:], resident[half:])
    return found


def _slope(lives: list[int], kib: list[float]) -> tuple[float, float]:
    """KiB that each life leaves behind, by least squares, and the standard error of that."""
    if len(lives) < 3:
        return float("nan"), float("nan")
    slope, start = statistics.linear_regression(lives, kib)
    off = sum((y - start - slope * x) ** 2 for x, y in zip(lives, kib, strict=True))
    spread = sum((x - statistics.fmean(lives)) ** 2 for x in lives)
    return slope, (off / (len(lives) - 2) / spread) ** 0.5


async def _lives(client: Client, names: list[str]) -> None:
    parents: list[JSON] = []

    async def created(name: str) -> None:
        body = a_parent("operated", name)
        parents.append(await client.create(SPECULATIVE_DEPLOYMENT, body))

    await in_parallel((partial(created, name) for name in names), CREATORS)
    selector = f"{labels.NAME} in ({','.join(names)})"

    async def complete() -> bool:
        found, _ = await client.list_all(DEPLOYMENT, "operated", selector=selector)
        return len(found) == DEPLOYMENTS * len(names)

    await until(complete, every=0.25)
    deletions = ((lambda p=p: client.delete(SPECULATIVE_DEPLOYMENT, p)) for p in parents)
    await in_parallel(deletions, CREATORS)
    kinds = [kind for kind in CHILDREN if not kind.optional]

    async def none_left() -> bool:
        # Again and again: a pass on its way may still create one.
        await asyncio.gather(*(_collect(client, kind, selector) for kind in kinds))
        lists = [await client.list_all(k, "operated", selector=selector) for k in kinds]
        return not any(things for things, _ in lists)

    await until(none_left, every=0.25)


async def _collect(client: Client, kind: Resource, selector: str) -> None:
    path = kind.path("operated")
    await client.request("collect", kind, "DELETE", path, query={"labelSelector": selector})
