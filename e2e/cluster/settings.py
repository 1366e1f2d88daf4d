"""Settings of the cluster tool: read once from the environment, passed down.

Everything that the local cluster makes lives under `home`, except the few
things the kernel keeps elsewhere (links, iptables rules, control groups).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.34.4"
"""1.35 and later refuse nodes on control groups version 1 by default."""

NODE_NAME = "node-0"
NODE_ADDRESS = "192.0.2.1"
"""TEST-NET-1 (RFC 5737), carried by a bridge without ports."""
NODE_LINK = "node0"
POD_LINK = "cni0"
POD_SUBNET = "10.244.0.0/24"
POD_GATEWAY = "10.244.0.1"
SERVICE_SUBNET = "10.96.0.0/16"
SERVICE_KUBERNETES = "10.96.0.1"
GPU_COUNT = 8
"""`nvidia.com/gpu` on the node; a number for the scheduler, no device."""

LONGEST_HOME = 55
"""containerd's sockets lie inside, and it refuses paths of more than 104 characters."""


class ClusterError(Exception):
    """The cluster tool cannot do what was asked; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are, and which cluster is meant."""

    repository: Path
    home: Path
    """SPECULATIVE_HOME; default ~/.cache/speculative-operator."""
    kind: str
    """CLUSTER: auto, local, kind or current; default auto."""
    kube_context: str
    """KUBE_CONTEXT; needed by, and used only for, CLUSTER=current."""
    api_port: int
    """API_PORT of the local API server; default 6443."""

    @property
    def binaries(self) -> Path:
        return self.home / "bin"

    @property
    def cluster(self) -> Path:
        """State of the local cluster, gone after `down`."""
        return self.home / "cluster"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def images(self) -> Path:
        return self.home / "images"

    @property
    def models(self) -> Path:
        return self.home / "models"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def cgroup(self) -> str:
        """Parent control group of every pod: membership names what is ours, and only ours."""
        return "speculative-" + hashlib.sha256(str(self.home).encode()).hexdigest()[:8]

    @property
    def containerd_root(self) -> Path:
        """Image store of the local node; kept by `down`, so images are imported once."""
        return self.home / "containerd"

    @property
    def containerd_state(self) -> Path:
        return self.cluster / "containerd-state"

    @property
    def containerd_socket(self) -> Path:
        return self.containerd_state / "containerd.sock"


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        ClusterError: a value is not usable.
    """
    default_home = Path(environment.get("HOME", "/root")) / ".cache" / "speculative-operator"
    kind = environment.get("CLUSTER", "") or "auto"
    if kind not in ("auto", "local", "kind", "current"):
        raise ClusterError(f"CLUSTER={kind} is unknown: use auto, local, kind or current")
    port = environment.get("API_PORT", "") or "6443"
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(f"API_PORT={port} is not a port number")
    home = Path(environment.get("SPECULATIVE_HOME", "") or default_home)
    if not home.is_absolute():
        raise ClusterError(f"SPECULATIVE_HOME={home} must be an absolute path")
    if len(str(home)) > LONGEST_HOME:
        raise ClusterError(f"SPECULATIVE_HOME={home} is longer than {LONGEST_HOME} characters")
    return Settings(
        repository=Path(__file__).resolve().parents[2],
        home=home,
        kind=kind,
        kube_context=environment.get("KUBE_CONTEXT", ""),
        api_port=int(port),
    )


def current_settings() -> Settings:
    """Read the settings of this process."""
    return settings_from(os.environ)
