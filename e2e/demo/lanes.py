"""How fast a lane answers, and how many tokens a decoding step gives there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from e2e.load import Load, Report

from speculative_api.labels import WORKER_PORT
from speculative_api.worker import Digest

from .errors import DemoError
from .kube import Kube
from .world import PodView

REQUESTS = 3
TOKENS = 48
"""Longer answers than those of the load: here speed is the point."""


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """One lane's figures, with one stream."""

    report: Report
    acceptance_length: float
    """Tokens per decoding step; 1 for plain decoding."""
    generated_tokens: int
    accepted_tokens: int
    drafted_tokens: int

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "tokensPerSecond": round(self.report.tokens_per_second, 2),
            "acceptanceLength": round(self.acceptance_length, 3),
            "generatedTokens": self.generated_tokens,
            "acceptedTokens": self.accepted_tokens,
            "draftedTokens": self.drafted_tokens,
            "load": self.report.to_json(),
        }

    def line(self) -> str:
        """For people."""
        drafts = (
            f"{self.accepted_tokens} of {self.drafted_tokens} draft tokens accepted"
            if self.drafted_tokens
            else "nothing drafted"
        )
        return (
            f"{self.report.tokens_per_second:.1f} tokens/s, "
            f"{self.acceptance_length:.2f} tokens per step ({drafts})"
        )


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over the pods of a lane."""

    generated: int
    accepted: int
    drafted: int


def counters_of(digests: Sequence[Digest]) -> Counters:
    """Sums; an engine that drafts nothing reports no draft counters, which adds nothing.

    Raises:
        DemoError: generated tokens are not reported.
    """
    if any(digest.generated_tokens is None for digest in digests):
        raise DemoError("a worker's digest has no count of generated tokens")
    return Counters(
        generated=sum(digest.generated_tokens or 0 for digest in digests),
        accepted=sum(digest.accepted_tokens or 0 for digest in digests),
        drafted=sum(digest.draft_tokens or 0 for digest in digests),
    )


def acceptance_length(before: Counters, after: Counters) -> float:
    """Tokens per decoding step between two readings: generated / (generated - accepted).

    Raises:
        DemoError: no step was made.
    """
    generated = after.generated - before.generated
    steps = generated - (after.accepted - before.accepted)
    if steps <= 0:
        raise DemoError(f"no decoding step was counted ({generated} tokens)")
    return generated / steps


async def measure(
    kube: Kube, *, namespace: str, pods: Sequence[PodView], url: str, lane: str | None
) -> LaneFigures:
    """Asks a few questions one after the other and reads the workers before and after.

    Raises:
        DemoError: a question was not answered whole, or a worker does not report.
    """
    before = counters_of(await _digests(kube, namespace, pods))
    async with Load(url, streams=1, requests=REQUESTS, max_tokens=TOKENS, lane=lane) as load:
        await load.finished()
    report = load.report()
    if report.ok != REQUESTS:
        raise DemoError(f"lane {lane or 'accelerated'}: {report.line()} {report.errors}")
    after = counters_of(await _digests(kube, namespace, pods))
    return LaneFigures(
        report=report,
        acceptance_length=acceptance_length(before, after),
        generated_tokens=after.generated - before.generated,
        accepted_tokens=after.accepted - before.accepted,
        drafted_tokens=after.drafted - before.drafted,
    )


async def _digests(kube: Kube, namespace: str, pods: Sequence[PodView]) -> list[Digest]:
    if not pods:
        raise DemoError("no pod to measure")
    found = []
    for pod in pods:
        raw = await kube.ask_pod(namespace, pod.name, WORKER_PORT, "/digest")
        if raw is None:
            raise DemoError(f"pod {pod.name} does not answer with a digest")
        found.append(Digest.model_validate(raw))
    return found
