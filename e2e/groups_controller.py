"""LeaderWorkerSet for a test: its real CRD, controller and webhooks, gone again afterwards.

The controller is a process of the test on this machine, so nothing needs an image; the
API server reaches its webhooks at a port of loopback. They see the kind's own pods only.
"""

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster.binaries import build_programs, groups_controller
from e2e.cluster.gateway_api import LEADER_WORKER_SET, crds
from e2e.cluster.settings import current_settings
from e2e.dsl import listens, running, wait_for
from e2e.kubectl import kubectl
from tests.certificates import Authority, written
from tests.ports import free_port

NAME = "e2e-leader-worker-set"
GROUP = "leaderworkerset.x-k8s.io"


@contextmanager
def groups_installed() -> Iterator[None]:
    """Groups of pods can be made for as long as the block runs."""
    settings = current_settings()
    build_programs(settings, (groups_controller(),))
    (crd,) = crds(settings, LEADER_WORKER_SET)
    port, authority = free_port(), Authority()
    with tempfile.TemporaryDirectory() as folder:
        certificates = written(Path(folder), authority.secret("localhost"))
        configuration = certificates / "configuration.yaml"
        configuration.write_text(json.dumps(_configuration(certificates, port)))
        webhooks = json.dumps(_webhooks(port, authority.pem))
        kubectl("apply", "--server-side", "-f", str(crd))
        try:
            wait_for("its kind is served", _is_served)
            with _controller(settings.binaries / groups_controller().name, configuration, port):
                kubectl("apply", "--server-side", "-f", "-", stdin=webhooks)
                yield
        finally:
            # Without the controller a webhook would refuse what still has to be deleted.
            kubectl("delete", "--ignore-not-found", "-f", "-", stdin=webhooks)
            kubectl("delete", "--ignore-not-found", "-f", str(crd))


@contextmanager
def _controller(program: Path, configuration: Path, port: int) -> Iterator[None]:
    argv = [str(program), "--config", str(configuration)]
    with running(argv, "lws-controller.log") as process:
        wait_for("the controller of LeaderWorkerSet", lambda: listens(process, port))
        yield


def _is_served() -> bool:
    kubectl("get", f"leaderworkersets.{GROUP}", "-A")
    return True


def _configuration(certificates: Path, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "webhook": {"host": "localhost", "port": port, "certDir": str(certificates)},
    }


def _webhooks(port: int, authority: str) -> dict[str, Any]:
    """As in its own manifests, but for the address."""
    bundle = base64.b64encode(authority.encode()).decode()

    def webhook(verb: str, kind: str, *operations: str) -> dict[str, Any]:
        group, plural = ("", "pods") if kind == "pod" else (GROUP, "leaderworkersets")
        path = f"/{verb}-{GROUP.replace('.', '-')}-v1-leaderworkerset"
        named = [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]
        return {
            "name": f"{verb}.{kind}.e2e.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": f"https://localhost:{port}" + (path if group else f"/{verb}--v1-pod"),
                "caBundle": bundle,
            },
            "rules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["v1"],
                    "operations": list(operations),
                    "resources": [plural],
                }
            ],
            **({} if group else {"objectSelector": {"matchExpressions": named}}),
        }

    def configured(kind: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
        version = "admissionregistration.k8s.io/v1"
        metadata = {"name": NAME}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "webhooks": webhooks}

    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            configured(
                "MutatingWebhookConfiguration",
                [
                    webhook("mutate", "leaderworkerset", "CREATE", "UPDATE"),
                    webhook("mutate", "pod", "CREATE"),
                ],
            ),
            configured(
                "ValidatingWebhookConfiguration",
                [
                    webhook("validate", "leaderworkerset", "CREATE", "UPDATE"),
                    webhook("validate", "pod", "CREATE", "UPDATE"),
                ],
            ),
        ],
    }
