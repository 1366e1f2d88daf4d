"""Last words: a `WorkerFailure` becomes the container's termination message.

`message` is pure; `write` is the only thing that touches the file.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from speculative_api.worker import TERMINATION_PATH, Termination
from speculative_worker.errors import WorkerFailure

__all__ = ["MAX_BYTES", "TERMINATION_PATH", "message", "write"]

MAX_BYTES: Final = 4096
"""Kubernetes keeps this much of a termination message."""
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
_HIDDEN = "[hidden]"


def message(failure: WorkerFailure, *, secrets: Sequence[str] = ()) -> str:
    """The JSON of a `Termination`, at most `MAX_BYTES` long; secrets are taken out.

    A detail that is too long loses its middle: the summary stands at its
    beginning, the engine's last line at its end.
    """
    detail = _HUB_TOKEN.sub(_HIDDEN, failure.detail)
    for secret in secrets:
        detail = detail.replace(secret, _HIDDEN)
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
