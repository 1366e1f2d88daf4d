"""PURE: checks what users hand through to the engine, before any GPU is taken.

Comes in: a spec, or its parts. Goes out: sentences that name the field, the
value and the remedy. The operator calls `findings` at acceptance (any finding
refuses the spec) and shows `warnings` beside it; the worker calls the same
again before it starts the engine; `lint` calls both. What a version takes is
read from the table (`engine_tables`).
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from speculative_api import engine_combinations as combinations
from speculative_api import engine_tables as tables
from speculative_api.adaptive import adaptive_findings
from speculative_api.engine_request import EngineRequest, gives_flag, request_of
from speculative_api.engine_tables import Facts
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec

DEFAULT_VERSION: Final = EngineRequest().version
_LOSSY_REMEDY: Final = (
    "remove it, or say so in words with speculation.allowLossy: OutputMayDifferFromTarget"
)
_OTHER_HYPHENS: Final = tuple("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d")
"""What word processors and chats make of hyphens."""
_OTHER_ENGINES: Final = ("sglang", "tensorrt", "trtllm", "tgi", "llama.cpp", "lmdeploy", "mlc")


def findings(spec: SpeculativeDeploymentSpec) -> list[str]:
    """Everything in `spec` that the engine would refuse or that a field already says."""
    return [*request_findings(request_of(spec)), *_variable_findings(spec)]


def warnings(spec: SpeculativeDeploymentSpec) -> list[str]:
    """What the engine accepts although it often disappoints; nothing is changed."""
    return request_warnings(request_of(spec))


def request_findings(request: EngineRequest) -> list[str]:
    """As `findings`; with an unknown version nothing else is said, for nothing else is known."""
    if problem := _version_problem(request):
        return [problem]
    return [
        *_method_findings(request),
        *extra_findings(
            request.extra,
            method=request.method,
            num_speculative_tokens=request.num_speculative_tokens,
            max_model_len=request.max_model_len,
            max_num_seqs=request.max_num_seqs,
            version=request.version,
            allow_lossy=request.allow_lossy,
        ),
        *argument_findings(request.extra_args, version=request.version),
        *draft_parallel_findings(
            request.draft_tensor_parallel_size, target_parallel_size=request.tensor_parallel_size
        ),
        *combinations.combination_findings(request, "refuse"),
        *adaptive_findings(request),
    ]


def request_warnings(request: EngineRequest) -> list[str]:
    """As `warnings`."""
    return [
        *_unknown_version_warnings(request),
        *combinations.combination_findings(request, "warn"),
        *combinations.rules_of_thumb(request),
        *_overriding_warnings(request),
    ]


def draft_parallel_findings(draft_parallel_size: int, *, target_parallel_size: int) -> list[str]:
    """A draft is split like its target or not at all (vLLM refuses the rest, every version)."""
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
    version: str = DEFAULT_VERSION,
    allow_lossy: bool = False,
) -> list[str]:
    """Checks `speculation.extra` against the keys and values that the engine knows."""
    facts, found = tables.facts_of(version), []
    for key, value in extra.items():
        problem = _key_problem(key, method, facts, allow_lossy=allow_lossy)
        problem = problem or _value_problem(key, value, facts, allow_lossy=allow_lossy)
        if problem:
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
        found += combinations.schedule_findings(
            schedule, largest_k=num_speculative_tokens or 0, max_num_seqs=max_num_seqs
        )
    return found


def argument_findings(arguments: Sequence[str], *, version: str = DEFAULT_VERSION) -> list[str]:
    """Checks `engine.extraArgs`: flags that a field says, that are old, or that may not be set."""
    facts, found = tables.facts_of(version), []
    if arguments and not arguments[0].startswith("-"):
        found.append(
            f"engine.extraArgs[0] {arguments[0]!r} is a value without a flag: start with the flag"
        )
    for index, argument in enumerate(arguments):
        if problem := _argument_problem(argument, facts):
            found.append(f"engine.extraArgs[{index}] {_shown(argument)}: {problem}")
    return found


def _version_problem(request: EngineRequest) -> str | None:
    version = request.version
    if any(version.lower().startswith(name) for name in _OTHER_ENGINES):
        return (
            f"engine.version {version!r}: the only engine here is vLLM; use an image with vLLM "
            "and give its version, such as 0.32.0"
        )
    if tables.is_known(version) or request.allow_unknown_version:
        return None
    series = [".".join(known.split(".")[:2]) for known in tables.known_versions()]
    return (
        f"engine.version {version!r} is not in the table, which knows vLLM "
        f"{series[0]}, {series[1]} to {series[-1]}: its flags and metric names cannot be chosen; "
        "use one of these, or set engine.allowUnknownVersion: true to have it treated like the "
        "nearest older one"
    )


def _unknown_version_warnings(request: EngineRequest) -> Iterable[str]:
    if tables.is_known(request.version):
        return
    major, minor = tables.facts_of(request.version).series
    yield (
        f"engine.version {request.version!r} is not in the table; it is given the flags of "
        f"{major}.{minor}, and an engine that refuses them fails the revision"
    )


def _method_findings(request: EngineRequest) -> Iterable[str]:
    method, facts = request.method, tables.facts_of(request.version)
    if method != "None" and method not in facts.methods:
        since = " and ".join(tables.since_of_method(method))
        yield (
            f"speculation.method {method}: engine {facts.version} does not have it; it is in "
            f"{since}. Choose another method or engine.version"
        )
    elif method == "MTP" and request.has_draft and not facts.takes_json:
        yield f"speculation.draft: engine {facts.version} takes no draft for MTP; remove it"
    if request.numa_bind and "--numa-bind" not in facts.flags:
        yield f"pod.numaBind: engine {facts.version} can't bind its processes, 0.20 can; remove it"
    if request.data_parallel_size > 1 and "--data-parallel-size" not in facts.flags:
        yield (
            f"target.dataParallelSize {request.data_parallel_size}: engine {facts.version} has no "
            "data parallelism; raise spec.replicas instead"
        )
    if request.nodes > 1 and "--nnodes" not in facts.flags:
        yield (
            f"target.nodesPerReplica {request.nodes}: engine {facts.version} spans nodes over Ray "
            f"alone, which is not set up here; {tables.since_of_flag('--nnodes')} or newer needs "
            "none. Raise engine.version, or use one node"
        )


def _key_problem(key: str, method: str, facts: Facts, *, allow_lossy: bool) -> str | None:
    if field := tables.key_field(key):
        return f"{field} says this already; remove it here"
    if remedy := tables.misnamed_key(key):
        return remedy
    if key in facts.lossy_keys:
        return None if allow_lossy else f"changes the output; {_LOSSY_REMEDY}"
    known = facts.keys.get(key)
    if known is None:
        return _unknown_key(key, facts)
    if known.methods is not None and method not in known.methods:
        return f"is for method {' or '.join(known.methods)} only, not {method}; remove it"
    if not facts.takes_json and known.flag is None:
        return f"engine {facts.version} has no flag for it; remove it"
    return None


def _unknown_key(key: str, facts: Facts) -> str:
    """A key of other versions, a misspelt one, or nobody's."""
    rows = tables.versions_of_key(key)
    for row in rows:
        since = tables.series_of(row["since"])
        if since is not None and since > facts.series:
            return f"engine {facts.version} does not know it yet, {row['since']} does; remove it"
    if rows:
        remedy = rows[0].get("instead", "it changed the output; remove it")
        return f"belongs to earlier engines; {remedy}"
    return f"not a key of engine {facts.version}{_suggestion(key, facts)}"


