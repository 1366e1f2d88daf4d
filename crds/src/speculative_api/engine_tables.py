"""Data for `engine_arguments`: what vLLM 0.32.0 takes, and which field here says it.

Read from vllm/config/speculative.py, vllm/engine/arg_utils.py,
vllm/entrypoints/launchers/cli_args.py and vllm/utils/argparse_utils.py at 0.32.0.
"""

from collections.abc import Mapping
from typing import Final

SPECULATIVE_KEYS: Final[Mapping[str, str]] = {
    "enforce_eager": "boolean",
    "quantization": "text",
    "moe_backend": "text",
    "attention_backend": "text",
    "kv_cache_dtype": "text",
    "max_model_len": "integer",
    "code_revision": "text",
    "index_share_for_mtp_iteration": "boolean",
    "disable_padded_drafter_batch": "boolean",
    "disable_eagle_block_drop": "boolean",
    "use_local_argmax_reduction": "boolean",
    "use_heterogeneous_vocab": "boolean",
    "parallel_drafting": "boolean",
    "num_speculative_tokens_per_batch_size": "list",
    "suffix_decoding_max_tree_depth": "integer",
    "suffix_decoding_max_cached_requests": "integer",
    "suffix_decoding_max_spec_factor": "number",
    "suffix_decoding_min_token_prob": "number",
    "draft_load_config": "map",
    "rejection_sample_method": "text",
    "enable_adaptive_verification": "boolean",
    "draft_sample_method": "text",
    "dspark_draft_topk": "integer",
}
"""Keys of SpeculativeConfig that `speculation.extra` may hold, each with its kind of value."""

KEY_FIELDS: Final[Mapping[str, str]] = {
    "method": "speculation.method",
    "model": "speculation.draft.model",
    "revision": "speculation.draft.model (hf://owner/name@revision)",
    "num_speculative_tokens": "speculation.numSpeculativeTokens",
    "draft_tensor_parallel_size": "speculation.draft.tensorParallelSize",
    "tensor_parallel_size": "speculation.draft.tensorParallelSize",
    "prompt_lookup_min": "speculation.ngram.promptLookupMin",
    "prompt_lookup_max": "speculation.ngram.promptLookupMax",
}
"""Keys that a field of the resource already says."""

KEY_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "quantization": ("DraftModel",),
    "moe_backend": ("DraftModel",),
    "attention_backend": ("DraftModel",),
    "kv_cache_dtype": ("DraftModel",),
    "max_model_len": ("DraftModel",),
    "code_revision": ("DraftModel",),
    "draft_load_config": ("DraftModel",),
    "use_heterogeneous_vocab": ("DraftModel",),
    "use_local_argmax_reduction": ("DraftModel",),
    "parallel_drafting": ("DraftModel",),
    "draft_sample_method": ("DraftModel",),
    "index_share_for_mtp_iteration": (),
    "suffix_decoding_max_tree_depth": (),
    "suffix_decoding_max_cached_requests": (),
    "suffix_decoding_max_spec_factor": (),
    "suffix_decoding_min_token_prob": (),
    "dspark_draft_topk": (),
    "enable_adaptive_verification": (),
}
"""Keys that say something for these methods only; an empty tuple: for none that is known here."""

LOSSLESS_REJECTION: Final = ("standard", "block")
"""Values of rejection_sample_method that leave the target's distribution unchanged."""

LOSSY_KEYS: Final = ("synthetic_acceptance_rates", "synthetic_acceptance_length")

OLD_KEYS: Final[Mapping[str, str]] = {
    "disable_by_batch_size": "use num_speculative_tokens_per_batch_size, a schedule by batch size",
    "disable_logprobs": "remove it: log-probabilities are always those of the target",
    "disable_log_stats": "remove it: the operator judges by these counters",
    "disable_mqa_scorer": "remove it: this engine has one scorer",
    "acceptance_method": "use rejection_sample_method: standard or block",
    "posterior_threshold": "remove it: typical acceptance changed the output and is gone",
    "posterior_alpha": "remove it: typical acceptance changed the output and is gone",
    "typical_acceptance_sampler_posterior_threshold": "remove it: typical acceptance is gone",
    "typical_acceptance_sampler_posterior_alpha": "remove it: typical acceptance is gone",
    "ngram_prompt_lookup_max": "use speculation.ngram.promptLookupMax",
    "ngram_prompt_lookup_min": "use speculation.ngram.promptLookupMin",
    "speculative_model": "use speculation.draft.model",
    "speculative_disable_by_batch_size": "use num_speculative_tokens_per_batch_size",
    "draft_model": "use speculation.draft.model",
}
"""Keys of earlier engine generations, with what to do instead."""

