"""PURE: a worker's configuration becomes the engine's command line.

Comes in: `WorkerConfig`, with model sources already resolved to folders. Goes
out: a list of arguments for vLLM 0.32.0, passed to the system call as it is;
no shell ever sees it.
"""

import json
from typing import Any, Final, assert_never

from speculative_api.conditions import WorkerReason
from speculative_api.engine_arguments import (
    argument_findings,
    draft_parallel_findings,
    extra_findings,
)
from speculative_api.v1alpha1 import NGramLookup
from speculative_api.worker import WorkerConfig
from speculative_worker.errors import WorkerFailure

ENGINE_MODULE: Final = "vllm.entrypoints.openai.api_server"
"""Started as a module: the `vllm` command needs package metadata that CPU builds lack."""
ENGINE_PYTHON: Final = "python3"
"""Found on PATH: the image keeps the worker's packages in an environment of their own, so the
interpreter that runs the worker is not the one that has vLLM."""
KNOWN_VERSIONS: Final = ("0.32.0",)
_ENGINE_DRAIN_SECONDS: Final = 5
"""The engine's own drain after ours, for a request between two of our looks at it. Short: by then
the gateways have followed for 10 s and the engine was seen idle or had all of `drainSeconds`, and
vLLM 0.32 with a single process uses up this time even when idle (measured: 20 s of 20)."""


def engine_command(
    config: WorkerConfig,
    *,
    target_path: str,
    draft_path: str | None,
    port: int,
    host: str | None = None,
    python: str = ENGINE_PYTHON,
) -> list[str]:
    """The engine's whole command line.

    Raises `WorkerFailure` (InvalidArguments, not retryable) for an engine
    version that is not known here and for extras that collide with a field.
    """
    _refuse_collisions(config)
    command = [python, "-m", ENGINE_MODULE]
    command += ["--model", target_path, "--served-model-name", config.served_model_name]
    command += ["--port", str(port)]
    if host:
        command += ["--host", host]
    command += [
        *("--tensor-parallel-size", str(config.tensor_parallel_size)),
        *("--pipeline-parallel-size", str(config.pipeline_parallel_size)),
        *("--max-num-seqs", str(config.max_num_seqs)),
        *("--gpu-memory-utilization", f"{config.gpu_memory_utilization_percent / 100:.2f}"),
        *("--shutdown-timeout", str(min(config.drain_seconds, _ENGINE_DRAIN_SECONDS))),
    ]
    for flag, value in (
        ("--dtype", config.dtype),
        ("--quantization", config.quantization),
        ("--kv-cache-dtype", config.kv_cache_dtype),
        ("--max-model-len", config.max_model_len),
    ):
        if value is not None:
            command += [flag, str(value)]
    if config.trust_remote_code:
        command.append("--trust-remote-code")
    speculative = speculative_config(config, draft_path=draft_path)
    if speculative is not None:
        command += ["--speculative-config", json.dumps(speculative)]
    return command + config.extra_args


def speculative_config(config: WorkerConfig, *, draft_path: str | None) -> dict[str, Any] | None:
    """The engine's speculative configuration; None without speculation.

    `method` is always said: the engine would otherwise guess it from the
    draft's path, and a path can lie.
    """
    speculation = config.speculation
    base: dict[str, Any] = {"num_speculative_tokens": speculation.num_speculative_tokens}
    match speculation.method:
        case "None":
            return None
        case "NGram":
            window = speculation.ngram or NGramLookup()
            base["method"] = "ngram"
            base["prompt_lookup_min"] = window.prompt_lookup_min
            base["prompt_lookup_max"] = window.prompt_lookup_max
        case "DraftModel":
            if speculation.draft is None or draft_path is None:
                raise _invalid("method DraftModel needs a draft model")
            base["method"] = "draft_model"
            base["model"] = draft_path
            base["draft_tensor_parallel_size"] = speculation.draft.tensor_parallel_size
        case _:
            assert_never(speculation.method)
    if speculation.num_speculative_tokens is None:
        raise _invalid(f"method {speculation.method} needs numSpeculativeTokens")
    if twice := sorted(speculation.extra.keys() & base.keys()):
        raise _invalid(f"speculation.extra repeats {', '.join(twice)}")
    return base | speculation.extra


def _refuse_collisions(config: WorkerConfig) -> None:
    if config.engine_version not in KNOWN_VERSIONS:
        raise _invalid(
            f"engine version {config.engine_version} is not known to this worker, which knows "
            f"{', '.join(KNOWN_VERSIONS)}: its flags cannot be chosen"
        )
    draft = config.speculation.draft
    found = [
        *extra_findings(
            config.speculation.extra,
            method=config.speculation.method,
            num_speculative_tokens=config.speculation.num_speculative_tokens,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
        ),
        *argument_findings(config.extra_args),
        *draft_parallel_findings(
            draft.tensor_parallel_size if draft else 1,
            target_parallel_size=config.tensor_parallel_size,
        ),
    ]
    if found:
        raise _invalid("; ".join(found))


def _invalid(detail: str) -> WorkerFailure:
    return WorkerFailure(WorkerReason.INVALID_ARGUMENTS, detail, retryable=False)