def _suggestion(key: str, facts: Facts) -> str:
    known = [*facts.keys, *tables.key_fields()]
    spelled = key.strip("-").replace("-", "_").lower()
    near = [spelled] if spelled in known else difflib.get_close_matches(spelled, known, n=1)
    if not near:
        return "; remove it or check its spelling"
    field = tables.key_field(near[0])
    return f"; did you mean {near[0]}" + (f" (written as {field})?" if field else "?")


def _value_problem(key: str, value: Any, facts: Facts, *, allow_lossy: bool) -> str | None:
    known = facts.keys.get(key)
    kind = known.kind if known is not None else facts.lossy_keys[key]
    if not _is_kind(value, kind):
        article = "an" if kind == "integer" else "a"
        return f"must be {article} {kind}, not {value!r}"
    allowed = facts.choices.get(key)
    if allowed is None or value in allowed:
        return None
    if allow_lossy and value in facts.lossy_choices.get(key, ()):
        return None
    if not allow_lossy and value in tables.lossy_anywhere(key):
        return f"{value!r} changes the output; use {' or '.join(allowed)}, or {_LOSSY_REMEDY}"
    return f"{value!r} is not known to engine {facts.version}; use {' or '.join(allowed)}"


def _is_kind(value: Any, kind: str) -> bool:
    match kind:
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return combinations.is_integer(value)
        case "number":
            return combinations.is_integer(value) or isinstance(value, float)
        case "text":
            return isinstance(value, str)
        case "list":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _heterogeneous_vocabulary_findings(extra: Mapping[str, Any]) -> list[str]:
    sampling = extra.get("draft_sample_method", "greedy")
    if extra.get("use_heterogeneous_vocab") is True and sampling != "greedy":
        return [
            f"speculation.extra.draft_sample_method: {sampling!r} does not go with "
            "use_heterogeneous_vocab; use greedy or remove it"
        ]
    return []


