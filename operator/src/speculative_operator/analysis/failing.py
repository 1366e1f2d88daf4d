"""A candidate whose requests all fail: the hard guard's own test, which needs no blocks.

In: what the gateways counted in one look. Out: an e-value, as in `sequential`,
and a sentence. Called by `verdict`. Immutable and plain JSON.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from speculative_api.assessment import one_in
from speculative_operator.analysis.failures import CLUSTERING, STABLE_FACTOR
from speculative_operator.analysis.sequential import HIGHEST_LOG, log_likelihood

SHARE: Final = 0.01
"""Part of the chance of a false rollback that is this test's; the metrics share the rest."""
FEWEST: Final = 10
"""Fewer failures in a row decide nothing, however unlikely they are: one client's one mistake."""
IDLE_SECONDS: Final = 60.0
"""A run in which the candidate was asked nothing for longer ends: what stable did meanwhile says
nothing about the moments in which the candidate failed."""
STABLE_FAILS: Final = 0.001
"""Share of its requests that stable fails while it is fine: the alternative that is bet on."""


@dataclass(frozen=True, slots=True)
class FailingRun:
    """Looks in a row in which every request of the candidate failed.

    While the run lasts, the evidence is the likelihood of what was seen if the
    candidate fails everything and stable is fine, over its likelihood under the
    limit that explains it best (failing at most `limit` or twice as often as
    stable, however often that is); once a request succeeds it is 0, and the next
    run begins with a smaller stake: 1/2, 1/6, 1/12 …, which add up to 1.
    """

    limit: float
    """Share of requests that may fail."""
    needed: float
    """Evidence that decides."""
    ended: int = 0
    """Runs that ended."""
    requests: int = 0
    """The candidate's, all of them failed."""
    control: tuple[int, int] = (0, 0)
    """Stable's requests since the run began, and how many of them failed."""
    at: float = 0.0
    """Unix seconds of the last look at which the candidate had answered something."""
    alone: bool = False

    def add(
        self,
        candidate: tuple[int, int],
        control: tuple[int, int],
        *,
        at: float,
        alone: bool = False,
    ) -> "FailingRun":
        """Takes one look: requests and failures of both arms since the one before."""
        requests, failures = candidate
        if not requests:
            if not self.requests:
                return self
            if at - self.at > IDLE_SECONDS:
                return self._begun_anew()
            return replace(self, control=self._with(control))
        if failures < requests:
            return self._begun_anew()
        return replace(
            self,
            requests=self.requests + requests,
            control=self._with(control),
            at=at,
            alone=alone,
        )

    def _begun_anew(self) -> "FailingRun":
        return replace(self, ended=self.ended + 1, requests=0, control=(0, 0))

    def _with(self, control: tuple[int, int]) -> tuple[int, int]:
        requests, failures = control
        return self.control[0] + requests, self.control[1] + min(failures, requests)

    @property
    def evidence(self) -> float:
        """E-value against 'at or below the limit'."""
        if not self.requests:
            return 0.0
        failed = self.control[1]
        passed = self.control[0] - failed
        fine = log_likelihood(failed, STABLE_FAILS) + log_likelihood(passed, 1 - STABLE_FAILS)
        gain = (fine - self._best_excuse(failed, passed)) / CLUSTERING
        return math.exp(min(gain, HIGHEST_LOG)) / ((self.ended + 1) * (self.ended + 2))

    def _best_excuse(self, failed: int, passed: int) -> float:
        """Log likelihood under the rate of stable that explains it best, candidate at its limit."""
        if self.alone:
            return log_likelihood(self.requests, self.limit)
        certain = 1 / STABLE_FACTOR
        low = min(self.limit / STABLE_FACTOR, certain)
        whole = failed + passed
        # Where stable's rate counts for less than the limit, for more, and where all may fail.
        rates = (
            min(failed / whole if whole else 0.0, low),
            min(max((self.requests + failed) / (self.requests + whole), low), certain),
            max(failed / whole if whole else 0.0, certain),
        )
        return max(
            log_likelihood(self.requests, min(1.0, max(self.limit, STABLE_FACTOR * rate)))
            + log_likelihood(failed, rate)
            + log_likelihood(passed, 1 - rate)
            for rate in rates
        )

    @property
    def words(self) -> str:
        """Why the candidate is to be taken out at once; empty: it is not."""
        if self.requests < FEWEST or self.evidence < self.needed:
            return ""
        requests, failed = self.control
        beside = "" if self.alone else f" while {failed:,} of {requests:,} on stable did"
        allowed = f"{100 * self.limit:g} %" + ("" if self.alone else " or twice stable's")
        return (
            f"all of its last {self.requests:,} requests failed{beside}. Evidence "
            f"{one_in(self.evidence)} (needed {one_in(self.needed)}): a candidate that fails at "
            f"most {allowed} would do so, at any time, in fewer than {one_in(self.evidence)} "
            "rollouts"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "limit": self.limit,
            "needed": self.needed,
            "ended": self.ended,
            "requests": self.requests,
            "control": self.control,
            "at": self.at,
            "alone": self.alone,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "FailingRun":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            limit=data["limit"],
            needed=data["needed"],
            ended=data["ended"],
            requests=data["requests"],
            control=(data["control"][0], data["control"][1]),
            at=data["at"],
            alone=data["alone"],
        )
