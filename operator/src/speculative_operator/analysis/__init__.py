"""Judging a candidate against its control: pure, sequential, restartable.

`begin` a trial, `observe` every look, `assess` (or `tell`) at any moment. The method is
explained in docs/analysis.md.
"""

from speculative_operator.analysis.verdict import (
    Evidence,
    Sample,
    assess,
    begin,
    continues,
    observe,
    tell,
)

__all__ = ["Evidence", "Sample", "assess", "begin", "continues", "observe", "tell"]
