"""given / when / then for tests on a real cluster, with simulated workers.

The operator runs as a process of the test on this machine, so that it can be
killed by its own pid at any moment; pods, gateways and Services are real.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.kubectl import KubectlError, apply, get, kubeconfig, kubectl, listed
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port
from tests.processes import end

SIMULATED_WORKER = "localhost/speculative-worker-simulate:dev"
GATEWAY_IMAGE = "localhost/speculative-gateway:dev"
BUILD = Path("build/e2e")


def wait_for(what: str, check: Callable[[], Any], seconds: float = 90) -> Any:
    """Polls until `check` returns something true; an AssertionError says what was missing."""
    deadline = time.monotonic() + seconds
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = check()
        except (KubectlError, KeyError, OSError) as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.3)
    raise AssertionError(f"not within {seconds:.0f} s: {what}; last seen: {last!r}")


def a_manifest(
    name: str = "chat",
    *,
    k: int = 4,
    acceptance_percent: int = 80,
    error_percent: int = 0,
    crash_text: str = "",
    pause_seconds: int = 20,
    tokens_per_second: int = 100,
    **spec: Any,
) -> dict[str, Any]:
    """A SpeculativeDeployment whose engine is simulated.

    `pause_seconds` is how long a canary is tried before time advances it.
    """
    simulation = {
        "acceptancePercent": acceptance_percent,
        "errorPercent": error_percent,
        "tokensPerSecond": tokens_per_second,
        "loadMilliseconds": 200,
    }
    if crash_text:
        simulation["crashText"] = crash_text
    rollout = {
        "steps": [{"weight": 50}, {"pause": {"durationSeconds": pause_seconds}}],
        "analysis": {"periodSeconds": 2},
        "guard": {"durationSeconds": 5},
    }
    return {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": name},
        "spec": {
            "target": {"model": "hf://example/simulated"},
            "speculation": {"method": "NGram", "numSpeculativeTokens": k},
            "engine": {
                "image": SIMULATED_WORKER,
                "drainSeconds": 15,
                "startupDeadlineSeconds": 60,
                "warmup": {"requests": 1, "promptTokens": 4, "outputTokens": 2},
                "simulation": simulation,
            },
            "pod": {
                "imagePullPolicy": "Never",
                "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
            },
            "rollout": rollout,
            **spec,
        },
    }


@dataclass
class Operator:
    """The operator as a child process of the test."""

    namespace: str
    program: tuple[str, ...] = (sys.executable, "-m", "speculative_operator")
    extra: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    http_port: int = field(default_factory=free_port)

    def start(self, **extra: str) -> None:
        """Starts it; its log goes to build/e2e/."""
        BUILD.mkdir(parents=True, exist_ok=True)
        self.starts += 1
        environment = os.environ | {
            "KUBECONFIG": str(kubeconfig()),
            "OPERATOR_NAMESPACE": self.namespace,
            "WATCH_NAMESPACE": self.namespace,
            "GATEWAY_IMAGE": GATEWAY_IMAGE,
            "WORKER_IMAGE": SIMULATED_WORKER,
            "IMAGE_PULL_POLICY": "Never",
            "IDENTITY": f"test-{self.namespace}-{self.starts}",
            "LEASE_SECONDS": "3",
            # The installed operator was scaled to 0 a moment ago: no need to be polite to it.
            "FOREIGN_LEASE_SECONDS": "0",
            "HTTP_PORT": str(self.http_port),
        }
        with (BUILD / f"{self.namespace}-{self.starts}.log").open("wb") as log:
            self.process = subprocess.Popen(
                self.program, env=environment | self.extra | extra, stdout=log, stderr=log
            )

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric of this operator over series with these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics") as answer:
            text = answer.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """SIGTERM, then kill -9 after 15 s."""
        if self.process is None:
            return
        end(self.process)
        self.process = None


@dataclass
class Trial:
    """One test's namespace and resource, with the questions tests ask."""

    namespace: str
    operator: Operator
    name: str = "chat"
    gateway: str = ""
    """Of several resources; empty: it has one of its own."""
    address: str = ""
    """URL of a Gateway that is somebody else's; empty: users ask a Service of ours."""

    def apply(self, **changes: Any) -> None:
        apply(a_manifest(self.name, **changes), self.namespace)

    @property
    def resource(self) -> dict[str, Any]:
        return get("speculativedeployment", self.name, self.namespace)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resource.get("status", {})
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        found = (c for c in self.status.get("conditions", []) if c["type"] == kind)
        return next(found, {"status": "Unknown", "reason": "", "message": ""})

    def wait_available(self, seconds: float = 120) -> str:
        """Waits for Available and a serving gateway; returns stable's hash."""
        wait_for(
            "Available and GatewayReady",
            lambda: (
                all(
                    self.condition(kind)["status"] == "True"
                    for kind in ("Available", "GatewayReady")
                )
                and self.condition("Progressing")["reason"] == "Complete"
            ),
            seconds,
        )
        # A Service leads to a ready pod a moment later, when kube-proxy has heard of it.
        wait_for("the gateway's Service to take connections", self.takes_connections)
        found: str = self.status["stable"]["hash"]
        return found

    def takes_connections(self) -> bool:
        """Whether the gateway's Service leads anywhere."""
        address = urllib.parse.urlsplit(self.url())
        try:
            socket.create_connection((str(address.hostname), address.port), timeout=5).close()
        except OSError:
            return False
        return True

    def wait_progressing(self, reason: str, seconds: float = 150) -> dict[str, Any]:
        """Waits for a reason of condition Progressing; returns the status."""
        wait_for(
            f"Progressing reason {reason}",
            lambda: self.condition("Progressing")["reason"] == reason,
            seconds,
        )
        return self.status

    def pods(self, component: str = "worker") -> dict[str, dict[str, Any]]:
        """Pods by UID."""
        selector = f"speculative.dev/name={self.name},speculative.dev/component={component}"
        return {pod["metadata"]["uid"]: pod for pod in listed("pods", self.namespace, selector)}

    def pods_of(self, revision: str) -> set[str]:
        """UIDs of a revision's worker pods."""
        return {
            uid
            for uid, pod in self.pods().items()
            if pod["metadata"]["labels"]["speculative.dev/revision"] == revision
        }

    def revisions_running(self) -> set[str]:
        return {
            pod["metadata"]["labels"]["speculative.dev/revision"]
            for pod in self.pods().values()
            if "deletionTimestamp" not in pod["metadata"]
        }

    def url(self) -> str:
        """What users ask, reachable from this machine: the gateway's Service."""
        if self.address:
            return self.address
        service = get("service", f"{self.gateway or self.name}-gateway", self.namespace)["spec"]
        return f"http://{service['clusterIP']}:{service['ports'][0]['port']}"


