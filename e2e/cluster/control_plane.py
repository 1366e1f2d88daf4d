"""etcd, API server, controller manager and scheduler of the local cluster."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from .commands import output_of, succeeds, tail, wait_until
from .pki import kubeconfig, make_certificates, write_kubeconfigs
from .processes import FIRST, require_live, start
from .settings import (
    NODE_ADDRESS,
    SERVICE_SUBNET,
    ClusterError,
    Settings,
)

ETCD_PORT = 12379
"""Not 2379: a machine may run the distribution's etcd."""
NAMES = ("scheduler", "controller-manager", "apiserver", "etcd")
"""In the order of ending."""
READY_SECONDS = 90.0
"""A loaded machine of two cores needs up to 30 s."""


def processes_folder(settings: Settings) -> Path:
    """Return where the records of processes are."""
    return settings.cluster / "processes"


def kubectl(settings: Settings, *arguments: str) -> list[str]:
    """Return a kubectl command against the local cluster."""
    built = settings.binaries / "kubectl"
    program = shutil.which("kubectl") or str(built)
    return [program, f"--kubeconfig={settings.kubeconfig}", *arguments]


def _require_free_port(port: int, name: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError as error:
            raise ClusterError(
                f"port {port} ({name}) is in use by another program: {error.strerror}"
            ) from error


def _apiserver_flags(settings: Settings) -> list[str]:
    pki = settings.cluster / "pki"
    return [
        f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={NODE_ADDRESS}",
        f"--secure-port={settings.api_port}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_SUBNET}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={pki}/admin.crt",
        f"--kubelet-client-key={pki}/admin.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
        f"--requestheader-client-ca-file={pki}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--allow-privileged=true",
        "--enable-aggregator-routing=true",
        f"--audit-policy-file={Path(__file__).parent / 'audit-policy.yaml'}",
        f"--audit-log-path={settings.cluster / 'audit.log'}",
    ]


def _client_flags(settings: Settings, user: str) -> list[str]:
    path = settings.cluster / "pki" / f"{user}.kubeconfig"
    return [
        f"--kubeconfig={path}",
        f"--authentication-kubeconfig={path}",
        f"--authorization-kubeconfig={path}",
        "--leader-elect=false",
    ]


def _controller_manager_flags(settings: Settings) -> list[str]:
    pki = settings.cluster / "pki"
    return [
        *_client_flags(settings, "controller-manager"),
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        "--use-service-account-credentials",
        "--horizontal-pod-autoscaler-sync-period=5s",
    ]


def _write_credentials(settings: Settings) -> None:
    pki = settings.cluster / "pki"
    make_certificates(pki)
    server = f"https://127.0.0.1:{settings.api_port}"
    users = ("controller-manager", "scheduler", "kubelet", "proxy")
    write_kubeconfigs(pki, users=users, server=server)
    settings.kubeconfig.write_text(kubeconfig(pki, user="admin", server=server), encoding="utf-8")
    settings.kubeconfig.chmod(0o600)


def api_is_ready(settings: Settings) -> bool:
    """Whether the API server says that it is ready."""
    return succeeds(kubectl(settings, "get", "--raw", "/readyz", "--request-timeout=2s"))


def start_control_plane(settings: Settings) -> None:
    """Start a control plane with an empty etcd, and wait until it is ready.

    Raises:
        ClusterError: a port is taken, or it is not ready in time.
    """
    for port, name in ((ETCD_PORT, "etcd"), (settings.api_port, "API server")):
        _require_free_port(port, name)
    _write_credentials(settings)
    folder, logs, binaries = processes_folder(settings), settings.logs, settings.binaries
    client = f"http://127.0.0.1:{ETCD_PORT}"
    peer = f"http://127.0.0.1:{ETCD_PORT + 1}"
    etcd = [
        shutil.which("etcd") or "etcd",
        f"--data-dir={settings.cluster / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--logger=zap",
    ]
    start(folder, name="etcd", argv=etcd, log=logs / "etcd.log", niceness=FIRST)
    flags = {
        "apiserver": ("kube-apiserver", _apiserver_flags(settings)),
        "controller-manager": ("kube-controller-manager", _controller_manager_flags(settings)),
        "scheduler": ("kube-scheduler", _client_flags(settings, "scheduler")),
    }
    for name, (program, arguments) in flags.items():
        argv = [str(binaries / program), *arguments]
        start(folder, name=name, argv=argv, log=logs / f"{name}.log", niceness=FIRST)
        if name == "apiserver":
            _wait_for_api(settings)


def _wait_for_api(settings: Settings) -> None:
    log = settings.logs / "apiserver.log"

    def ready() -> bool:
        require_live(processes_folder(settings), "etcd", settings.logs / "etcd.log")
        require_live(processes_folder(settings), "apiserver", log)
        return api_is_ready(settings)

    wait_until(
        ready,
        label="API server ready",
        seconds=READY_SECONDS,
        why_not=lambda: f"end of its log:\n{tail(log)}",
    )


def add_gpus(settings: Settings, *, node: str, count: int) -> None:
    """Give the node GPUs in the documented way of extended resources."""
    patch = '[{"op":"add","path":"/status/capacity/nvidia.com~1gpu","value":"' + str(count) + '"}]'
    arguments = ("patch", "node", node, "--subresource=status", "--type=json", "-p", patch)
    output_of(kubectl(settings, *arguments))