def _variable_findings(spec: SpeculativeDeploymentSpec) -> Iterable[str]:
    """Variables that are another spelling of a flag which may not be set."""
    refused = tables.refused_variables()
    for index, variable in enumerate(spec.pod.env):
        if reason := refused.get(str(variable.get("name"))):
            yield f"pod.env[{index}] {variable.get('name')}: not allowed: {reason}"


def _overriding_warnings(request: EngineRequest) -> Iterable[str]:
    for flag, because in tables.overriding_flags().items():
        if gives_flag(request.extra_args, flag):
            yield f"engine.extraArgs {flag}: {because}"


def _argument_problem(argument: str, facts: Facts) -> str | None:
    if argument == "--":
        return "ends the engine's flags: what follows would not be read as one; remove it"
    if argument[:1] in _OTHER_HYPHENS:
        return f"begins with {argument[0]!r}, which is no hyphen: write --"
    if not argument.startswith("-") or _is_number(argument):
        return None
    flag, _, _ = argument.partition("=")
    if any(mark.isspace() for mark in flag):
        return "holds a space: write the flag and its value as two list items"
    return _spelling_problem(flag) or _flag_problem(_normalised(flag, facts), facts)


def _spelling_problem(flag: str) -> str | None:
    """What the engine's parser can't read as any flag of its own."""
    name = flag.lstrip("-").partition(".")[0]
    if flag.startswith("---"):
        return "begins with more than two hyphens"
    if not name.isascii():
        strange = next(each for each in name if not each.isascii())
        return f"holds {strange!r} (U+{ord(strange):04X}): write it with plain letters and hyphens"
    if flag.startswith("--") and name != name.lower():
        return f"flags of the engine are written small: did you mean --{name.lower()}?"
    return None


def _normalised(flag: str, facts: Facts) -> str:
    """The flag as the engine's own parser reads it: hyphens, without `.key` of a JSON flag."""
    if flag.startswith("--"):
        return "--" + flag[2:].partition(".")[0].rstrip("+").replace("_", "-")
    return _of_short(flag.partition(".")[0], facts)


def _of_short(head: str, facts: Facts) -> str:
    """The long form of a short flag, also with its value attached or cut short (`-qfp8`, `-t`)."""
    shorts = facts.short_flags
    if head in shorts:
        return shorts[head]
    if head[:2] in shorts:
        return shorts[head[:2]]
    if named := re.match(r"(-[a-z]+)\d+$", head):
        head = named[1]
    meant = [short for short in sorted(shorts, key=len) if short.startswith(head)]
    return shorts[meant[0]] if meant and len(head) > 1 else head


def _flag_problem(flag: str, facts: Facts) -> str | None:
    if field := facts.flags.get(flag):
        return f"{field} says this already; remove it here and set the field"
    if reason := tables.refused_flags().get(flag):
        return f"not allowed: {reason}"
    if other := tables.other_flags(facts.series).get(flag):
        field, until = other
        if until and (tables.series_of(until) or facts.series) <= facts.series:
            return f"belongs to earlier engines; it was replaced by {field}"
        return f"engine {facts.version} does not know it; {field} says it, where there is need"
    negated = "--" + flag.removeprefix("--no-")
    if negated != "--" + flag and (problem := _flag_problem(negated, facts)):
        return problem
    if flag.startswith("-") and not flag.startswith("--") and "-" + flag in facts.flags:
        return f"is -{flag} with one hyphen; {_flag_problem('-' + flag, facts)}"
    if flag.startswith("--") and len(flag) > 2 and (meant := _abbreviated(flag, facts)):
        return f"the engine reads it as short for {meant}; {_flag_problem(meant, facts)}"
    return None


def _abbreviated(flag: str, facts: Facts) -> str | None:
    reserved: Iterable[str] = (*facts.flags, *tables.refused_flags())
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
