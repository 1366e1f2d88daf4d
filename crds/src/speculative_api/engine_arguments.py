"""PURE: checks what users hand through to the engine, before any GPU is taken.

Comes in: a spec, or its parts. Goes out: sentences that name the field, the
value and the remedy. The operator calls `findings` at acceptance (any finding
refuses the spec) and `warnings` for its events; the worker calls the parts
again before it starts the engine; `lint` calls both.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from speculative_api import engine_tables as tables
from speculative_api.v1alpha1 import Method, SpeculativeDeploymentSpec

_HIGH_UTILIZATION_PERCENT: Final = 95
_LONG_NGRAM_DRAFT_TOKENS: Final = 32


def findings(spec: SpeculativeDeploymentSpec) -> list[str]:
    """Everything in `spec` that the engine would refuse or that a field already says."""
    draft = spec.speculation.draft
    return [
        *extra_findings(
            spec.speculation.extra or {},
            method=spec.speculation.method.value,
            num_speculative_tokens=spec.speculation.num_speculative_tokens,
            max_model_len=spec.target.max_model_len,
            max_num_seqs=spec.engine.max_num_seqs,
        ),
        *argument_findings(spec.engine.extra_args),
        *draft_parallel_findings(
            draft.tensor_parallel_size if draft else 1,
            target_parallel_size=spec.target.tensor_parallel_size,
        ),
    ]


def warnings(spec: SpeculativeDeploymentSpec) -> list[str]:
    """What the engine accepts although it often disappoints; nothing is changed."""
    found = []
    percent = spec.engine.gpu_memory_utilization_percent
    if spec.speculation.method is Method.DRAFT_MODEL and percent >= _HIGH_UTILIZATION_PERCENT:
        found.append(
            f"engine.gpuMemoryUtilizationPercent {percent} with a separate draft model leaves "
            f"little memory: the draft's weights and cache share the GPU; below "
            f"{_HIGH_UTILIZATION_PERCENT} is safer"
        )
    tokens = spec.speculation.num_speculative_tokens or 0
    if spec.speculation.method is Method.NGRAM and tokens > _LONG_NGRAM_DRAFT_TOKENS:
        found.append(
            f"speculation.numSpeculativeTokens {tokens} is long for NGram: few of so many draft "
            "tokens are accepted, and every one of them is verified"
        )
    return found


def draft_parallel_findings(draft_parallel_size: int, *, target_parallel_size: int) -> list[str]:
    """A draft is split like its target or not at all (vLLM 0.32.0 refuses the rest)."""
    if draft_parallel_size in (1, target_parallel_size):
        return []
    return [
        f"speculation.draft.tensorParallelSize {draft_parallel_size} must be 1 or equal to "
        f"target.tensorParallelSize {target_parallel_size}"
    ]


def extra_findings(
    extra: Mapping[str, Any],
    *,
    method: str,
    num_speculative_tokens: int | None,
    max_model_len: int | None,
    max_num_seqs: int,
) -> list[str]:
    """Checks `speculation.extra` against the keys and values that the engine knows."""
    found = []
    for key, value in extra.items():
        if problem := _key_problem(key, method) or _value_problem(key, value):
            found.append(f"speculation.extra.{key}: {problem}")
    found += _heterogeneous_vocabulary_findings(extra)
    length = extra.get("max_model_len")
    if isinstance(length, int) and max_model_len is not None and length > max_model_len:
        found.append(
            f"speculation.extra.max_model_len: {length} is above target.maxModelLen "
            f"{max_model_len}; lower it or remove it"
        )
    schedule = extra.get("num_speculative_tokens_per_batch_size")
    if isinstance(schedule, list):
        found += _schedule_findings(
            schedule, largest_k=num_speculative_tokens or 0, max_num_seqs=max_num_seqs
        )
    return found


def argument_findings(arguments: Sequence[str]) -> list[str]:
    """Checks `engine.extraArgs`: flags that a field says, that are old, or that may not be set."""
    found = []
    if arguments and not arguments[0].startswith("-"):
        found.append(
            f"engine.extraArgs[0] {arguments[0]!r} is a value without a flag: start with the flag"
        )
    for index, argument in enumerate(arguments):
        if problem := _argument_problem(argument):
            found.append(f"engine.extraArgs[{index}] {_shown(argument)}: {problem}")
    return found


def _key_problem(key: str, method: str) -> str | None:
    if field := tables.KEY_FIELDS.get(key):
        return f"{field} says this already; remove it here"
    if remedy := tables.OLD_KEYS.get(key):
        return f"belongs to earlier engines; {remedy}"
    if key in tables.LOSSY_KEYS:
        return "makes up acceptance and so changes the output; remove it"
    if key not in tables.SPECULATIVE_KEYS:
        return f"not a key of engine 0.32.0{_suggestion(key)}"
    methods = tables.KEY_METHODS.get(key)
    if methods is not None and method not in methods:
        belongs = (
            f"is for method {' or '.join(methods)} only" if methods else "is for other methods"
        )
        return f"{belongs}, not {method}; remove it"
    return None


def _suggestion(key: str) -> str:
    known = [*tables.SPECULATIVE_KEYS, *tables.KEY_FIELDS]
    spelled = key.strip("-").replace("-", "_").lower()
    near = [spelled] if spelled in known else difflib.get_close_matches(spelled, known, n=1)
    if not near:
        return "; remove it or check its spelling"
    field = tables.KEY_FIELDS.get(near[0])
    return f"; did you mean {near[0]}" + (f" (written as {field})?" if field else "?")


def _value_problem(key: str, value: Any) -> str | None:
    kind = tables.SPECULATIVE_KEYS[key]
    if not _is_kind(value, kind):
        article = "an" if kind == "integer" else "a"
        return f"must be {article} {kind}, not {value!r}"
    if key == "rejection_sample_method" and value not in tables.LOSSLESS_REJECTION:
        allowed = " or ".join(tables.LOSSLESS_REJECTION)
        return f"{value!r} changes the output; use {allowed}, or remove it"
    if key == "draft_sample_method" and value not in ("greedy", "probabilistic"):
        return f"{value!r} is not known; use greedy or probabilistic"
    return None


def _is_kind(value: Any, kind: str) -> bool:
    match kind:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_integer(value)
        case "number":
            return _is_integer(value) or isinstance(value, float)
        case "text":
            return isinstance(value, str)
        case "list":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _heterogeneous_vocabulary_findings(extra: Mapping[str, Any]) -> list[str]:
    sampling = extra.get("draft_sample_method", "greedy")
    if extra.get("use_heterogeneous_vocab") is True and sampling != "greedy":
        return [
            f"speculation.extra.draft_sample_method: {sampling!r} does not go with "
            "use_heterogeneous_vocab; use greedy or remove it"
        ]
    return []


def _schedule_findings(schedule: list[Any], *, largest_k: int, max_num_seqs: int) -> list[str]:
    name = "speculation.extra.num_speculative_tokens_per_batch_size"
    expected_start = 1
    for index, entry in enumerate(schedule):
        if not (
            isinstance(entry, list) and len(entry) == 3 and all(_is_integer(part) for part in entry)
        ):
            return [f"{name}[{index}]: must be [first batch size, last batch size, tokens]"]
        start, end, tokens = entry
        if start != expected_start or end < start:
            return [
                f"{name}[{index}]: {entry} must start at batch size {expected_start}: ranges are "
                "ordered and leave no gap"
            ]
        if not 0 <= tokens <= largest_k:
            return [
                f"{name}[{index}]: {tokens} tokens must lie between 0 and "
                f"speculation.numSpeculativeTokens {largest_k}"
            ]
        expected_start = end + 1
    if expected_start <= max_num_seqs:
        return [
            f"{name}: ends at batch size {expected_start - 1}, below engine.maxNumSeqs "
            f"{max_num_seqs}; add a range"
        ]
    return []


def _argument_problem(argument: str) -> str | None:
    if not argument.startswith("-") or _is_number(argument):
        return None
    flag, _, _ = argument.partition("=")
    if any(mark.isspace() for mark in flag):
        return "holds a space: write the flag and its value as two list items"
    return _flag_problem(_normalised(flag))


def _normalised(flag: str) -> str:
    """The flag as the engine's own parser reads it: hyphens, without `.key` of a JSON flag."""
    if flag.startswith("--"):
        return "--" + flag[2:].partition(".")[0].rstrip("+").replace("_", "-")
    head = flag.partition(".")[0]
    for short in sorted(tables.SHORT_FLAGS, key=len, reverse=True):
        if head == short or (head.startswith(short) and head[len(short) :].isdigit()):
            return tables.SHORT_FLAGS[short]
    return head


def _flag_problem(flag: str) -> str | None:
    if field := tables.OLD_FLAGS.get(flag):
        return f"belongs to earlier engines; it was replaced by {field}"
    if field := tables.FLAG_FIELDS.get(flag):
        return f"{field} says this already; remove it here and set the field"
    if reason := tables.REFUSED_FLAGS.get(flag):
        return f"not allowed: {reason}"
    for prefix, reason in tables.REFUSED_PREFIXES.items():
        if flag.startswith(prefix):
            return f"not allowed: {reason}"
    if flag.startswith("--") and len(flag) > 2 and (meant := _abbreviated(flag)):
        return f"the engine reads it as short for {meant}; {_flag_problem(meant)}"
    return None


def _abbreviated(flag: str) -> str | None:
    reserved: Iterable[str] = (*tables.FLAG_FIELDS, *tables.REFUSED_FLAGS)
    return next((name for name in reserved if name.startswith(flag)), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(argument: str) -> str:
    """The flag without its value: it may be long, or a secret."""
    return repr(argument.partition("=")[0])
