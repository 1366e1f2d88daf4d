"""PURE: the texts by which an engine's end is known, each with its reason and what to do.

`classify` looks through them in order. Written against vLLM 0.32.0's sources,
PyTorch's, NCCL's and public reports of both generations;
`tests/worker/crash_samples.py` has one real text or more for each.
"""

import re
from dataclasses import dataclass
from typing import Final

from speculative_api.conditions import WorkerReason

COMMUNICATION: Final = "communication"
"""The rule whose texts are often a consequence: the other process had ended before."""
ADVICE_HOST_MEMORY: Final = (
    "the container ran out of memory: raise its memory limit (pod.resources), or lower "
    "pod.shmSize, which counts inside it"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One known way to fail."""

    name: str
    pattern: re.Pattern[str]
    reason: WorkerReason
    advice: str
    retryable: bool = False
    retryable_while_serving: bool = False
    """Whether a restart helps once the engine had served: then it was load, not the spec."""
    from_requests: bool = False
    """Whether a request can put this text into the log, e.g. with the address of an image. Such
    a rule says nothing about an engine that had served."""


def _rule(
    name: str,
    pattern: str,
    reason: WorkerReason,
    advice: str,
    *,
    retryable: bool = False,
    retryable_while_serving: bool = False,
    from_requests: bool = False,
) -> Rule:
    return Rule(
        name,
        re.compile(pattern, re.IGNORECASE | re.MULTILINE),
        reason,
        advice,
        retryable,
        retryable or retryable_while_serving,
        from_requests,
    )


_MODELS_AND_MEMORY: Final = (
    _rule(
        "vocabulary",
        r"same vocabulary size|vocab(ulary)?[ _]?sizes? (mismatch|(do|does) not match|differ)"
        r"|vocabulary mismatch|different vocabular",
        WorkerReason.VOCABULARY_MISMATCH,
        "draft and target vocabularies differ: choose a draft with the target's tokenizer",
    ),
    _rule(
        "another target's head",
        r"models/\w*(eagle|medusa|mtp|mlp_speculator|dflash|dspark)\w*\.py\"[\s\S]{0,3000}?"
        r"(shapes cannot be multiplied|must match the size of tensor|loaded_weight\.shape)",
        WorkerReason.DRAFT_MISMATCH,
        "the draft's shapes are not the target's: choose a head that was trained for this target",
    ),
    _rule(
        "host allocator",
        r"defaultcpuallocator: (not enough|can't allocate) memory",
        WorkerReason.HOST_MEMORY,
        ADVICE_HOST_MEMORY,
        retryable_while_serving=True,
    ),
    _rule(
        "gpu memory",
        r"(cuda|hip|torch)\S*[ .](error: )?out ?of ?memory|outofmemoryerror"
        r"|(cuda|hip) failure (\d+ )?'out of memory'|cublas_status_alloc_failed"
        r"|no available memory for the cache blocks|not enough (gpu )?memory"
        r"|free memory on device .* is less than desired"
        r"|larger than the (maximum number of tokens that can be stored|available kv cache memory)"
        r"|kv cache is needed, which is larger than",
        WorkerReason.GPU_MEMORY,
        "the GPU's memory is too small for weights, cache and draft: lower "
        "engine.gpuMemoryUtilizationPercent, target.maxModelLen or engine.maxNumSeqs, or use a "
        "smaller draft",
        retryable_while_serving=True,
    ),
    _rule(
        "shared memory",
        r"bus error|sigbus received|shared memory segment|/dev/shm.{0,80}no space left"
        r"|no space left.{0,80}(/dev/shm|'/psm_)|posix_fallocate failed|</torch_\w+>: no space left"
        r"|unable to (open|allocate|write to) shared memory",
        WorkerReason.GPU_COMMUNICATION,
        "the shared memory between the engine's processes is too small: raise pod.shmSize, and "
        "the memory limit that it counts inside",
    ),
    _rule(
        "disk",
        r"no space left on device|disk quota exceeded",
        WorkerReason.DISK_TOO_SMALL,
        "a disk that the engine writes to is full: give its caches room (modelCache, an emptyDir "
        "with a larger limit), or raise ephemeral-storage in pod.resources",
        retryable_while_serving=True,
    ),
    _rule(
        "host memory",
        r"cannot allocate memory|std::bad_alloc|(?<!cuda )memoryerror\b"
        r"|less than desired cpu memory|allocation is less than requested memory for kv",
        WorkerReason.HOST_MEMORY,
        ADVICE_HOST_MEMORY,
        retryable_while_serving=True,
    ),
)
_GPUS: Final = (
    _rule(
        "gpu unsupported",
        r"no kernel image is available for execution|is not supported for ('?, ')?the current gpu"
        r"|is only supported on gpus with compute capability|gpus with compute capability below"
        r"|flashattention only supports \w+ gpus or newer|is not defined for option 'gpu-name'",
        WorkerReason.GPU_UNSUPPORTED,
        "this kind of GPU can't do what is asked of it: set target.dtype or target.quantization to "
        "what it can, choose an engine.image built for it, or other nodes with pod.nodeSelector",
    ),
    _rule(
        "driver too old",
        r"cuda driver version is insufficient|nvidia driver on your system is too old"
        r"|unsupported display driver|forward compatibility was attempted"
        r"|ptx was compiled with an unsupported toolchain",
        WorkerReason.GPU_DRIVER,
        "the image's CUDA does not fit this node's driver: choose an engine.image built for it, or "
        "other nodes with pod.nodeSelector",
    ),
    _rule(
        "driver",
        r"found no nvidia driver|no cuda gpus are available|failed to infer device type"
        r"|no cuda-capable device|system not yet initialized|driver/library version mismatch"
        r"|nvml.{0,40}(driver not loaded|not found)|libcuda\.so\S*: cannot open shared object"
        r"|device\(s\) is/are busy or unavailable|cuda unknown error - ",
        WorkerReason.GPU_DRIVER,
        "no GPU is usable in this container: check the node's driver and device plugin",
        retryable=True,
    ),
    _rule(
        "gpu broken",
        r"uncorrectable ecc error|fallen off the bus|gpu is lost",
        WorkerReason.GPU_DRIVER,
        "the GPU failed: look at the node's Xid messages, and drain the node if they come again",
        retryable=True,
    ),
)
_FILES: Final = (
    _rule(
        "gated",
        r"gatedrepoerror|access to model \S+ is restricted|\b401 client error|\b403 client error"
        r"|(cannot|trying to) access a? ?gated repo",
        WorkerReason.MODEL_NOT_FOUND,
        "the hub refuses access: accept the model's terms and set HF_TOKEN in pod.env",
        from_requests=True,
    ),
    _rule(
        "hub away",
        r"localentrynotfounderror|offlinemodeisenabled"
        r"|couldn't connect to 'https?://|failed to (connect|reach|resolve) .*hub"
        r"|(max retries exceeded|name resolution|connection (refused|error|timed out)).*huggingface"
        r"|huggingface\.co.*(max retries exceeded|name resolution|connection|timed out)"
        r"|huggingface_hub/[\s\S]{0,2000}?httpx\.\w*(connect|timeout)\w*:"
        r"|hfhubhttperror: (429|5\d\d) ",
        WorkerReason.HUB_UNREACHABLE,
        "the model hub cannot be reached from this pod, or refuses for now",
        retryable=True,
        from_requests=True,
    ),
    _rule(
        "no model",
        r"repositorynotfounderror|revisionnotfounderror|is not a local folder and is not a valid"
        r"|cannot find any (safetensors )?model weights|no safetensors"
        r"|does not appear to have a file named"
        r"|invalid repository id or local directory|can't load (tokenizer|the configuration)"
        r"|no such file or directory: ['\"][^'\"\n]*(config\.json|\.safetensors|tokenizer)",
        WorkerReason.MODEL_NOT_FOUND,
        "the model's files are missing or incomplete: check target.model and draft.model",
        from_requests=True,
    ),
    _rule(
        "damaged",
        r"error while deserializing header|is not a valid json file"
        r"|weights were not initialized from checkpoint",
        WorkerReason.MODEL_DAMAGED,
        "the model's files are cut short, are Git LFS pointers, or lack weights: fetch them anew",
    ),
    _rule(
        "unwritable",
        r"\bpermissionerror: \[errno 13\]|\[errno 30\] read-only file system",
        WorkerReason.CACHE_UNWRITABLE,
        "the engine may not write there: mount a volume, or set the variable that names the place "
        "(HF_HOME, VLLM_CACHE_ROOT, TRITON_CACHE_DIR) in pod.env",
    ),
    _rule(
        "model unsupported",
        r"model architectures .{0,400} are not supported|does not recognize this architecture"
        r"|contains custom code which must be executed|consider setting `trust_remote_code=true`"
        r"|tokenizer class \S+ does not exist|did not match any variant of untagged enum",
        WorkerReason.MODEL_UNSUPPORTED,
        "this engine does not know this kind of model: choose a newer engine.version and image, or "
        "set target.trustRemoteCode if its own code is to run",
    ),
)
_SETTINGS: Final = (
    _rule(
        "arguments",
        r"unrecognized arguments|^usage: |: error: argument|expected one argument"
        r"|invalid choice|speculative_?config\b.*(unexpected keyword|extra_forbidden)"
        r"|validation errors? for \w*config\b"
        r"|is not a valid argument|does not support (speculative|pipeline)"
        r"|pipeline parallelism is not supported"
        r"|is greater than the derived max_model_len|arctic inference is required"
        r"|'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same"
        r"|num_speculative_tokens:\d+ must be divisible by"
        r"|must be divisible by tensor parallel size|larger than the number of available gpus"
        r"|unknown quantization method|quantization method specified in the model config"
        r"|invalid (tool call|reasoning) parser|supplied chat template",
        WorkerReason.INVALID_ARGUMENTS,
        "the engine refuses its arguments: check engine.extraArgs, speculation.extra and the "
        "engine's version",
    ),
    _rule(
        COMMUNICATION,
        r"nccl (error|failure)|nccl(unhandled|system|internal|remote|invalid)\w*error"
        r"|dist(backend|network|store)error|watchdog caught collective operation timeout",
        WorkerReason.GPU_COMMUNICATION,
        "the GPUs of this pod can't talk to each other: look for NCCL's own warning above, and set "
        "NCCL_DEBUG=INFO in pod.env to see more",
        retryable=True,
    ),
    _rule(
        "port",
        r"address already in use|errno 98\b|port \d+ is already in use",
        WorkerReason.PORT_TAKEN,
        "a port of the engine is taken: by another container of this pod, or because of a variable "
        "such as VLLM_PORT in pod.env",
        retryable=True,
    ),
)
RULES: Final[tuple[Rule, ...]] = (*_MODELS_AND_MEMORY, *_GPUS, *_FILES, *_SETTINGS)
"""In order; the first that matches wins."""
