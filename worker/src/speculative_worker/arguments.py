"""PURE: a worker's configuration becomes the engine's command line.

Comes in: `WorkerConfig`, with model sources already resolved to folders. Goes
out: a list of arguments for the configured version of vLLM, passed to the
system call as it is; no shell ever sees it. What a version takes is read from
the table in `speculative_api.engine_tables`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from speculative_api.adaptive import SCHEDULE_KEY, is_synchronous, schedule_of
from speculative_api.conditions import WorkerReason
from speculative_api.engine_arguments import request_findings
from speculative_api.engine_request import EngineRequest
from speculative_api.engine_tables import Facts, facts_of
from speculative_api.v1alpha1 import NGramLookup
from speculative_api.worker import WorkerConfig
from speculative_worker.adapting import ENGINE_PACKAGE, is_online
from speculative_worker.certificate import CERTIFICATE, KEY
from speculative_worker.errors import WorkerFailure
from speculative_worker.group import MASTER_PORT, Node

ENGINE_MODULE: Final = "vllm.entrypoints.openai.api_server"
"""Started as a module: the `vllm` command needs package metadata that CPU builds lack."""
FOLLOWER_MODULE: Final = "vllm.entrypoints.cli.main"
"""The other one has no engine without an API server (vLLM 0.32, entrypoints/cli/serve.py)."""
ENGINE_PYTHON: Final = "python3"
"""Found on PATH: the image keeps the worker's packages in an environment of their own, so the
interpreter that runs the worker is not the one that has vLLM."""
_ENGINE_DRAIN_SECONDS: Final = 5
"""The engine's own drain after ours, for a request between two of our looks at it. Short: by then
the gateways have followed for 10 s and the engine was seen idle or had all of `drainSeconds`, and
vLLM 0.32 with a single process uses up this time even when idle (measured: 20 s of 20)."""
_LOOKUPS: Final = ("NGram", "NGramGPU")
_OLD_LOOKUP_MODEL: Final = "[ngram]"
"""How engines without a JSON value spell n-gram: a model that is none (0.6, arg_utils.py)."""


def engine_command(
    config: WorkerConfig,
    *,
    target_path: str,
    draft_path: str | None,
    port: int,
    host: str | None = None,
    python: str = ENGINE_PYTHON,
    adapter_paths: Mapping[str, str] | None = None,
    tls_folder: str | None = None,
    node: Node | None = None,
) -> list[str]:
    """The engine's whole command line.

    Args:
        adapter_paths: folder of each LoRA adapter by its name.
        tls_folder: where `tls.crt` and `tls.key` are; None: plain HTTP.
        node: the pod's place in its group; None: it is an engine by itself.

    Raises `WorkerFailure` (InvalidArguments, not retryable) for an engine
    version that is not known here and for extras that collide with a field.
    """
    if found := request_findings(request_of(config)):
        raise _invalid("; ".join(found))
    facts = facts_of(config.engine_version)
    command = [python, "-m", *_group(node)]
    command += ["--model", target_path, "--served-model-name", config.served_model_name]
    command += ["--port", str(port)]
    if host:
        command += ["--host", host]
    if tls_folder is not None:
        command += ["--ssl-keyfile", f"{tls_folder}/{KEY}"]
        command += ["--ssl-certfile", f"{tls_folder}/{CERTIFICATE}"]
        if "--enable-ssl-refresh" in facts.flags:
            command.append("--enable-ssl-refresh")
    command += _sizes(config, facts)
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
    if config.numa_bind:
        command.append("--numa-bind")
    command += _adapters(config, adapter_paths or {})
    speculative = speculative_config(config, draft_path=draft_path)
    if speculative is not None:
        command += _spoken(speculative, facts)
    if is_online(config):
        scheduler = "Adaptive" if is_synchronous(config.speculation.method) else "AdaptiveAsync"
        command += ["--scheduler-cls", f"{ENGINE_PACKAGE}.scheduler.{scheduler}"]
    return command + config.extra_args


def request_of(config: WorkerConfig) -> EngineRequest:
    """What a worker's configuration asks of the engine."""
    speculation = config.speculation
    draft, ngram, adaptive = speculation.draft, speculation.ngram, speculation.adaptive
    return EngineRequest(
        version=config.engine_version,
        allow_unknown_version=config.allow_unknown_version,
        method=speculation.method,
        num_speculative_tokens=speculation.num_speculative_tokens,
        has_draft=draft is not None,
        draft_tensor_parallel_size=draft.tensor_parallel_size if draft else 1,
        ngram_prompt_lookup_min=ngram.prompt_lookup_min if ngram else None,
        extra=speculation.extra,
        allow_lossy=speculation.allow_lossy,
        extra_args=tuple(config.extra_args),
        tensor_parallel_size=config.tensor_parallel_size,
        pipeline_parallel_size=config.pipeline_parallel_size,
        data_parallel_size=config.data_parallel_size,
        nodes=config.nodes or 1,
        lora=config.lora is not None,
        numa_bind=config.numa_bind,
        dtype=config.dtype,
        quantization=config.quantization,
        kv_cache_dtype=config.kv_cache_dtype,
        adaptive_mode=adaptive.mode if adaptive else "Off",
        adaptive_schedule=tuple(
            (each.up_to_batch_size, each.num_speculative_tokens)
            for each in (adaptive.schedule if adaptive else None) or ()
        ),
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        gpu_memory_utilization_percent=config.gpu_memory_utilization_percent,
    )