FLAG_FIELDS: Final[Mapping[str, str]] = {
    "--model": "target.model",
    "--revision": "target.model (hf://owner/name@revision)",
    "--served-model-name": "target.servedModelName",
    "--tensor-parallel-size": "target.tensorParallelSize",
    "--pipeline-parallel-size": "target.pipelineParallelSize",
    "--dtype": "target.dtype",
    "--quantization": "target.quantization",
    "--kv-cache-dtype": "target.kvCacheDtype",
    "--max-model-len": "target.maxModelLen",
    "--trust-remote-code": "target.trustRemoteCode",
    "--no-trust-remote-code": "target.trustRemoteCode",
    "--max-num-seqs": "engine.maxNumSeqs",
    "--gpu-memory-utilization": "engine.gpuMemoryUtilizationPercent",
    "--device-memory-utilization": "engine.gpuMemoryUtilizationPercent",
    "--shutdown-timeout": "engine.drainSeconds",
    "--download-dir": "modelCache.persistentVolumeClaim",
    "--speculative-config": "speculation",
    "--spec-method": "speculation.method",
    "--spec-model": "speculation.draft.model",
    "--spec-tokens": "speculation.numSpeculativeTokens",
}
"""Flags that the worker renders from a field."""

SHORT_FLAGS: Final[Mapping[str, str]] = {
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-dp": "--data-parallel-size",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpe": "--data-parallel-external-lb",
    "-n": "--nnodes",
    "-r": "--node-rank",
}
"""Short spellings of refused flags."""

REFUSED_FLAGS: Final[Mapping[str, str]] = {
    "--host": "the worker sets it: probes and gateway reach the engine there",
    "--port": "the worker sets it: probes and gateway reach the engine there",
    "--uds": "the gateway reaches the engine over TCP only",
    "--grpc": "the gateway speaks HTTP to the engine",
    "--headless": "the gateway speaks HTTP to the engine",
    "--config": "a file could set any flag unseen; write its flags here one by one",
    "--disable-log-stats": "the operator judges by the engine's counters",
    "--api-key": "a secret on a command line can be read by anyone on the node; the gateway "
    "authenticates clients",
    "--hf-token": "a secret on a command line can be read by anyone on the node; set HF_TOKEN in "
    "pod.env from a Secret",
    "--root-path": "probes and gateway expect the API at /",
    "--ssl-keyfile": "probes and gateway reach the engine without TLS inside the cluster",
    "--ssl-certfile": "probes and gateway reach the engine without TLS inside the cluster",
    "--nnodes": "one pod is one engine here",
    "--node-rank": "one pod is one engine here",
    "--master-addr": "one pod is one engine here",
    "--master-port": "one pod is one engine here",
    "--data-parallel-size": "GPUs per pod are tensorParallelSize x pipelineParallelSize; raise "
    "spec.replicas instead",
}
"""Flags that no field says and that may not be set, each with the reason."""

REFUSED_PREFIXES: Final[Mapping[str, str]] = {
    "--data-parallel-": REFUSED_FLAGS["--data-parallel-size"],
}

OLD_FLAGS: Final[Mapping[str, str]] = {
    "--speculative-model": "speculation.draft.model",
    "--num-speculative-tokens": "speculation.numSpeculativeTokens",
    "--speculative-draft-tensor-parallel-size": "speculation.draft.tensorParallelSize",
    "--speculative-max-model-len": "speculation.extra.max_model_len",
    "--speculative-model-quantization": "speculation.extra.quantization",
    "--speculative-disable-by-batch-size": "speculation.extra."
    "num_speculative_tokens_per_batch_size",
    "--speculative-disable-mqa-scorer": "nothing: this engine has one scorer",
    "--ngram-prompt-lookup-max": "speculation.ngram.promptLookupMax",
    "--ngram-prompt-lookup-min": "speculation.ngram.promptLookupMin",
    "--spec-decoding-acceptance-method": "speculation.extra.rejection_sample_method",
    "--typical-acceptance-sampler-posterior-threshold": "nothing: typical acceptance is gone",
    "--typical-acceptance-sampler-posterior-alpha": "nothing: typical acceptance is gone",
    "--disable-logprobs-during-spec-decoding": "nothing: log-probabilities are the target's",
    "--use-v2-block-manager": "nothing: this engine has one block manager",
}
"""Flags of earlier engine generations, with the field that replaced them."""
