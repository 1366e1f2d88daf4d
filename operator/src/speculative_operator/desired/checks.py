"""What is wrong with a spec as far as its pod template goes, known without any pod.

Each finding names the field and the remedy; any finding makes Accepted=False.
`gather` adds those about engine arguments, which know the engine's version.
"""

import ipaddress
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_operator.desired import autoscaling, keda, spot
from speculative_operator.desired.objects import (
    RevisionTooLarge,
    controller_revision,
)
from speculative_operator.desired.revision import parse, words_of
from speculative_operator.desired.volumes import CLAIMS_DIRECTORY, models_of, node_path
from speculative_operator.desired.workers import RESERVED_VARIABLES, pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord, Words

_SYSTEM_FOLDERS: Final = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"}
)
SURELY_FIT: Final = 8 * 1024
"""Bytes of words whose template can't be too large: it says each of them a few times, and a
character takes at most 12 bytes there. Rendering only to measure is half of reading a spec."""
_RESOURCE_BLOCKS: Final = frozenset({"requests", "limits", "claims"})


def findings(
    spec: SpeculativeDeploymentSpec, *, name: str, settings: Settings, words: Words | None = None
) -> tuple[str, ...]:
    """Contradictions in `pod`, `target.model` and the revision's size; empty when there are none.

    Args:
        name: of the resource.
        words: of the spec, where the caller has them already.
    """
    words = words or words_of(spec)
    found = (
        *autoscaling.findings(spec),
        *keda.findings(spec, settings),
        *spot.findings(spec),
        *_variables(spec),
        *_resources(spec),
        *_paths(words),
        *_addresses(spec),
    )
    return found or tuple(_size(words, name, settings))


def _variables(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    for index, variable in enumerate(spec.pod.env):
        if not isinstance(variable.get("name"), str) or not variable["name"]:
            yield f"spec.pod.env[{index}] has no name: add one, as in a Pod"
    counted = Counter(str(variable.get("name", "")) for variable in spec.pod.env)
    for variable_name, times in sorted(counted.items()):
        if variable_name and times > 1:
            yield f"spec.pod.env sets {variable_name} {times} times: keep one of them"
        if variable_name in RESERVED_VARIABLES:
            yield f"spec.pod.env sets {variable_name}, which the operator sets itself: remove it"


def _resources(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    gpu = spec.pod.gpu_resource_name
    resources: dict[str, Any] = spec.pod.resources or {}
    for block in sorted(set(resources) - _RESOURCE_BLOCKS):
        yield f"spec.pod.resources.{block} is unknown: use requests, limits or claims"
    for block in ("requests", "limits"):
        values = resources.get(block, {})
        if not isinstance(values, dict):
            yield f"spec.pod.resources.{block} must map resources to quantities"
        elif gpu in values:
            yield (
                f"spec.pod.resources.{block} asks for {gpu}: remove it, the count follows from "
                "target.tensorParallelSize x target.pipelineParallelSize"
            )


def _paths(words: Words) -> Iterator[str]:
    """A node's folder is mounted at the same path, so it must not hide the image's own files."""
    for model in models_of(parse(words.canonical)):
        path = node_path(model)
        parts = model.split("://", 1)[1].split("/")
        if ".." in parts:
            yield f"{model}: '..' is not allowed in a model's path; write the path out"
        elif path is not None and (path == "/" or path.split("/")[1] in _SYSTEM_FOLDERS):
            yield (
                f"{model}: this folder would hide the image's own files; keep models under a "
                f"folder such as /models (pvc:// claims appear under {CLAIMS_DIRECTORY})"
            )


def _addresses(spec: SpeculativeDeploymentSpec) -> Iterator[str]:
    for index, cidr in enumerate(spec.gateway.allowed_cidrs):
        try:
            ipaddress.ip_network(cidr)
        except ValueError as error:
            yield (
                f"spec.gateway.allowedCidrs[{index}]: {error}: write an address range such as "
                "10.0.0.0/8, with no bits set after its length"
            )


def _size(words: Words, name: str, settings: Settings) -> Iterator[str]:
    if len(json.dumps(words.canonical)) <= SURELY_FIT:
        return
    template = pod_template(words, name=name, settings=settings)
    record = RevisionRecord(words.hash, 1, words.canonical, template)
    try:
        controller_revision(record, name=name, metadata={})
    except RevisionTooLarge as error:
        largest = max(words.canonical, key=lambda key: len(json.dumps(words.canonical[key])))
        yield f"spec.{largest} is too long: {error}; shorten it"
