"""Build Kubernetes' programs from Go modules, once.

A program is built again only when the module files or the version changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .commands import output_of, run_logged, say
from .settings import KUBERNETES_VERSION, Settings

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Program:
    """One program, and the Go module that pins it."""

    name: str
    package: str
    module: Path
    linker_flags: str = "-s -w"


def _kubernetes_flags() -> str:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    prefix = "k8s.io/component-base/version"
    client = "k8s.io/client-go/pkg/version"
    values = " ".join(
        f"-X {where}.gitVersion=v{KUBERNETES_VERSION} -X {where}.gitMajor={major}"
        f" -X {where}.gitMinor={minor}"
        for where in (prefix, client)
    )
    return f"-s -w {values}"


def _kubernetes(name: str) -> Program:
    return Program(
        name=name,
        package=f"k8s.io/kubernetes/cmd/{name}",
        module=_HERE / "controlplane",
        linker_flags=_kubernetes_flags(),
    )


def programs() -> tuple[Program, ...]:
    """Return what the local cluster needs; kubectl only where none is installed."""
    names = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"]
    if shutil.which("kubectl") is None:
        names.append("kubectl")
    return (
        *(_kubernetes(name) for name in names),
        Program(name="pause", package=".", module=_HERE / "pause"),
    )


def helm() -> Program:
    """Return helm 3."""
    return Program(name="helm", package="helm.sh/helm/v3/cmd/helm", module=_HERE / "helm")


def groups_controller() -> Program:
    """Return the controller of LeaderWorkerSet, on the libraries that Kubernetes was built with."""
    return Program(name="lws-controller", package="sigs.k8s.io/lws/cmd", module=_HERE / "groups")


def gateway_controller() -> Program:
    """Return Contour, a controller of the Gateway API; on the newest libraries of its release."""
    package = "github.com/projectcontour/contour/cmd/contour"
    return Program(name="contour", package=package, module=_HERE / "contour")


def source_hash(program: Program, go_version: str) -> str:
    """Return the hash of what decides a program: module files, own source, flags, compiler."""
    digest = hashlib.sha256()
    digest.update(f"{program.package}\0{program.linker_flags}\0{go_version}\0".encode())
    for path in sorted(program.module.glob("*")):
        if path.name in ("go.mod", "go.sum") or path.suffix == ".go":
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build_programs(settings: Settings, wanted: tuple[Program, ...]) -> None:
    """Build the programs that are missing or whose sources changed.

    Raises:
        ClusterError: Go is missing or a build failed.
    """
    settings.binaries.mkdir(parents=True, exist_ok=True)
    go_version = output_of(["go", "env", "GOVERSION"]).strip()
    for program in wanted:
        target = settings.binaries / program.name
        stamp = settings.binaries / f".{program.name}.sha256"
        digest = source_hash(program, go_version)
        if target.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
            continue
        partial = target.with_name(f".{program.name}.part")
        argv = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", program.linker_flags]
        run_logged(
            [*argv, "-o", str(partial), program.package],
            label=f"build {program.name} (minutes the first time)",
            log=settings.logs / f"build-{program.name}.log",
            environment={**os.environ, "CGO_ENABLED": "0"},
            directory=program.module,
        )
        partial.replace(target)
        stamp.write_text(digest, encoding="utf-8")
    say(f"programs in {settings.binaries}: {', '.join(program.name for program in wanted)}")
