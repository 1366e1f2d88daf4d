"""PURE: the findings of `speculative_api.preflight` as a worker takes them.

Comes in: what `models` read from both folders. Raises `WorkerFailure` for what
can never work, returns notes for what deserves a line in the log.
"""

import dataclasses
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_api.model_facts import ModelFacts
from speculative_api.preflight import preflight as findings_of
from speculative_api.worker import WorkerConfig
from speculative_worker.arguments import request_of
from speculative_worker.errors import WorkerFailure

_NEVER_FORCED: Final = (WorkerReason.MODEL_NOT_FOUND, WorkerReason.MODEL_DAMAGED)
"""Whatever the user says, no engine can load what is not there."""


def preflight(
    config: WorkerConfig,
    *,
    target: ModelFacts,
    draft: ModelFacts | None,
    gpu_bytes: int | None = None,
    long_context: bool = False,
) -> list[str]:
    """Notes for the log. Raises `WorkerFailure` with everything that refuses, worst first."""
    request = dataclasses.replace(request_of(config), long_context=long_context)
    found = findings_of(request, target, draft, gpu_bytes=gpu_bytes)
    forced = config.preflight == "Warn"
    refused = [
        finding
        for finding in found
        if finding.severity == "refuse" and not (forced and finding.reason not in _NEVER_FORCED)
    ]
    if refused:
        detail = "; ".join(finding.message for finding in refused)
        raise WorkerFailure(refused[0].reason, detail, retryable=False)
    return [finding.message for finding in found]
