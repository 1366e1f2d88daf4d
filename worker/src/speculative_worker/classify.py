"""PURE: how an engine ended becomes a reason that people and the operator can act on.

Comes in: the tail of its output, its exit code, whether it had served. Goes
out: a `WorkerFailure`. What no rule of `crash_rules` knows stays
EngineCrashed and retryable.
"""

import re
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_worker.crash_rules import ADVICE_HOST_MEMORY, COMMUNICATION, RULES
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
_ONLY_TOLD: Final = re.compile(r"^(\([^)\n]*\) )?(DEBUG|INFO|WARNING):?\s.*\n?", re.MULTILINE)
"""Lines below an error: an engine that warned of something did not end of it."""


def engine_failure(
    tail: str, *, exit_code: int, served: bool, out_of_memory_kill: bool
) -> WorkerFailure:
    """Why the engine ended.

    `exit_code` is negative for a signal, as in `subprocess`;
    `out_of_memory_kill` says that the kernel killed a process of this
    container. Where that was a child of the engine, the engine itself ends
    with 1 and tells only the consequence.
    """
    killed = _failure(WorkerReason.HOST_MEMORY, ADVICE_HOST_MEMORY, tail, retryable=served)
    if out_of_memory_kill and exit_code in (-9, 137):
        return killed
    errors = _ONLY_TOLD.sub("", tail)
    # Near the end first: earlier output may look like a reason.
    for part in (errors[-_NEAR_END_CHARACTERS:], errors):
        for rule in RULES:
            if served and rule.from_requests:
                continue
            if found := rule.pattern.search(part):
                if out_of_memory_kill and rule.name == COMMUNICATION:
                    return killed
                retryable = rule.retryable_while_serving if served else rule.retryable
                summary = f"{rule.advice}. The engine said: {_line_of(part, found.start())}"
                return _failure(rule.reason, summary, tail, retryable=retryable)
    if out_of_memory_kill:
        return killed
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
    if error := _last_error(errors):
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
