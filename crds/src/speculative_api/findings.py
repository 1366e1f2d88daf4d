"""PURE: what a check of models found: how bad, why, at which field, in words."""

from dataclasses import dataclass
from typing import Literal

from speculative_api.conditions import WorkerReason

Severity = Literal["refuse", "warn"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit, or that often disappoints."""

    severity: Severity
    reason: WorkerReason
    field: str
    message: str
    """With both numbers and what to change."""


def refused(reason: WorkerReason, field: str, message: str) -> Finding:
    """What can never work."""
    return Finding("refuse", reason, field, message)


def warned(reason: WorkerReason, field: str, message: str) -> Finding:
    """What often disappoints."""
    return Finding("warn", reason, field, message)
