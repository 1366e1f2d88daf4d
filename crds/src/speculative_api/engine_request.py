"""PURE: what is asked of the engine, whoever asks: a spec or a worker's configuration.

The checks of `engine_arguments` and `engine_combinations` take it. The
operator and `lint` make it of a spec (`request_of`), the worker of what it was
told, so that both judge by the same rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_api.v1alpha1 import Adaptive, SpeculativeDeploymentSpec
from speculative_api.worker import allows_long_context


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """All that decides which arguments the engine gets; the defaults are those of the resource."""

    version: str = "0.32.0"
    allow_unknown_version: bool = False
    image: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    """Field to source."""
    method: str = "None"
    num_speculative_tokens: int | None = None
    has_draft: bool = False
    draft_tensor_parallel_size: int = 1
    ngram_prompt_lookup_min: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    allow_lossy: bool = False
    extra_args: tuple[str, ...] = ()
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    nodes: int = 1
    lora: bool = False
    numa_bind: bool = False
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    adaptive_mode: str = "Off"
    adaptive_schedule: tuple[tuple[int, int], ...] = ()
    """Last batch size of each range and its draft length."""
    max_model_len: int | None = None
    long_context: bool = False
    """Whether the engine is told that lengths beyond the model's own limit are meant."""
    max_num_seqs: int = 64
    gpu_memory_utilization_percent: int = 90


def request_of(spec: SpeculativeDeploymentSpec) -> EngineRequest:
    """What a spec asks of the engine."""
    speculation, target, engine = spec.speculation, spec.target, spec.engine
    draft, ngram = speculation.draft, speculation.ngram
    adaptive = speculation.adaptive or Adaptive()
    return EngineRequest(
        version=engine.version,
        allow_unknown_version=engine.allow_unknown_version,
        image=engine.image,
        models=_models(spec),
        method=speculation.method.value,
        num_speculative_tokens=speculation.num_speculative_tokens,
        has_draft=draft is not None,
        draft_tensor_parallel_size=draft.tensor_parallel_size if draft else 1,
        ngram_prompt_lookup_min=ngram.prompt_lookup_min if ngram else None,
        extra=speculation.extra or {},
        allow_lossy=speculation.allow_lossy is not None,
        extra_args=tuple(engine.extra_args),
        tensor_parallel_size=target.tensor_parallel_size,
        pipeline_parallel_size=target.pipeline_parallel_size,
        data_parallel_size=target.data_parallel_size,
        nodes=target.nodes_per_replica,
        lora=target.lora is not None,
        numa_bind=spec.pod.numa_bind,
        dtype=target.dtype.value if target.dtype else None,
        quantization=target.quantization,
        kv_cache_dtype=target.kv_cache_dtype,
        adaptive_mode=adaptive.mode.value,
        adaptive_schedule=tuple(
            (each.up_to_batch_size, each.num_speculative_tokens) for each in adaptive.schedule or ()
        ),
        max_model_len=target.max_model_len,
        long_context=allows_long_context(
            {str(entry.get("name")): str(entry.get("value")) for entry in spec.pod.env}
        ),
        max_num_seqs=engine.max_num_seqs,
        gpu_memory_utilization_percent=engine.gpu_memory_utilization_percent,
    )


def gives_flag(arguments: Iterable[str], flag: str) -> bool:
    """Whether a flag is among the arguments as the engine's parser reads them.

    It takes underscores for hyphens, and the beginning of a flag for the flag.
    """
    given = (argument.partition("=")[0].replace("_", "-") for argument in arguments)
    return any(len(each) > 2 and flag.startswith(each) for each in given if each.startswith("--"))


def _models(spec: SpeculativeDeploymentSpec) -> dict[str, str]:
    """None with a simulated engine, which loads nothing."""
    draft = spec.speculation.draft
    if spec.engine.simulation is not None:
        return {}
    of_draft = {"speculation.draft.model": draft.model} if draft else {}
    return {"target.model": spec.target.model} | of_draft
