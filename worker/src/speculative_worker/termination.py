"""Last words: a `WorkerFailure`, or what a check found, becomes the termination message.

`message` and `report` are pure; `write` is the only thing that touches the file.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from speculative_api.worker import TERMINATION_PATH, PreflightReport, Termination
from speculative_worker.errors import WorkerFailure

__all__ = ["MAX_BYTES", "TERMINATION_PATH", "message", "write"]

MAX_BYTES: Final = 4096
"""Kubernetes keeps this much of a termination message."""
LONGEST_NOTE: Final = 800
"""Characters of one note of a check."""
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
_HIDDEN = "[hidden]"


def message(failure: WorkerFailure, *, secrets: Sequence[str] = ()) -> str:
    """The JSON of a `Termination`, at most `MAX_BYTES` long; secrets are taken out.

    A detail that is too long loses its middle: the summary stands at its
    beginning, the engine's last line at its end.
    """
    detail = _without(failure.detail, secrets)
    for kept in (len(detail), 2400, 1800, 1200, 600, 300, 100):
        text = Termination(
            reason=failure.reason.value,
            retryable=failure.retryable,
            detail=_shortened(detail, kept),
        ).model_dump_json(by_alias=True)
        if len(text.encode()) <= MAX_BYTES:
            return text
    return Termination(
        reason=failure.reason.value, retryable=failure.retryable, detail=""
    ).model_dump_json(by_alias=True)


def report(notes: Sequence[str], *, secrets: Sequence[str] = ()) -> str:
    """The JSON of a `PreflightReport`, at most `MAX_BYTES` long: the last notes go first."""
    kept = [_shortened(_without(note, secrets), LONGEST_NOTE) for note in notes]
    while True:
        left = len(notes) - len(kept)
        said = (*kept, f"{left} more in the log of the check") if left else tuple(kept)
        text = PreflightReport(notes=said).model_dump_json(by_alias=True)
        if len(text.encode()) <= MAX_BYTES:
            return text
        kept.pop()


def _without(text: str, secrets: Sequence[str]) -> str:
    text = _HUB_TOKEN.sub(_HIDDEN, text)
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def write(text: str, path: str) -> None:
    """Writes the message. The file exists in a pod; elsewhere it is made.

    Raises `OSError` when it cannot be written.
    """
    Path(path).write_text(text, encoding="utf-8")


def _shortened(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    head = length // 4
    return f"{text[:head]} ... {text[-(length - head) :]}"
