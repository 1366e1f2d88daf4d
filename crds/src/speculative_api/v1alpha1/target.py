"""The model whose output users get."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.common import ModelSource


class Dtype(StrEnum):
    """Number formats the engine knows for weights and activations."""

    AUTO = "auto"
    HALF = "half"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Adapter(Model):
    """One LoRA adapter; clients ask for it by its name in place of the model's."""

    name: str = Field(
        max_length=253,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        description="Name that clients put into `model`.",
    )
    model: ModelSource = Field(
        description="Where the adapter comes from; same forms as target.model."
    )


class Lora(Model):
    """LoRA adapters on top of the target; drafts know nothing of them."""

    adapters: list[Adapter] = Field(
        min_length=1, max_length=64, description="The adapters that are loaded at start."
    )
    max_adapters: int = Field(
        default=1, ge=1, le=64, description="Different adapters in one batch. Default 1."
    )
    max_rank: int = Field(
        default=16, ge=1, le=512, description="Largest rank of any adapter. Default 16."
    )


class Target(Model):
    """The model whose output users get; drafts only make it faster."""

    model_config = configuration(
        rule(
            "self.nodesPerReplica == 1 || self.dataParallelSize == 1",
            "copies of the model inside one replica don't span nodes: set dataParallelSize 1 and "
            "raise spec.replicas instead",
            ".dataParallelSize",
        ),
        rule(
            "self.tensorParallelSize * self.pipelineParallelSize % self.nodesPerReplica == 0",
            "every node has as many GPUs: tensorParallelSize x pipelineParallelSize must be a "
            "multiple of nodesPerReplica",
            ".nodesPerReplica",
        ),
    )

    model: ModelSource = Field(
        description="Where the target model comes from: hf://owner/name@revision (a model hub), "
        "s3://bucket/prefix@version (a bucket of the S3 API; version is the digest of its files "
        "that pods report, and what is there now if left out), "
        "file:///path/on/the/node (a hostPath; needs a namespace that allows it), "
        "pvc://claim/path, or oci://registry/name@digest//folder (an image volume; needs "
        "Kubernetes 1.35, or 1.33 with the feature gate ImageVolume; folder is where the model "
        "lies in the image, its top if left out)."
    )
    served_model_name: str | None = Field(
        default=None,
        max_length=253,
        min_length=1,
        description="Name that clients put into `model`. Defaults to the resource's name.",
    )
    tensor_parallel_size: int = Field(
        default=1, ge=1, le=64, description="GPUs that share each layer. Default 1."
    )
    pipeline_parallel_size: int = Field(
        default=1, ge=1, le=64, description="Stages that split the layers. Default 1."
    )
    data_parallel_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Copies of the model inside one pod, behind one address; each has its own "
        "tensorParallelSize x pipelineParallelSize GPUs. More replicas do the same across pods. "
        "Default 1.",
    )
    nodes_per_replica: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Pods that hold one copy of the model together, one for each node that it "
        "needs: tensorParallelSize x pipelineParallelSize GPUs are divided among them evenly. "
        "More than 1 makes a replica a group of a LeaderWorkerSet (leaderworkerset.x-k8s.io/v1), "
        "which the cluster must have; replicas, capacity and canaries count groups. Default 1.",
    )
    dtype: Dtype | None = Field(
        default=None, description="Number format; the engine chooses when absent."
    )
    quantization: str | None = Field(
        default=None,
        max_length=64,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Quantisation method of the checkpoint; the engine detects it when absent.",
    )
    kv_cache_dtype: str | None = Field(
        default=None,
        max_length=32,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Number format of the KV cache, for instance fp8; the engine's choice when "
        "absent.",
    )
    max_model_len: int | None = Field(
        default=None,
        ge=16,
        le=16_777_216,
        description="Longest prompt plus answer, in tokens. The model's own limit when absent. "
        "Never lowered silently: a draft with a shorter limit is refused.",
    )
    trust_remote_code: bool = Field(
        default=False,
        description="Let the engine run Python code that comes with the model. Default false.",
    )
    lora: Lora | None = Field(
        default=None, description="LoRA adapters to serve beside the target itself."
    )
