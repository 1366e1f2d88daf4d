"""How worker pods look to Kubernetes, and where models are kept."""

from typing import Annotated, Literal

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import Opaque

Quantity = Annotated[
    str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$")
]


class HugePages(Model):
    """Pages that the node set aside beforehand, asked for and mounted."""

    page_size: Literal["2Mi", "1Gi"] = Field(description="Size of one page.")
    amount: Quantity = Field(
        description="Of such pages in all, a multiple of the page's size; requested, limited, and "
        "mounted at /dev/hugepages. They count beside the memory limit."
    )


class Rdma(Model):
    """Network devices that reach other memory directly, for NCCL between GPUs."""

    resource_name: str = Field(
        default="rdma/hca",
        max_length=128,
        pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$",
        description="Extended resource of the device plugin. Default rdma/hca.",
    )
    count: int = Field(default=1, ge=1, le=64, description="Devices per pod. Default 1.")


class NodeLabel(Model):
    """A label that tells spot nodes from the others."""

    key: str = Field(
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="As in karpenter.sh/capacity-type, cloud.google.com/gke-spot or "
        "kubernetes.azure.com/scalesetpriority.",
    )
    value: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        description="As in `spot` or `true`.",
    )


class Spot(Model):
    """Some pods on nodes that are cheap and may be taken away, the others never on such nodes."""

    model_config = configuration(
        rule(
            "self.percent > 0 || self.nativePercent > 0",
            "pod.spot needs percent or nativePercent: without them no pod is on a spot node",
        ),
    )
    node_label: NodeLabel = Field(
        description="What spot nodes have and no other node has. A taint with the same key and "
        "value is tolerated by the pods that go there."
    )
    percent: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Share of each revision's pods, rounded down. They prefer spot nodes; where "
        "none has room they run anywhere. Default 0.",
    )
    min_reserved: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Of each revision so many pods are never on a spot node, as far as it has so "
        "many. Default 1.",
    )
    native_percent: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Share of the native lane's pods, rounded down; without a floor. Default 0.",
    )
    tolerations: list[Opaque] = Field(
        default_factory=list,
        max_length=8,
        description="Further tolerations of the pods that go to spot nodes, as in a Pod.",
    )


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
    spot: Spot | None = Field(
        default=None,
        description="Some pods on spot nodes, with a floor of pods on others. Absent: nodes are "
        "chosen by the fields above alone.",
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
        description="Size of the memory-backed /dev/shm, counted inside the memory limit. When "
        "absent: with more than one GPU and a memory limit 4Gi for each, but at most half of the "
        "limit; else unlimited within it.",
    )
    huge_pages: HugePages | None = Field(
        default=None, description="Huge pages for the engine's host memory."
    )
    rdma: Rdma | None = Field(
        default=None,
        description="RDMA devices; the container then gets the capability IPC_LOCK, which pins "
        "memory for them. Networks that they need are asked for by annotations.",
    )
    numa_bind: bool = Field(
        default=False,
        description="Let the engine bind each GPU's process to the cores and memory next to it "
        "(vLLM 0.20 and later; the image needs numactl). Default false.",
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
        description="Environment of the engine, as in a Pod; hub tokens and the keys of buckets "
        "come from a Secret here (HF_TOKEN, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY with "
        "valueFrom.secretKeyRef).",
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, description="Annotations of worker pods."
    )


class ModelCache(Model):
    """Where models that are fetched are kept between pods."""

    persistent_volume_claim: str = Field(
        max_length=253, description="Claim mounted into every worker; ReadWriteMany if shared."
    )
