"""Stable against its own first hours: the baseline, and evidence of having sunk below it.

In: a `DriftQuestion` and stable's pods, look by look. Out: a `DriftFinding` for
`rollout`. Blocks are long, since what sinks over hours needs no haste and a
short block shows the hour's kind of traffic. The bound is absolute: a share of
the baseline as it was measured. Evidence begins anew after `TERM_BLOCKS`, so
that the chance of a false alarm is one per term and does not run out. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from speculative_api.assessment import one_in
from speculative_operator.analysis.bounds import at_bound
from speculative_operator.analysis.contrast import Contrast
from speculative_operator.analysis.sequential import EVERY, STARTS, MeanEvidence
from speculative_operator.analysis.windows import (
    ALONE,
    SILENT_SECONDS,
    Block,
    Window,
    advance,
    longest_draft,
    steps_of,
    worker_readings,
)
from speculative_operator.decision import (
    BASELINE_BLOCKS,
    Baseline,
    DriftFinding,
    DriftQuestion,
)
from speculative_operator.snapshot import WorkerPod

SCHEMA: Final = 1
TERM_BLOCKS: Final = STARTS * EVERY
"""Blocks after which evidence begins anew: 24 hours at the default of 240 s."""
NEEDED_WORSE: Final = 1000.0
"""A revision that is at the limit all the time raises a false alarm in one term of so many."""
NEEDED_NOT_WORSE: Final = 20.0
"""As for a canary: what was shown worse is shown to be back."""
RECENT_BLOCKS: Final = 15
"""Blocks that the figure shown is made of: a quarter of `baselineSeconds`."""
BASELINE_ERRORS: Final = 2.0
"""Standard errors that the baseline is taken lower than measured, for the test."""
_WIDTH: Final = 4
_NO_NOISE: Final = Contrast(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class DriftEvidence:
    """What was seen of one question. The open window is not kept beyond a restart."""

    question: DriftQuestion
    test: MeanEvidence
    blocks: int = 0
    accepted: int = 0
    steps: int = 0
    recent: tuple[tuple[int, int], ...] = ()
    """Accepted tokens and steps of the last blocks."""
    window: Window = field(default_factory=lambda: Window.empty(_WIDTH), compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back what there was but the open window."""
        return {
            "schema": SCHEMA,
            "identity": self.question.identity,
            "test": self.test.to_json(),
            "blocks": self.blocks,
            "accepted": self.accepted,
            "steps": self.steps,
            "recent": self.recent,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], question: DriftQuestion) -> "DriftEvidence":
        """The inverse, for the same question.

        Raises:
            ValueError, KeyError, TypeError: other data, or of another question.
        """
        if data["schema"] != SCHEMA or data["identity"] != question.identity:
            raise ValueError(f"evidence of {data['identity']}, not of {question.identity}")
        return cls(
            question=question,
            test=MeanEvidence.from_json(data["test"]),
            blocks=int(data["blocks"]),
            accepted=int(data["accepted"]),
            steps=int(data["steps"]),
            recent=tuple((int(a), int(s)) for a, s in data["recent"])[-RECENT_BLOCKS:],
        )


def begin(question: DriftQuestion) -> DriftEvidence:
    """No evidence yet."""
    known = question.baseline
    if known is None:
        return DriftEvidence(question, MeanEvidence(limit=1.0))
    # How much the rate moves by itself is known from the first hours on.
    changes = BASELINE_BLOCKS - 1
    level = (float(known.accepted), float(known.steps))
    test = MeanEvidence(limit=1.0, noise=known.noise * changes, changes=changes, level=level)
    return DriftEvidence(question, test)


