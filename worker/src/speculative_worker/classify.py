"""PURE: how an engine ended becomes a reason that people and the operator can act on.

Comes in: the tail of its output, its exit code, whether it had served. Goes
out: a `WorkerFailure`. A rule matches text that engines of several
generations print; what no rule knows stays EngineCrashed and retryable.
"""

import re
from dataclasses import dataclass
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_worker.errors import WorkerFailure

TAIL_BYTES: Final = 2048
"""How much of the engine's last output goes into the detail."""
_NEAR_END_CHARACTERS: Final = 8192
_LINE_CHARACTERS: Final = 400
_USAGE_EXIT_CODE: Final = 2
_ERROR_LINE: Final = re.compile(r"\b\w*(?:Error|Exception)(?:\(\w*\))?: .+")
_CONSEQUENCE: Final = re.compile(
    r"engine core initialization failed|see (root cause|stack trace)", re.I
)
"""What the front process says when the real error is further up."""
_ADVICE_GPU_MEMORY: Final = (
    "the GPU's memory is too small for weights, cache and draft: lower "
    "engine.gpuMemoryUtilizationPercent, target.maxModelLen or engine.maxNumSeqs, or use a "
    "smaller draft"
)
_ADVICE_HOST_MEMORY: Final = (
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


def _rule(
    name: str,
    pattern: str,
    reason: WorkerReason,
    advice: str,
    *,
    retryable: bool = False,
    retryable_while_serving: bool = False,
) -> Rule:
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return Rule(name, compiled, reason, advice, retryable, retryable or retryable_while_serving)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "vocabulary",
        r"same vocabulary size|vocab(ulary)?[ _]?sizes? (mismatch|(do|does) not match|differ)"
        r"|vocabulary mismatch|different vocabular",
        WorkerReason.VOCABULARY_MISMATCH,
        "draft and target vocabularies differ: choose a draft with the target's tokenizer",
    ),
    _rule(
        "gpu memory",
        r"(cuda|hip|torch)\S*[ .]out ?of ?memory|outofmemoryerror"
        r"|no available memory for the cache blocks|not enough (gpu )?memory"
        r"|free memory on device .* is less than desired"
        r"|larger than the (maximum number of tokens that can be stored|available kv cache memory)"
        r"|kv cache is needed, which is larger than",
        WorkerReason.GPU_MEMORY,
        _ADVICE_GPU_MEMORY,
        retryable_while_serving=True,
    ),
    _rule(
        "shared memory",
        r"bus error|shared memory segment|/dev/shm.{0,80}no space left|no space left.{0,80}/dev/shm"
        r"|unable to (open|allocate|write to) shared memory",
        WorkerReason.GPU_COMMUNICATION,
        "the shared memory between the engine's processes is too small: raise pod.shmSize, and "
        "the memory limit that it counts inside",
    ),
    _rule(
        "driver too old",
        r"cuda driver version is insufficient|nvidia driver on your system is too old"
        r"|no kernel image is available for execution",
        WorkerReason.GPU_DRIVER,
        "the image's CUDA does not fit this node's driver or GPU: choose an engine.image built for "
        "it, or other nodes with pod.nodeSelector",
    ),
    _rule(
        "driver",
        r"found no nvidia driver|no cuda gpus are available|failed to infer device type"
        r"|no cuda-capable device|system not yet initialized|driver/library version mismatch"
        r"|nvml.{0,40}(driver not loaded|not found)|libcuda\.so\S*: cannot open shared object",
        WorkerReason.GPU_DRIVER,
        "no GPU is usable in this container: check the node's driver and device plugin",
        retryable=True,
    ),
    _rule(
        "host memory",
        r"cannot allocate memory|std::bad_alloc|(?<!cuda )memoryerror\b|no space left on device"
        r"|less than desired cpu memory|allocation is less than requested memory for kv",
        WorkerReason.HOST_MEMORY,
        _ADVICE_HOST_MEMORY,
        retryable_while_serving=True,
    ),
    _rule(
        "gated",
        r"gatedrepoerror|access to model \S+ is restricted|\b401 client error|\b403 client error"
        r"|cannot access gated repo",
        WorkerReason.MODEL_NOT_FOUND,
        "the hub refuses access: accept the model's terms and set HF_TOKEN in pod.env",
    ),
    _rule(
        "hub away",
        r"localentrynotfounderror|offlinemodeisenabled"
        r"|couldn't connect to 'https?://|failed to (connect|reach|resolve) .*hub"
        r"|(max retries exceeded|name resolution|connection (refused|error|timed out)).*huggingface"
        r"|huggingface\.co.*(max retries exceeded|name resolution|connection|timed out)",
        WorkerReason.HUB_UNREACHABLE,
        "the model hub cannot be reached from this pod",
        retryable=True,
    ),
    _rule(
        "no model",
        r"repositorynotfounderror|revisionnotfounderror|is not a local folder and is not a valid"
        r"|cannot find any model weights|no safetensors|does not appear to have a file named"
        r"|invalid repository id or local directory|can't load (tokenizer|the configuration)"
        r"|no such file or directory: '[^']*(config\.json|\.safetensors|tokenizer)",
        WorkerReason.MODEL_NOT_FOUND,
        "the model's files are missing or incomplete: check target.model and draft.model",
    ),
    _rule(
        "arguments",
        r"unrecognized arguments|^usage: |: error: argument|expected one argument"
        r"|invalid choice|speculative_?config\b.*(unexpected keyword|extra_forbidden)"
        r"|validation errors? for \w*(speculative|engine|vllm|model)config"
        r"|is not a valid argument|does not support (speculative|pipeline)"
        r"|is greater than the derived max_model_len|arctic inference is required"
        r"|'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same"
        r"|num_speculative_tokens:\d+ must be divisible by",
        WorkerReason.INVALID_ARGUMENTS,
        "the engine refuses its arguments: check engine.extraArgs, speculation.extra and the "
        "engine's version",
    ),
    _rule(
        "communication",
        r"nccl (error|failure)|nccl(unhandled|system|internal|remote|invalid)\w*error"
        r"|distbackenderror|watchdog caught collective operation timeout",
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
"""In order; the first that matches wins."""


def engine_failure(
    tail: str, *, exit_code: int, served: bool, out_of_memory_kill: bool
) -> WorkerFailure:
    """Why the engine ended.

    `exit_code` is negative for a signal, as in `subprocess`;
    `out_of_memory_kill` says that the kernel killed a process of this container.
    """
    if out_of_memory_kill and exit_code in (-9, 137):
        return _failure(WorkerReason.HOST_MEMORY, _ADVICE_HOST_MEMORY, tail, retryable=served)
    # Near the end first: earlier output holds warnings that may look like a reason.
    for part in (tail[-_NEAR_END_CHARACTERS:], tail):
        for rule in RULES:
            if found := rule.pattern.search(part):
                retryable = rule.retryable_while_serving if served else rule.retryable
                summary = f"{rule.advice}. The engine said: {_line_of(part, found.start())}"
                return _failure(rule.reason, summary, tail, retryable=retryable)
    if exit_code == _USAGE_EXIT_CODE and not served:
        return _failure(
            WorkerReason.INVALID_ARGUMENTS,
            "the engine exited with 2, its answer to arguments it does not know",
            tail,
            retryable=False,
        )
    how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    when = "while serving" if served else "before it served"
    summary = f"the engine ended {when} with {how}"
    if error := _last_error(tail):
        summary += f". The engine said: {error}"
    return _failure(WorkerReason.ENGINE_CRASHED, summary, tail, retryable=True)


def _line_of(text: str, position: int) -> str:
    """The whole line around a position, cut to what a condition's message can hold."""
    start = text.rfind("\n", 0, position) + 1
    return text[start:].partition("\n")[0].strip()[:_LINE_CHARACTERS]


def _last_error(tail: str) -> str | None:
    """The last line of a traceback that is a cause, not a consequence."""
    causes = [text for text in _ERROR_LINE.findall(tail) if not _CONSEQUENCE.search(text)]
    return causes[-1].strip()[:_LINE_CHARACTERS] if causes else None


def _failure(reason: WorkerReason, summary: str, tail: str, *, retryable: bool) -> WorkerFailure:
    last = tail.encode()[-TAIL_BYTES:].decode(errors="ignore").strip()
    detail = f"{summary}. Last output of the engine:\n{last}" if last else summary
    return WorkerFailure(reason, detail, retryable=retryable)
