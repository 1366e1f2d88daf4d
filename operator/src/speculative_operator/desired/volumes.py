"""Volumes of a worker pod: models on the node or on claims, the model cache, /dev/shm.

`file:///path` is mounted read-only at the same path, `pvc://claim/path` as
`/mnt/claims/<claim>` (`speculative_worker` looks there). Called by `workers`.
"""

from collections.abc import Iterator
from typing import Any, Final

from speculative_operator.desired.revision import Revisioned

CACHE_DIRECTORY: Final = "/mnt/cache"
"""Where the `modelCache` claim is mounted."""
CLAIMS_DIRECTORY: Final = "/mnt/claims"
"""Where claims named by `pvc://` are mounted, each under its own name."""
_SHARED_MEMORY: Final = "shared-memory"

Volume = dict[str, Any]


def volumes_of(part: Revisioned) -> tuple[list[Volume], list[Volume]]:
    """The pod's volumes and the worker container's mounts.

    /dev/shm is memory-backed: the 64 MiB that a container has by default make
    NCCL fail at start with more than one GPU. It counts inside the memory limit.
    """
    shared: Volume = {"medium": "Memory"}
    if part.pod.shm_size:
        shared["sizeLimit"] = part.pod.shm_size
    volumes: list[Volume] = [{"name": _SHARED_MEMORY, "emptyDir": shared}]
    mounts: list[Volume] = [{"name": _SHARED_MEMORY, "mountPath": "/dev/shm"}]  # noqa: S108
    for index, path in enumerate(_node_paths(part)):
        name = f"node-{index}"
        volumes.append({"name": name, "hostPath": {"path": path, "type": "Directory"}})
        mounts.append({"name": name, "mountPath": path, "readOnly": True})
    cache = part.model_cache.persistent_volume_claim if part.model_cache else None
    claims = list(_claims(part))
    for index, claim in enumerate(dict.fromkeys([*([cache] if cache else []), *claims])):
        name = f"claim-{index}"
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        if claim == cache:
            mounts.append({"name": name, "mountPath": CACHE_DIRECTORY})
        if claim in claims:
            mounts.append(
                {"name": name, "mountPath": f"{CLAIMS_DIRECTORY}/{claim}", "readOnly": True}
            )
    return volumes, mounts


def models_of(part: Revisioned) -> list[str]:
    """The sources of the target, of the draft where there is one, and of LoRA adapters."""
    draft, lora = part.speculation.draft, part.target.lora
    adapters = [adapter.model for adapter in lora.adapters] if lora else []
    return [part.target.model, *([draft.model] if draft else []), *adapters]


def node_path(model: str) -> str | None:
    """The folder on the node of a `file://` model; None for other forms."""
    path = model.removeprefix("file://")
    return None if path == model else path.rstrip("/") or "/"


def _node_paths(part: Revisioned) -> list[str]:
    paths = (node_path(model) for model in models_of(part))
    return list(dict.fromkeys(path for path in paths if path))


def _claims(part: Revisioned) -> Iterator[str]:
    for model in models_of(part):
        if model.startswith("pvc://"):
            yield model.removeprefix("pvc://").split("/", 1)[0]
