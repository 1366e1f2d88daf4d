"""PURE: is stable really drafting? The condition SpeculationActive, from its pods' digests.

Draft tokens are counted from the engine's start, warm-up included, so that an
adaptive length is proved once and may go down to 0 afterwards.
"""

from collections.abc import Sequence
from typing import Final, Literal

from speculative_api.conditions import ConditionType, Reason
from speculative_api.v1alpha1 import Method
from speculative_api.worker import Digest
from speculative_operator.snapshot import Snapshot

LONG_ZERO_SECONDS: Final = 600.0
"""A draft length that stays 0 for so long is worth a recommendation: the draft still takes
memory, and a draft model one pass per step."""

Found = tuple[ConditionType, Literal["True", "False", "Unknown"], Reason, str]


def speculating(snapshot: Snapshot) -> Found:
    """The condition's state, reason and sentence."""
    kind, stable = ConditionType.SPECULATION_ACTIVE, snapshot.status.stable
    digests = [p.digest for p in snapshot.pods_of(stable.hash) if p.digest] if stable else []
    if not digests:
        return kind, "Unknown", Reason.NOT_MEASURED, "No pod of stable has answered yet."
    if all(digest.method == Method.NONE for digest in digests):
        return kind, "Unknown", Reason.NOT_CONFIGURED, "The stable revision drafts nothing."
    if disobeyed := _disobeyed(digests):
        return kind, "False", Reason.NOT_DRAFTING, disobeyed
    drafted = sum(digest.draft_tokens or 0 for digest in digests)
    generated = sum(digest.generated_tokens or 0 for digest in digests)
    if drafted > 0:
        if (reduced := _reduced(digests)) is not None:
            return kind, "True", Reason.REDUCED_TO_ZERO, reduced
        return kind, "True", Reason.DRAFTING, "Draft tokens are being proposed and verified."
    if generated > 0:
        if any(digest.adaptive and digest.adaptive.mode == "BatchSize" for digest in digests):
            message = "None was drafted: the schedule may have 0 for every batch size so far."
            return kind, "Unknown", Reason.NOT_MEASURED, message
        message = "Tokens were generated and none was drafted: check the method against the load."
        return kind, "False", Reason.NOT_DRAFTING, message
    return kind, "Unknown", Reason.NOT_MEASURED, "No token was generated yet."


def _reduced(digests: Sequence[Digest]) -> str | None:
    """A sentence if every pod's adaptive length is 0, and after a while what to do about it."""
    states = [digest.adaptive for digest in digests]
    if not all(state is not None and state.tokens == 0 for state in states):
        return None
    shortest = min((state.zero_seconds or 0.0) for state in states if state is not None)
    message = "The adaptive draft length is 0 in every pod: plain decoding is faster at this load."
    if shortest >= LONG_ZERO_SECONDS:
        message += (
            f" It has been for more than {LONG_ZERO_SECONDS / 60:.0f} minutes: send requests to "
            "the native lane (lanes.native) or set speculation.method: None, which also saves what "
            "the draft costs at length 0."
        )
    return message


def _disobeyed(digests: Sequence[Digest]) -> str | None:
    pods = [d.pod for d in digests if d.adaptive is not None and not d.adaptive.obeyed]
    if not pods:
        return None
    return (
        f"The engine of {', '.join(pods[:3])} does not use the draft length that was asked for: "
        "set speculation.adaptive.mode: Off for this engine."
    )
