"""The Gateway API's CRDs, from its Go module: nothing is installed, only read.

The module comes through Go's proxy and is checked against a sum, like the
cluster's programs; the CRDs are kept under `home`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from pathlib import Path

from .commands import output_of
from .settings import ClusterError, Settings

MODULE = "sigs.k8s.io/gateway-api"
VERSION = "v1.4.0"
"""One whose Go is not newer than what Kubernetes itself needs."""
SUM = "h1:ZwlNM6zOHq0h3WUX2gfByPs2yAEsy/EenYJB78jpQfQ="
"""go.sum's hash of the module at this version."""
_FOLDER = "config/crd/standard/"


def crds(settings: Settings) -> tuple[Path, ...]:
    """The CRDs of the standard channel, fetched once.

    Raises:
        ClusterError: Go is missing, the proxy is away, or the module is not the one we know.
    """
    target = settings.home / "gateway-api" / VERSION
    if not target.is_dir():
        _fetch(target)
    return tuple(sorted(target.glob("*.yaml")))


def _fetch(target: Path) -> None:
    found = json.loads(output_of(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]))
    if found.get("Sum") != SUM:
        raise ClusterError(f"{MODULE} {VERSION}: its sum is {found.get('Sum')}, not {SUM}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent))
    partial.chmod(0o755)
    inside = f"{MODULE}@{VERSION}/{_FOLDER}"
    with zipfile.ZipFile(found["Zip"]) as archive:
        for name in archive.namelist():
            if name.startswith(inside) and name.endswith(".yaml"):
                (partial / Path(name).name).write_bytes(archive.read(name))
    try:
        partial.rename(target)
    except OSError:
        # Somebody else was faster; theirs is the same.
        shutil.rmtree(partial)
