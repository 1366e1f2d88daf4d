"""Failures by kind of request: a failing minority must not hide among all others.

In: what the gateways counted of each kind. Out: e-values, which share the test
of ErrorRate with those of all requests. Called by `verdict`. Immutable and
plain JSON.

A kind has few requests, so the test is a sharper one than that of all requests:
likelihood ratios of counts over the largest likelihood under the limit, with no
allowance for bursts. Instead, a block counts half of the candidate's failures,
and few more than two at the limit would be: a burst is about one failure, and
the same mistake again a minute later another.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from speculative_api.gateway import REQUEST_KINDS
from speculative_operator.analysis.contrast import NOTHING, Contrast, joined, numbers
from speculative_operator.analysis.failures import ErrorEvidence
from speculative_operator.analysis.sequential import (
    EVERY,
    HIGHEST_LOG,
    STARTS,
    log_likelihood,
    mixed,
)
from speculative_operator.analysis.windows import (
    ALONE,
    CANDIDATE,
    CONTROL,
    Reading,
    Sample,
    Window,
    advance,
)

STAKE: Final = 0.25
"""Part of what all requests have at stake that goes to a kind when the first request of it is
seen: who asks for no kind pays for none."""
TIMES_LIMIT: Final = (2.0, 5.0, 15.0, 50.0)
"""How many times the limit the candidate fails, in the alternatives that are bet on."""
STABLE_FAILS: Final = 0.1
"""Part of the limit that stable fails in them."""
BLOCKS: Final = 3
"""Blocks with a failure before a kind may be called worse."""
WIDTH: Final = 2


@dataclass(frozen=True, slots=True)
class _Start:
    """Requests and failures of both arms since it began, at one weight; `won` is the log of what
    earlier weights came to."""

    won: float = 0.0
    requests: int = 0
    failures: int = 0
    control: int = 0
    control_failures: int = 0

    def evidence(self, limit: float, *, alone: bool) -> float:
        """E-value against 'at most the limit, or as often as control'."""
        return math.exp(min(self._log(limit, alone=alone), HIGHEST_LOG))

    def closed(self, limit: float, *, alone: bool) -> "_Start":
        """What it came to, and no counts."""
        return _Start(max(self._log(limit, alone=alone), -HIGHEST_LOG))

    def _log(self, limit: float, *, alone: bool) -> float:
        passed = self.requests - self.failures
        fine = self.control - self.control_failures
        low = STABLE_FAILS * limit
        control = log_likelihood(self.control_failures, low) + log_likelihood(fine, 1 - low)
        worse = [min(times * limit, 0.95) for times in TIMES_LIMIT]
        bets = [
            log_likelihood(self.failures, p) + log_likelihood(passed, 1 - p) + control
            for p in worse
        ]
        most = max(bets)
        bet = most + math.log(sum(math.exp(log - most) for log in bets) / len(bets))
        return self.won + bet - self._best_excuse(limit, alone=alone, control=control)

    def _best_excuse(self, limit: float, *, alone: bool, control: float) -> float:
        """The largest log likelihood of a candidate within the limit."""
        passed = self.requests - self.failures
        fine = self.control - self.control_failures
        if alone:
            rate = min(self.failures / max(self.requests, 1), limit)
            return log_likelihood(self.failures, rate) + log_likelihood(passed, 1 - rate) + control
        found = []
        # Control as it looks and the candidate at most at the limit; or both as often.
        theirs = self.control_failures / max(self.control, 1)
        ours = self.failures / max(self.requests, 1)
        both = (self.failures + self.control_failures) / max(self.requests + self.control, 1)
        pairs = [(min(ours, max(limit, theirs)), theirs), (both, both)]
        for rate, beside in pairs:
            likelihood = log_likelihood(self.failures, rate) + log_likelihood(passed, 1 - rate)
            found.append(
                likelihood
                + log_likelihood(self.control_failures, beside)
                + log_likelihood(fine, 1 - beside)
            )
        return max(found)


class KindFigures(NamedTuple):
    """What words about a kind are made of."""

    name: str
    limit: float
    total: Contrast
    is_outside: bool


@dataclass(frozen=True, slots=True)
class KindEvidence:
    """What is remembered of one kind."""

    name: str
    limit: float
    stake: float
    """What it began with, of the test of ErrorRate."""
    window: Window
    total: Contrast = NOTHING
    blocks: int = 0
    hit: int = 0
    """Blocks with a failure of the candidate's."""
    weight: int = 0
    """Of the last block."""
    alone: bool = False
    starts: tuple[_Start, ...] = ()
    worse: float = field(init=False, compare=False)
    """E-value against 'within the limit'."""

    def __post_init__(self) -> None:
        found = [start.evidence(self.limit, alone=self.alone) for start in self.starts]
        early = 0 < self.hit < BLOCKS
        object.__setattr__(self, "worse", 0.0 if early else mixed(found))

    @property
    def is_outside(self) -> bool:
        """Whether the plain share is beyond the limit and stable's, in several blocks."""
        total = self.total
        if self.hit < BLOCKS or total.candidate_exposure <= 0:
            return False
        theirs = total.control_hits / total.control_exposure if total.control_exposure else 0.0
        return total.candidate_hits / total.candidate_exposure > max(self.limit, theirs)

    @property
    def figures(self) -> KindFigures:
        """For `messages`."""
        return KindFigures(self.name, self.limit, self.total, self.is_outside)

    def with_block(
        self,
        candidate: tuple[int, int],
        control: tuple[int, int],
        *,
        weight: int,
        alone: bool = False,
    ) -> "KindEvidence":
        """Takes one more block: requests and failures of both arms."""
        (requests, failures), (theirs, their_failures) = candidate, control
        counted = min((failures + 1) // 2, 1 + int(2 * self.limit * requests))
        starts = self.starts
        if weight != self.weight or alone != self.alone:
            # At another weight the arms meet good and bad times in other proportions.
            starts = tuple(start.closed(self.limit, alone=self.alone) for start in starts)
        if self.blocks % EVERY == 0 and len(starts) < STARTS:
            starts = (*starts, _Start())
        return replace(
            self,
            total=joined(self.total, Contrast(failures, requests, their_failures, theirs)),
            blocks=self.blocks + 1,
            hit=self.hit + (failures > 0),
            weight=weight,
            alone=alone,
            starts=tuple(
                _Start(
                    start.won,
                    start.requests + requests - (failures - counted),
                    start.failures + counted,
                    start.control + theirs,
                    start.control_failures + their_failures,
                )
                for start in starts
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal value."""
        return {
            "name": self.name,
            "limit": self.limit,
            "stake": self.stake,
            "window": self.window.to_json(),
            "total": numbers(self.total),
            "blocks": self.blocks,
            "hit": self.hit,
            "weight": self.weight,
            "alone": self.alone,
            "starts": [
                [s.won, s.requests, s.failures, s.control, s.control_failures] for s in self.starts
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "KindEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            name=data["name"],
            limit=data["limit"],
            stake=data["stake"],
            window=Window.from_json(data["window"]),
            total=Contrast(*data["total"]),
            blocks=data["blocks"],
            hit=data["hit"],
            weight=data["weight"],
            alone=data["alone"],
            starts=tuple(_Start(*start) for start in data["starts"]),
        )


def observe(
    kinds: tuple[KindEvidence, ...], sample: Sample, *, errors: ErrorEvidence
) -> tuple[KindEvidence, ...]:
    """The evidence of every kind after one more look.

    `errors` is the test of all requests before this look. Where sessions stay with a revision
    who asks for a kind is no matter of chance; copies have no kinds.
    """
    if sample.sticky or sample.shadow:
        return kinds
    found = list(kinds)
    known = {kind.name for kind in kinds}
    for name in REQUEST_KINDS:
        if name not in known and _is_asked_for(name, sample):
            stake = STAKE * left(found) * errors.wealth
            found.append(KindEvidence(name, errors.limit, stake, Window.empty(WIDTH)))
    return tuple(_observe(kind, sample) for kind in found)


def left(kinds: Sequence[KindEvidence]) -> float:
    """The part of its evidence that the test of all requests keeps."""
    return (1 - STAKE) ** len(kinds)


def _is_asked_for(name: str, sample: Sample) -> bool:
    return any(reading.counters[0] > 0 for reading in _readings(name, sample))


def _observe(evidence: KindEvidence, sample: Sample) -> KindEvidence:
    window, block = advance(
        evidence.window,
        list(_readings(evidence.name, sample)),
        at=sample.at,
        weight=sample.weight,
        present={pod.uid for pod in sample.gateways if not pod.terminating},
        silent_seconds=sample.silent_seconds,
        arms=sample.arms,
    )
    after = replace(evidence, window=window)
    if block is None:
        return after
    return after.with_block(
        (block.candidate[0], min(block.candidate[1], block.candidate[0])),
        (block.control[0], min(block.control[1], block.control[0])),
        weight=block.weight,
        alone=sample.arms == ALONE,
    )


def _readings(name: str, sample: Sample) -> Iterable[Reading]:
    """(answers, failures) of one kind, by gateway pod and cluster."""
    for pod in sample.gateways:
        state = pod.state
        if state is None or pod.terminating:
            continue
        for cluster in state.clusters:
            arm = sample.arm(cluster.hash)
            if arm not in (CANDIDATE, CONTROL):
                continue
            counted = cluster.kinds.get(name)
            answers = sum(counted.responses.values()) if counted else 0
            failures = counted.responses.get("5xx", 0) + counted.cut if counted else 0
            yield Reading(
                f"{pod.uid}/{cluster.hash}",
                arm,
                state.envoy_started_at,
                state.sampled_at,
                (answers, failures),
            )
