"""Why a worker ends: one exception type for everything that fails a worker.

WorkerFailure   ends the worker; becomes its termination message
"""

from speculative_api.conditions import WorkerReason


class WorkerFailure(Exception):
    """The worker cannot go on.

    `retryable` is true when the same revision may well work later (the hub was
    away, an unknown crash), false when it never will (a bad checkpoint).
    """

    def __init__(self, reason: WorkerReason, detail: str, *, retryable: bool) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