def speculative_config(config: WorkerConfig, *, draft_path: str | None) -> dict[str, Any] | None:
    """The engine's speculative configuration; None without speculation.

    `method` is always said: the engine would otherwise guess it from the
    draft's path, and a path can lie.
    """
    speculation = config.speculation
    method = speculation.method
    if method == "None":
        return None
    name = facts_of(config.engine_version).methods.get(method)
    if name is None:
        raise _invalid(f"engine {config.engine_version} does not have method {method}")
    if speculation.num_speculative_tokens is None:
        raise _invalid(f"method {method} needs numSpeculativeTokens")
    base: dict[str, Any] = {
        "num_speculative_tokens": speculation.num_speculative_tokens,
        "method": name,
    }
    if method in _LOOKUPS:
        window = speculation.ngram or NGramLookup()
        base["prompt_lookup_min"] = window.prompt_lookup_min
        base["prompt_lookup_max"] = window.prompt_lookup_max
    elif method == "Custom":
        base["model"] = speculation.custom_class
    elif speculation.draft is not None and draft_path is not None:
        base["model"] = draft_path
        base["draft_tensor_parallel_size"] = speculation.draft.tensor_parallel_size
    elif method not in ("MTP", "DSpark", "Suffix"):
        raise _invalid(f"method {method} needs a draft model")
    if schedule := schedule_of(request_of(config)):
        base[SCHEDULE_KEY] = schedule
    if twice := sorted(speculation.extra.keys() & base.keys()):
        raise _invalid(f"speculation.extra repeats {', '.join(twice)}")
    return base | speculation.extra


def _sizes(config: WorkerConfig, facts: Facts) -> list[str]:
    command = [
        *("--tensor-parallel-size", str(config.tensor_parallel_size)),
        *("--pipeline-parallel-size", str(config.pipeline_parallel_size)),
    ]
    if config.data_parallel_size > 1:
        command += ["--data-parallel-size", str(config.data_parallel_size)]
    command += [
        *("--max-num-seqs", str(config.max_num_seqs)),
        *("--gpu-memory-utilization", f"{config.gpu_memory_utilization_percent / 100:.2f}"),
    ]
    if "--shutdown-timeout" in facts.flags:
        command += ["--shutdown-timeout", str(min(config.drain_seconds, _ENGINE_DRAIN_SECONDS))]
    return command


def _group(node: Node | None) -> list[str]:
    """The module to start and the pod's place; the same engine on every node but for its rank.

    Source: vLLM 0.32, docs/serving/parallelism_scaling and entrypoints/cli/serve.py.
    """
    if node is None:
        return [ENGINE_MODULE]
    place = [
        *("--distributed-executor-backend", "mp", "--nnodes", str(node.count)),
        *("--node-rank", str(node.rank), "--master-addr", node.meeting_place),
        *("--master-port", str(MASTER_PORT)),
    ]
    return (
        [ENGINE_MODULE, *place]
        if node.rank == 0
        else [FOLLOWER_MODULE, "serve", "--headless", *place]
    )


def _adapters(config: WorkerConfig, paths: Mapping[str, str]) -> list[str]:
    if config.lora is None:
        return []
    modules = [f"{adapter.name}={paths[adapter.name]}" for adapter in config.lora.adapters]
    return [
        *("--enable-lora", "--max-loras", str(config.lora.max_adapters)),
        *("--max-lora-rank", str(config.lora.max_rank), "--lora-modules", *modules),
    ]


def _spoken(speculative: dict[str, Any], facts: Facts) -> list[str]:
    """The configuration as this version wants it said: one JSON value, or a flag for each key."""
    if facts.takes_json:
        return ["--speculative-config", json.dumps(speculative)]
    flags = {
        "model": "--speculative-model",
        "num_speculative_tokens": "--num-speculative-tokens",
        "draft_tensor_parallel_size": "--speculative-draft-tensor-parallel-size",
        "prompt_lookup_max": "--ngram-prompt-lookup-max",
        "prompt_lookup_min": "--ngram-prompt-lookup-min",
    } | {key: known.flag for key, known in facts.keys.items() if known.flag}
    said = {"model": _OLD_LOOKUP_MODEL} | speculative
    del said["method"]
    command = []
    for key, flag in flags.items():
        value = said.get(key)
        if value is True:
            command.append(flag)
        elif value not in (None, False):
            command += [flag, str(value)]
    return command


def _invalid(detail: str) -> WorkerFailure:
    return WorkerFailure(WorkerReason.INVALID_ARGUMENTS, detail, retryable=False)
