"""CRDs of the Gateway API, its Inference Extension, Contour and LeaderWorkerSet, from Go modules.

Nothing is installed, only read. A module comes through Go's proxy and is checked
against a sum, like the cluster's programs; the CRDs are kept under `home`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .commands import output_of
from .settings import ClusterError, Settings


@dataclass(frozen=True, slots=True)
class Module:
    """One whose Go is not newer than what Kubernetes itself needs."""

    path: str
    version: str
    sum: str
    """go.sum's hash of the module at this version."""
    folder: str
    """Where in it the CRDs are, or how the path of their file begins."""


GATEWAY_API = Module(
    "sigs.k8s.io/gateway-api",
    "v1.4.0",
    "h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ=",
    "config/crd/standard/",
)
INFERENCE_EXTENSION = Module(
    "sigs.k8s.io/gateway-api-inference-extension",
    "v1.3.0",
    "h1:Ng2Qs1Oum4WycuWyi3rOkAC7pZ2aDqgN2ku6Lr/mryQ=",
    "config/crd/bases/",
)
CONTOUR = Module(
    "github.com/projectcontour/contour",
    "v1.33.8",
    "h1:QoOfwqWws+CVRFpsRC2+f1DmB5IdurtyUtepIsiWfE0=",
    "examples/contour/01-crds",
)
LEADER_WORKER_SET = Module(
    "sigs.k8s.io/lws",
    "v0.8.0",
    "h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
    "config/crd/bases/",
)


def crds(settings: Settings, module: Module = GATEWAY_API) -> tuple[Path, ...]:
    """The CRDs of the module, fetched once.

    Raises:
        ClusterError: Go is missing, the proxy is away, or the module is not the one we know.
    """
    target = settings.home / Path(module.path).name / module.version
    if not target.is_dir():
        _fetch(module, target)
    return tuple(sorted(target.glob("*.yaml")))


def _fetch(module: Module, target: Path) -> None:
    name = f"{module.path}@{module.version}"
    found = json.loads(output_of(["go", "mod", "download", "-json", name]))
    if found.get("Sum") != module.sum:
        raise ClusterError(f"{name}: its sum is {found.get('Sum')}, not {module.sum}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent))
    partial.chmod(0o755)
    inside = f"{name}/{module.folder}"
    with zipfile.ZipFile(found["Zip"]) as archive:
        for member in archive.namelist():
            if member.startswith(inside) and member.endswith(".yaml"):
                (partial / Path(member).name).write_bytes(archive.read(member))
    try:
        partial.rename(target)
    except OSError:
        # Somebody else was faster; theirs is the same.
        shutil.rmtree(partial)