def observe(
    evidence: DriftEvidence, pods: Sequence[WorkerPod], *, at: float, period_seconds: float
) -> DriftEvidence:
    """The evidence after one more look, `at` in unix seconds, `period_seconds` after the last.

    A pod that restarted counts anew from its start; one that is silent holds
    the block, and is given up after a while, with the block.
    """
    question = evidence.question
    readings = worker_readings(pods, candidate=question.revision, control="")

    def closable(block: Block) -> bool:
        return at - block.began_at >= question.block_seconds

    window, block = advance(
        evidence.window,
        readings,
        at=at,
        weight=100,
        present={pod.uid for pod in pods if not pod.terminating},
        closable=closable,
        silent_seconds=max(SILENT_SECONDS, 2.5 * period_seconds),
        arms=ALONE,
    )
    after = replace(evidence, window=window)
    if block is None:
        return after
    digests = (
        pod.digest
        for pod in pods
        if pod.digest is not None and pod.revision == question.revision and not pod.terminating
    )
    _, _, accepted, _ = block.candidate
    return _with_block(after, accepted, steps_of(block.candidate, longest_draft(digests)))


def _with_block(evidence: DriftEvidence, accepted: int, steps: int) -> DriftEvidence:
    if steps <= 0:
        return evidence
    question = evidence.question
    if question.baseline is None:
        test = evidence.test.with_noise(Contrast(0, 0, accepted, steps))
    else:
        if evidence.blocks >= TERM_BLOCKS:
            evidence = replace(
                begin(question), window=evidence.window, recent=evidence.recent, blocks=0
            )
        block = at_bound(Contrast(accepted, steps, 0, 0), _floor(question, question.baseline))
        test = evidence.test.add(block, noise_of=_NO_NOISE)
    return replace(
        evidence,
        test=test,
        blocks=evidence.blocks + 1,
        accepted=evidence.accepted + accepted,
        steps=evidence.steps + steps,
        recent=(*evidence.recent, (accepted, steps))[-RECENT_BLOCKS:],
    )


def _floor(question: DriftQuestion, baseline: Baseline) -> float:
    """Accepted tokens per step below which it is worse.

    The baseline is an estimate: taken at its middle, every other revision at the limit would be
    below it, and evidence only grows.
    """
    error = math.sqrt(baseline.noise / baseline.steps)
    return question.least_share * max(baseline.rate - BASELINE_ERRORS * error, 0.0)


def assess(evidence: DriftEvidence) -> DriftFinding:
    """What the evidence says now; without a block it says nothing."""
    question, blocks = evidence.question, evidence.blocks
    if question.baseline is None:
        return _measured(evidence)
    accepted = sum(each[0] for each in evidence.recent)
    steps = sum(each[1] for each in evidence.recent)
    if not blocks:
        return DriftFinding(question.identity, message="not measured: no block of requests yet")
    rate, base = accepted / steps, question.baseline.rate
    percent = 100 * rate / base
    worse, fine = evidence.test.worse, evidence.test.not_worse
    is_drifted = worse >= NEEDED_WORSE
    message = (
        f"{rate:.2f} accepted draft tokens per step, {percent:.0f} percent of the baseline's "
        f"{base:.2f} (limit {100 * question.least_share:.0f}); evidence of worse {one_in(worse)}, "
        f"needed {one_in(NEEDED_WORSE)}; {blocks} blocks of {question.block_seconds:.0f} s"
    )
    return DriftFinding(
        question.identity,
        blocks=blocks,
        percent=percent,
        worse=worse,
        not_worse=fine,
        is_drifted=is_drifted,
        is_steady=not is_drifted and fine >= NEEDED_NOT_WORSE,
        message=message,
    )


def _measured(evidence: DriftEvidence) -> DriftFinding:
    question, blocks = evidence.question, evidence.blocks
    said = f"{blocks} of {BASELINE_BLOCKS} blocks of {question.block_seconds:.0f} s measured"
    complete = None
    if blocks >= BASELINE_BLOCKS and evidence.accepted > 0:
        noise = evidence.test.noise / max(evidence.test.changes, 1)
        complete = Baseline(evidence.accepted, evidence.steps, noise)
    elif blocks >= BASELINE_BLOCKS:
        said = f"no draft token was accepted in {blocks} blocks: there is nothing to fall from"
    return DriftFinding(question.identity, blocks=blocks, baseline=complete, message=said)
