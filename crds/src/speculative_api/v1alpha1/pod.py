"""How worker pods look to Kubernetes, and where models are kept."""

from typing import Annotated, Literal

from pydantic import Field

from speculative_api.base import Model
from speculative_api.v1alpha1.common import Opaque


class Pod(Model):
    """How worker pods look to Kubernetes."""

    node_selector: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        default_factory=dict, description="Node labels a worker needs."
    )
    gpu_resource_name: str = Field(
        default="nvidia.com/gpu",
        max_length=128,
        pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$",
        description="Extended resource to ask for; tensorParallelSize x pipelineParallelSize of "
        "it per pod. Default nvidia.com/gpu.",
    )
    resources: Opaque | None = Field(
        default=None,
        description="Container resources (requests and limits), as in a Pod. GPUs are added by "
        "the operator.",
    )
    tolerations: list[Opaque] = Field(
        default_factory=list,
        max_length=32,
        description="Tolerations, as in a Pod. The GPU resource's own taint is always tolerated.",
    )
    affinity: Opaque | None = Field(default=None, description="Affinity, as in a Pod.")
    topology_spread_constraints: list[Opaque] = Field(
        default_factory=list, max_length=16, description="Spread constraints, as in a Pod."
    )
    priority_class_name: str | None = Field(
        default=None, max_length=253, description="PriorityClass of worker pods."
    )
    runtime_class_name: str | None = Field(
        default=None, max_length=253, description="RuntimeClass of worker pods."
    )
    shm_size: str | None = Field(
        default=None,
        max_length=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
        description="Size of the memory-backed /dev/shm, counted inside the memory limit; "
        "unlimited within it when absent.",
    )
    service_account_name: str | None = Field(
        default=None, max_length=253, description="ServiceAccount of worker pods."
    )
    image_pull_secrets: list[Opaque] = Field(
        default_factory=list, max_length=8, description="Image pull secrets, as in a Pod."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="As in a Pod; Kubernetes' own rule when absent."
    )
    env: list[Opaque] = Field(
        default_factory=list,
        max_length=64,
        description="Environment of the engine, as in a Pod; hub tokens come from a Secret here "
        "(HF_TOKEN with valueFrom.secretKeyRef).",
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, description="Annotations of worker pods."
    )


class ModelCache(Model):
    """Where models from a hub are kept between pods."""

    persistent_volume_claim: str = Field(
        max_length=253, description="Claim mounted into every worker; ReadWriteMany if shared."
    )
