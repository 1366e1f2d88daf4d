"""Volumes of a worker pod: models on the node or on claims, the model cache, /dev/shm.

`file:///path` is mounted read-only at the same path, `pvc://claim/path` as
`/mnt/claims/<claim>`, `oci://image` as an image volume (`speculative_worker` looks
there). Called by `workers`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from speculative_api.model_images import IMAGES_DIRECTORY, ModelImage, image_of
from speculative_api.model_sources import model_sources
from speculative_operator.desired.revision import Revisioned

CACHE_DIRECTORY: Final = "/mnt/cache"
"""Where the `modelCache` claim is mounted."""
CLAIMS_DIRECTORY: Final = "/mnt/claims"
"""Where claims named by `pvc://` are mounted, each under its own name."""
TLS_DIRECTORY: Final = "/etc/worker/tls"
"""Where the Secret of `engine.tls` is mounted."""
_TLS: Final = "tls"
_SHARED_MEMORY: Final = "shared-memory"
_HUGE_PAGES: Final = "huge-pages"
_SHARED_BYTES_PER_GPU: Final = 4 * 2**30
_FACTORS: Final = {
    "": 1,
    **{f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGT")},
    **{letter: 1000 ** (power + 1) for power, letter in enumerate("kMGT")},
}
_QUANTITY: Final = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([KMGT]i|[kMGT])?$")

Volume = dict[str, Any]


def volumes_of(part: Revisioned) -> tuple[list[Volume], list[Volume]]:
    """The pod's volumes and the worker container's mounts.

    /dev/shm is memory-backed: the 64 MiB that a container has by default make
    NCCL fail at start with more than one GPU. It counts inside the memory limit.
    """
    shared: Volume = {"medium": "Memory"}
    if size := part.pod.shm_size or _shared_memory(part):
        shared["sizeLimit"] = size
    volumes: list[Volume] = [{"name": _SHARED_MEMORY, "emptyDir": shared}]
    mounts: list[Volume] = [{"name": _SHARED_MEMORY, "mountPath": "/dev/shm"}]  # noqa: S108
    if pages := part.pod.huge_pages:
        medium = {"medium": f"HugePages-{pages.page_size}"}
        volumes.append({"name": _HUGE_PAGES, "emptyDir": medium})
        mounts.append({"name": _HUGE_PAGES, "mountPath": "/dev/hugepages"})
    for index, path in enumerate(_node_paths(part)):
        name = f"node-{index}"
        volumes.append({"name": name, "hostPath": {"path": path, "type": "Directory"}})
        mounts.append({"name": name, "mountPath": path, "readOnly": True})
    for index, image in enumerate(_images(part)):
        name, pull = f"image-{index}", part.pod.image_pull_policy
        source = {"reference": image.reference} | ({"pullPolicy": pull} if pull else {})
        volumes.append({"name": name, "image": source})
        path = f"{IMAGES_DIRECTORY}/{image.mount_name}"
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
    if tls := part.engine.tls:
        secret = {"secretName": tls.secret_name, "defaultMode": 0o400}
        volumes.append({"name": _TLS, "secret": secret})
        mounts.append({"name": _TLS, "mountPath": TLS_DIRECTORY, "readOnly": True})
    return volumes, mounts


def gpus_per_pod(part: Revisioned) -> int:
    """Tensor x pipeline x data parallel of one node, shared by a draft; 0 if simulated."""
    if part.engine.simulation is not None:
        return 0
    target = part.target
    stages = target.tensor_parallel_size * target.pipeline_parallel_size
    return stages * target.data_parallel_size // target.nodes_per_replica


def _shared_memory(part: Revisioned) -> str | None:
    """Enough for the processes of several GPUs, and below the memory limit that it counts in.

    None (as much as the limit allows) with one GPU, or without a limit.
    """
    gpus = gpus_per_pod(part)
    limits = (part.pod.resources or {}).get("limits")
    memory = _bytes(limits.get("memory")) if isinstance(limits, dict) else None
    if gpus < 2 or memory is None:
        return None
    return f"{min(memory // 2, gpus * _SHARED_BYTES_PER_GPU) // 2**20}Mi"


def _bytes(quantity: Any) -> int | None:
    """A memory quantity in bytes; None for what is none."""
    found = _QUANTITY.match(str(quantity))
    return int(float(found[1]) * _FACTORS[found[2] or ""]) if found else None


def models_of(part: Revisioned) -> list[str]:
    """The sources of all models of a revision."""
    return model_sources(part.target, part.speculation)


def node_path(model: str) -> str | None:
    """The folder on the node of a `file://` model; None for other forms."""
    path = model.removeprefix("file://")
    return None if path == model else path.rstrip("/") or "/"


def _node_paths(part: Revisioned) -> list[str]:
    paths = (node_path(model) for model in models_of(part))
    return list(dict.fromkeys(path for path in paths if path))


def _images(part: Revisioned) -> list[ModelImage]:
    """One for each image, whatever models it holds."""
    found = (image for model in models_of(part) if (image := image_of(model)) is not None)
    return list({image.reference: image for image in found}.values())


def _claims(part: Revisioned) -> Iterator[str]:
    for model in models_of(part):
        if model.startswith("pvc://"):
            yield model.removeprefix("pvc://").split("/", 1)[0]
