"""What the machine must have: root, disk space, and Debian packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from .commands import output_of, run_logged, say
from .settings import ClusterError, Settings

CLUSTER_PACKAGES = (
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "ethtool",
    "socat",
    "iproute2",
    "openssl",
    "ca-certificates",
)
IMAGE_PACKAGES = ("buildah", "debootstrap")

CLUSTER_GIBIBYTES = 12
"""Go's module and build caches plus the binaries: 8 GiB, with room for logs."""
IMAGES_GIBIBYTES = 32
"""The vLLM image: package cache, builder's store, one OCI layout and snapshot (measured)."""

_POLICY = Path("/usr/sbin/policy-rc.d")


def require_root() -> None:
    """Refuse to go on without root.

    Raises:
        ClusterError: this is not root.
    """
    if os.geteuid() != 0:
        raise ClusterError(
            "the local cluster needs root: it makes links, mounts and iptables rules"
        )


def require_space(settings: Settings, *, gibibytes: int, purpose: str) -> None:
    """Say how much disk is free and how much is needed.

    Raises:
        ClusterError: too little is free.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.home).free / 2**30
    text = f"{purpose}: {gibibytes} GiB of disk wanted, {free:.0f} GiB free at {settings.home}"
    if free < gibibytes:
        raise ClusterError(f"{text}; free some, or set SPECULATIVE_HOME to a larger disk")
    say(text)


def require_programs(names: Sequence[str]) -> None:
    """Check programs that are not installed for the user.

    Raises:
        ClusterError: one is missing.
    """
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise ClusterError(f"not on PATH: {', '.join(missing)}; install and try again")


def _missing(packages: Sequence[str]) -> list[str]:
    listing = output_of(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"])
    installed = {line.split()[0] for line in listing.splitlines() if line.endswith(" installed")}
    return [name for name in packages if name not in installed]


def install_packages(settings: Settings, packages: Sequence[str]) -> None:
    """Install the Debian packages that are missing; does nothing where none is.

    Raises:
        ClusterError: this is no Debian, or apt failed.
    """
    if shutil.which("apt-get") is None:
        raise ClusterError("no apt-get: the local cluster needs Debian 12; try CLUSTER=kind")
    missing = _missing(packages)
    if not missing:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_logged(
        ["apt-get", "update"],
        label="update the package lists",
        log=settings.logs / "apt-update.log",
        environment=environment,
    )
    # etcd and containerd of the distribution would start as services and take our ports.
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        _POLICY.chmod(0o755)
    try:
        run_logged(
            ["apt-get", "install", "-y", "--no-install-recommends", *missing],
            label=f"install {', '.join(missing)}",
            log=settings.logs / "apt-install.log",
            environment=environment,
        )
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)