@contextmanager
def a_trial(label: str, **settings: Any) -> Iterator[Trial]:
    """A fresh namespace with an operator of its own; both are gone afterwards."""
    namespace = f"e2e-{label}-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", namespace)
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged")
    operator = Operator(namespace, **settings)
    try:
        operator.start()
        yield Trial(namespace, operator)
    finally:
        operator.stop()
        # It goes with the namespace only once the pods are gone, and until then says to every
        # operator that starts that this one has just ended and may come back.
        kubectl("delete", "lease", "speculative-operator", "-n", namespace, "--ignore-not-found")
        # Its pods drain by themselves meanwhile; the next test has a namespace of its own.
        kubectl("delete", "namespace", namespace, "--wait=false")


@contextmanager
def running(argv: list[str], log: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program for the length of the block; its log goes to build/e2e/.

    It finds the cluster by KUBECONFIG.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"KUBECONFIG": str(kubeconfig())}
    with (BUILD / log).open("wb") as file:
        process = subprocess.Popen(argv, env=environment, stdout=file, stderr=file)
    try:
        yield process
    finally:
        end(process)


def listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether somebody takes connections at a port of loopback; fails when the program ended."""
    assert process.poll() is None, f"{process.args!r} ended; see the logs in {BUILD}"
    socket.create_connection(("localhost", port), timeout=5).close()
    return True


@contextmanager
def load_on(
    url: str, namespace: str, *, streams: int = 3, api_key_file: Path | None = None
) -> Iterator[Callable[[], Any]]:
    """Load over the gateway for the length of the block; the report is there after it.

    The generator is a process of its own, so that a slow test does not slow the load.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    out = BUILD / f"{namespace}-load.json"
    said = BUILD / f"{namespace}-load.log"
    log = said.open("wb")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "e2e.load", "--url", url, "--streams", str(streams)),
            *("--max-tokens", "24", "--until-stopped", "--json", str(out)),
            *(("--api-key-file", str(api_key_file)) if api_key_file else ()),
        ],
        stdout=log,
        stderr=log,
    )
    report: dict[str, Any] = {}
    try:
        wait_for("the load begins", lambda: said.read_bytes() or process.poll() is not None, 60)
        yield lambda: report
    finally:
        end(process, by=signal.SIGINT, seconds=90)
        log.close()
        if out.exists():
            report.update(json.loads(out.read_text(encoding="utf-8")))
