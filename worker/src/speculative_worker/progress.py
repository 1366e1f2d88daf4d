"""PURE: is the engine doing its work, or only saying that it is healthy?

Comes in: looks at the engine's load at a steady interval, oldest first. Goes
out: a sentence that names the stall, or None. The supervisor calls it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from speculative_api.engine_metrics import Load

STALL_SAMPLES: Final = 4
"""Looks in a row without progress that make a stall: at 15 s apart, most of a minute."""

HUNG_SECONDS: Final = 1200.0
"""So long without a token while requests run is no prefill any more: one step ends within 300 s
where several processes share it (vllm/envs.py, VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS), and for ever
where one does all."""

Sample = Mapping[str, Load] | None
"""Load by engine; None when the engine did not answer."""


def stall(samples: Sequence[Sample], *, period_seconds: float) -> str | None:
    """Names the stall, if there is one.

    An engine with requests waiting, none running and not one new token over
    `STALL_SAMPLES` samples is stalled; so is one that never answered over as
    many. A long prefill is not (it runs), unless it takes `HUNG_SECONDS`; nor is an idle
    engine (none waits).
    """
    if hung := _hung(samples, kept_samples(period_seconds), period_seconds):
        return hung
    recent = samples[-STALL_SAMPLES:]
    if len(recent) < STALL_SAMPLES:
        return None
    span_seconds = period_seconds * (STALL_SAMPLES - 1)
    if all(sample is None for sample in recent):
        return f"the engine's metrics did not answer {STALL_SAMPLES} times in {span_seconds:g} s"
    answered = [sample for sample in recent if sample is not None]
    if len(answered) < len(recent):
        return None
    for engine in answered[-1]:
        loads = [sample[engine] for sample in answered if engine in sample]
        if len(loads) == len(answered) and _is_stuck(loads):
            return (
                f"engine {engine}: {loads[-1].waiting} requests waiting, 0 running, "
                f"no token generated in {span_seconds:g} s ({STALL_SAMPLES} samples)"
            )
    return None


def kept_samples(period_seconds: float) -> int:
    """How many samples the rules look back on."""
    return max(STALL_SAMPLES, math.ceil(HUNG_SECONDS / period_seconds) + 1)


def _hung(samples: Sequence[Sample], enough: int, period_seconds: float) -> str | None:
    recent = samples[-enough:]
    if len(recent) < enough or not recent[0] or not recent[-1]:
        return None
    for engine, last in recent[-1].items():
        if engine not in recent[0]:
            continue
        # A look without an answer says nothing, and ends nothing.
        loads = [sample[engine] for sample in recent if sample is not None and engine in sample]
        if all(load.running > 0 and load.generated == last.generated for load in loads):
            return (
                f"engine {engine}: {last.running} requests running, "
                f"no token generated in {period_seconds * (enough - 1):g} s"
            )
    return None


def _is_stuck(loads: Sequence[Load]) -> bool:
    return all(
        load.waiting > 0 and load.running == 0 and load.generated == loads[0].generated
        for load in loads
    )
