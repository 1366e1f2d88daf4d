"""How soon a standby works after the operator that worked is gone: `python -m bench.takeover`.

Two operators as processes on an API server of their own, and somebody who edits a
resource 20 times a second. In turn one is asked to leave (SIGTERM) and one is killed
(kill -9), until each happened `--rounds` times. Measured from the signal to the first
write of the other one, by the API server's audit log; every write is checked to be by
whoever wrote the Lease last. JSON goes to build/bench-takeover.json.
"""

import argparse
import asyncio
import json
import math
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.ending import unwind_on_sigterm
from bench.operator_process import reference_ms
from tests.cluster.envtest import Server, running
from tests.ports import free_port
from tests.reconcile.test_process_on_server import a_resource, an_operator, until
from tests.reconcile.test_two_operators_on_server import Witness, is_warm, unfenced

from speculative_operator.cluster.client import Client

REPORT: Final = Path("build/bench-takeover.json")
GOALS: Final = {signal.SIGTERM: 2.0, signal.SIGKILL: 8.0}
"""Seconds, for the worst round."""
NAMES: Final = "ab"


async def _rounds(server: Server, folder: Path, count: int) -> dict[signal.Signals, list[float]]:
    """Seconds of each take-over."""
    found: dict[signal.Signals, list[float]] = {how: [] for how in GOALS}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server.access))
        await a_resource(client, "contended")
        witness, ports = Witness(server, client), {name: free_port() for name in NAMES}

        async def start(name: str) -> asyncio.subprocess.Process:
            return await stack.enter_async_context(
                an_operator(server, folder, port=ports[name], identity=name)
            )

        works, waits = NAMES
        began = time.time()
        processes = {works: await start(works)}
        await witness.until_works(works, began)
        editing = asyncio.create_task(witness.edit_for_ever("contended"))
        stack.callback(editing.cancel)
        for number in range(count):
            for how, seconds in found.items():
                processes[waits] = await start(waits)
                await until(lambda: is_warm(ports[waits]))  # noqa: B023 - awaited here
                at = time.time()
                processes[works].send_signal(how)
                seconds.append(await witness.until_works(waits, at))
                await processes[works].wait()
                print(f"{number + 1}/{count} {how.name}: {seconds[-1]:.2f} s", flush=True)
                works, waits = waits, works
        if wrong := unfenced(witness.writes()):
            raise SystemExit(f"written without the Lease: {'; '.join(wrong[:3])}")
    return found


def _figures(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "rounds": len(ordered),
        "p50": statistics.median(ordered),
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def main() -> None:
    """Exit status 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="of each kind (default 20)")
    rounds = parser.parse_args().rounds
    unwind_on_sigterm()
    reference = reference_ms()
    with (
        tempfile.TemporaryDirectory(prefix="bench-takeover-") as folder,
        running(Path(folder)) as server,
    ):
        found = asyncio.run(_rounds(server, Path(folder), rounds))
    figures = {how.name: _figures(seconds) for how, seconds in found.items()}
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "reference_ms": reference,
        "seconds": figures,
        "goals": {how.name: goal for how, goal in GOALS.items()},
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    for how, goal in GOALS.items():
        its = figures[how.name]
        print(
            f"{how.name:8} p50 {its['p50']:.2f} s, p95 {its['p95']:.2f}, "
            f"max {its['max']:.2f}, goal {goal:g}"
        )
    print(f"reference work {reference:.1f} ms; all figures in {REPORT}")
    if any(max(seconds) >= GOALS[how] for how, seconds in found.items()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
