"""What a pod with a simulated engine costs: `python -m bench.simulated_pod [PODS]`.

Starts workers over simulated engines one after the other, and prints for each
the time to ready (wall and CPU, of both processes) and its memory: private
(anonymous pages), proportional (PSS), and resident with files that both
processes map counted once. Figures go to build/bench-simulated-pod.json.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.ending import unwind_on_sigterm
from tests.worker.a_worker import RunningWorker, a_worker

REPORT = Path("build/bench-simulated-pod.json")
_MIB = 1024


def _rollup(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def _files(pid: int) -> dict[str, int]:
    """Resident KiB of mapped files, by path."""
    found: dict[str, int] = {}
    path = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            path = words[5] if len(words) > 5 and words[5].startswith("/") else ""
            anonymous = 0
        elif words[0] == "Rss:" and path:
            rss = int(words[1])
        elif words[0] == "Anonymous:" and path:
            anonymous = int(words[1])
            found[path] = found.get(path, 0) + rss - anonymous
    return found


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pids: list[int]) -> dict[str, float]:
    rollups = [_rollup(pid) for pid in pids]
    shared: dict[str, int] = {}
    for pid in pids:
        for path, rss in _files(pid).items():
            shared[path] = max(shared.get(path, 0), rss)
    private = sum(each["Anonymous"] for each in rollups)
    return {
        "private_mib": round(private / _MIB, 1),
        "proportional_mib": round(sum(each["Pss"] for each in rollups) / _MIB, 1),
        "resident_mib": round((private + sum(shared.values())) / _MIB, 1),
    }


async def _one(folder: Path) -> dict[str, float]:
    started = time.monotonic()
    warmup = {"requests": 1, "promptTokens": 8, "outputTokens": 4}
    async with a_worker(folder, simulation={"loadMilliseconds": 0}, warmup=warmup) as worker:
        await worker.until("/readyz", 200)
        ready = time.monotonic() - started
        return _figures(worker, ready)


def _figures(worker: RunningWorker, ready: float) -> dict[str, float]:
    pids = [worker.process.pid, worker.engine_pid()]
    cpu = sum(map(_cpu_seconds, pids))
    return {"ready_seconds": round(ready, 2), "cpu_seconds": round(cpu, 2), **_memory(pids)}


async def _run(pods: int) -> list[dict[str, float]]:
    found = []
    for _ in range(pods):
        with tempfile.TemporaryDirectory() as folder:
            found.append(await _one(Path(folder)))
            print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    unwind_on_sigterm()
    figures = asyncio.run(_run(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
    REPORT.parent.mkdir(exist_ok=True)
    report = {"load_average": os.getloadavg(), "pods": figures}
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
