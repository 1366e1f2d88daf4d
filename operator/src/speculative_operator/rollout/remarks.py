"""PURE: what the canary's pods say beside its verdict, for the message; nothing acts on it but one.

`is_silent` keeps a rollout from advancing; the rest are sentences for people.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from speculative_api.worker import Digest
from speculative_operator.rollout.sessions import is_sticky, offset
from speculative_operator.snapshot import Snapshot

DRAFTING_METHODS: Final = frozenset(
    {"DraftModel", "Eagle", "Eagle3", "MTP", "Medusa", "MLPSpeculator", "DFlash", "DSpark"}
)
"""Methods that propose tokens in every step. Look-ups and custom classes may rightly find none."""
LESS_CACHE: Final = 0.9
"""A canary with less of stable's cache than this is mentioned (H06 of the field cases)."""
HIGH_LENGTH_FACTOR: Final = 1.5
HIGH_LENGTH_SHARE: Final = 0.9
"""Repetitive garbage is easy to predict: nearly every token accepted, and half as many again as
stable's, is a warning and no medal (H29 of the field cases)."""
_MINIMUM_STEPS: Final = 100


def is_silent(snapshot: Snapshot, revision: str) -> bool:
    """Whether a revision generates tokens and proposes none though its method always does.

    The warm-up counts: it is evidence before the first user.
    """
    digests = _digests(snapshot, revision)
    if not digests or not all(digest.method in DRAFTING_METHODS for digest in digests):
        return False
    generated = sum(digest.generated_tokens or 0 for digest in digests)
    return generated > 0 and not any(digest.draft_tokens for digest in digests)


def silence(snapshot: Snapshot, revision: str) -> str:
    """What `is_silent` saw, with its numbers."""
    digests = _digests(snapshot, revision)
    generated = sum(digest.generated_tokens or 0 for digest in digests)
    method = digests[0].method if digests else ""
    return (
        f"proposes nothing: method {method} drafted none of {generated} generated tokens; "
        "speculation is configured and does not happen, so it waits for that or for `abort`"
    )


def remarks(snapshot: Snapshot) -> list[str]:
    """Sentences about the canary beside stable."""
    stable, canary = snapshot.status.stable, snapshot.status.canary
    if stable is None or canary is None:
        return []
    ours, theirs = _digests(snapshot, canary.hash), _digests(snapshot, stable.hash)
    return [*_cache(ours, theirs), *_implausible(ours, theirs), *_sessions(snapshot)]


def _sessions(snapshot: Snapshot) -> Iterator[str]:
    """Where they stay, a difference between the revisions may be one between their users."""
    if is_sticky(snapshot):
        yield f"sessions stay with a revision. {offset(snapshot).removesuffix('.')}"


def _cache(ours: list[Digest], theirs: list[Digest]) -> Iterator[str]:
    """The smallest of each: a revision serves as much as its fullest pod."""
    mine = min((d.kv_cache_blocks for d in ours if d.kv_cache_blocks), default=None)
    other = min((d.kv_cache_blocks for d in theirs if d.kv_cache_blocks), default=None)
    if mine is not None and other is not None and mine < LESS_CACHE * other:
        yield (
            f"its KV cache has {mine} blocks, stable's {other} ({100 * mine // other} percent): "
            "fewer requests fit at once"
        )


def _implausible(ours: list[Digest], theirs: list[Digest]) -> Iterator[str]:
    mine, other = _length(ours), _length(theirs)
    tokens = max((digest.num_speculative_tokens or 0 for digest in ours), default=0)
    if mine is None or other is None or not tokens:
        return
    if mine > HIGH_LENGTH_FACTOR * other and mine > HIGH_LENGTH_SHARE * (tokens + 1):
        yield (
            f"its acceptance is implausibly high: {mine:.2f} tokens per step of at most "
            f"{tokens + 1}, stable {other:.2f}; look at its answers, repetition is easy to predict"
        )


def _length(digests: Iterable[Digest]) -> float | None:
    found = [digest for digest in digests if digest.steps is not None]
    generated = sum(digest.generated_tokens or 0 for digest in found)
    steps = sum(digest.steps or 0 for digest in found)
    return generated / steps if steps >= _MINIMUM_STEPS else None


def _digests(snapshot: Snapshot, revision: str) -> list[Digest]:
    return [pod.digest for pod in snapshot.pods_of(revision) if pod.digest is not None]
