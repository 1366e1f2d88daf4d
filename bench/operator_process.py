"""The operator as a process, seen from outside: what `bench.scale` measures."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.cluster.envtest import Server

LOG = Path("build/bench-scale-operator.log")
CODE = Path("build/bench-scale-code")
_NOT_IN_A_POD = {"KUBECONFIG", "PYTHONDONTWRITEBYTECODE"}
PATIENCE = 1800.0
TICK = os.sysconf("SC_CLK_TCK")


AS_IN_A_POD = """
import os, runpy
from pathlib import Path
from speculative_operator.cluster import access
access.SERVICE_ACCOUNT = Path(os.environ["SERVICE_ACCOUNT"])
runpy.run_module("speculative_operator", run_name="__main__")
"""
"""The program as in a pod, but for where the kubelet puts the service account."""


class Operator:
    """The operator as a process, seen from outside: /proc and its own counters."""

    def __init__(self, server: Server, folder: Path, port: int, *, identity: str = "bench") -> None:
        self._url = f"http://127.0.0.1:{port}"
        host, server_port = server.url.removeprefix("https://").split(":")
        account = folder / "service-account"
        account.mkdir(exist_ok=True)
        shutil.copy(server.folder / "apiserver.crt", account / "ca.crt")
        (account / "token").write_text("test-one")
        environment = os.environ | {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": server_port,
            "SERVICE_ACCOUNT": str(account),
            "HTTP_PORT": str(port),
            "IDENTITY": identity,
            "WATCH_NAMESPACE": "operated",
            "LEASE_SECONDS": "15",
            # Images hold compiled code, and so does this once `start` was called once.
            "PYTHONPYCACHEPREFIX": str(CODE.absolute()),
        }
        self._environment = {k: v for k, v in environment.items() if k not in _NOT_IN_A_POD}
        self.process: subprocess.Popen[bytes] | None = None

    def compile(self) -> None:
        """As the image's build does; begins the log anew."""
        LOG.parent.mkdir(exist_ok=True)
        LOG.unlink(missing_ok=True)
        argv = [sys.executable, "-c", "import speculative_operator.__main__"]
        subprocess.run(argv, env=self._environment, check=True)  # noqa: S603

    def start(self) -> None:
        """Starts it."""
        with LOG.open("ab") as log:
            argv = [sys.executable, "-c", AS_IN_A_POD]
            self.process = subprocess.Popen(argv, env=self._environment, stderr=log)  # noqa: S603

    def stop(self) -> None:
        """SIGTERM, and waits."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def end(self) -> None:
        """Kills it, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss_mib(self, name: str = "VmRSS") -> float:
        """Resident memory; `VmHWM` for its peak."""
        found = re.search(rf"{name}:\s+(\d+) kB", self._proc("status"))
        return int(found[1]) / 1024 if found else float("nan")

    def _proc(self, name: str) -> str:
        pid = self.process.pid if self.process is not None else "self"
        return Path(f"/proc/{pid}/{name}").read_text()

    def passes(self) -> float:
        """Passes that ended well so far."""
        found = re.search(r'passes_total\{outcome="done"\} (\S+)', self._metrics())
        return float(found[1]) if found else 0.0

    def _metrics(self) -> str:
        # Half an hour of measuring is not to be lost to a machine that is busy for ten seconds.
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=120) as answer:  # noqa: S310 - our own URL
            text: str = answer.read().decode()
        return text

    def is_ready(self) -> bool:
        """Whether it says so; raises OSError while it does not."""
        with urllib.request.urlopen(f"{self._url}/readyz", timeout=120):  # noqa: S310 - our own URL
            return True

    def requests(self) -> dict[tuple[str, str], float]:
        """Answered requests by verb and kind, as the operator counts them."""
        found: dict[tuple[str, str], float] = {}
        for line in self._metrics().splitlines():
            if line.startswith("speculative_operator_api_requests_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                place = (labels["verb"], labels["kind"])
                found[place] = found.get(place, 0.0) + float(line.rsplit(" ", 1)[1])
        return found

    def writes(self) -> float:
        """Requests that change something, Leases aside."""
        changing = ("create", "apply", "update", "patch", "patch-status", "delete")
        return sum(
            v for (verb, kind), v in self.requests().items() if verb in changing and kind != "Lease"
        )

    def reads(self) -> float:
        """The others; a watch counts once."""
        return sum(
            v for (verb, _), v in self.requests().items() if verb in ("get", "list", "watch")
        )


def reference_ms() -> float:
    """CPU milliseconds of a fixed piece of work: what a CPU second is worth at this moment."""

    def once() -> float:
        began, known = time.process_time(), dict[int, str]()
        for number in range(60_000):
            known[number % 997] = f"{number}x"
        return time.process_time() - began

    return 1000 * min(once() for _ in range(5))


async def until(question: Callable[[], Awaitable[object]], every: float = 0.1) -> None:
    """Until the answer is yes; an operator that does not answer yet says no."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            if await question():
                return
        except OSError:
            pass
        if time.monotonic() > limit:
            raise TimeoutError(f"not done in time: see {LOG}")
        await asyncio.sleep(every)
