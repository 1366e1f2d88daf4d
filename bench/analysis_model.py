"""PURE: made-up rollouts, many at a time.

Model: a look each 5 s for an hour; requests of 120 tokens on average with an
acceptance of their own (Beta, concentration 6), half of whose tokens fall into
the next look; load moves by 30 %, acceptance by 5 %; errors come in pairs; 5 %
of first tokens and of tokens are slow, together for a minute on all pods and
for 20 s on each; one run in five has a minute in which 20 % fail on both arms.
The candidate is one pod; stable is four unless said, and takes the rest whatever that is per pod.

Requests are drawn as neighbours in one long row made once, so that the sum over
a look is a difference of two running totals: the same law, a hundred times as fast.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LOOK_SECONDS: Final = 5.0
TOKENS_PER_STEP_DRAFTED: Final = 4
SLOW: Final = 0.05
ROW_REQUESTS: Final = 1 << 20
"""Length of the row that requests are drawn from."""
LONGEST_PICK: Final = 4096
"""Most requests that one pod has in one look."""
REQUESTS, ACCEPTED, STEPS, FAILED, REFUSED, LATE_FIRST, LATE_TOKEN, TIMED = range(8)
POD_ROWS: Final = (REQUESTS, ACCEPTED, STEPS, LATE_FIRST, LATE_TOKEN, TIMED)
"""What is known of every stable pod; answers are counted by the gateway, for all of them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the candidate does, relative to stable; rates per second, shares between 0 and 1."""

    name: str
    requests_per_second: float
    canary: float = 0.05
    acceptance: float = 0.70
    accepts: float = 1.0
    """Candidate's accepted tokens per step, as a factor of stable's."""
    errors: float = 0.001
    candidate_errors: float = 0.001
    candidate_refuses: float = 0.0
    """4xx that only the candidate answers."""
    late_first: float = 1.0
    """Candidate's share of slow first tokens, as a factor of stable's; `late_token` likewise."""
    late_token: float = 1.0
    from_minute: float = 0.0
    """The candidate is like stable until then."""
    target_p95_seconds: float | None = None
    target_false_percent: float | None = None
    """Most of the runs that may be rolled back."""
    runs_factor: float = 1.0
    """How many times the runs of others it takes to bound its rate."""
    stable_pods: int = 4
    hot: float | None = None
    """Share of prompts that copy, nearly all that is accepted; None: all prompts much alike."""
    lost: float = 0.0
    """Share of looks at which nothing could be read."""
    error_limit: float = 0.01
    timed_per_request: int = 1
    """Times of tokens that an engine counts per request: one, or one a step (older engines)."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What both arms did, per look, run by run.

    `arms` is indexed by look, run, arm (candidate, stable) and row; `pods` by
    look, run, stable pod and `POD_ROWS`; at looks that are `lost` (by look and
    run) nothing could be read.
    """

    arms: Array
    pods: Array
    lost: NDArray[np.bool_]

    def only(self, run: int) -> "Rollouts":
        """One of them."""
        return Rollouts(self.arms[:, [run]], self.pods[:, [run]], self.lost[:, [run]])


@cache
def _row(acceptance: float, hot: float | None) -> Array:
    """Running totals of (accepted, steps) over a long row of requests."""
    rng = np.random.default_rng(20261130)
    tokens = np.maximum(8.0, rng.gamma(2, 60, ROW_REQUESTS))
    if hot is None:
        p = rng.beta(6 * acceptance, 6 * (1 - acceptance), ROW_REQUESTS)
    else:
        p = np.where(rng.random(ROW_REQUESTS) < hot, 0.9, 0.02)
    per_step = TOKENS_PER_STEP_DRAFTED * p
    steps = tokens / (1 + per_step)
    totals = np.cumsum([per_step * steps, steps], axis=1)
    return np.ascontiguousarray(np.hstack([np.zeros((2, 1)), totals]).T)


def simulated(
    rng: np.random.Generator, scenario: Scenario, *, runs: int, hours: float = 1.0
) -> Rollouts:
    """So many rollouts of so many hours, none of them rolled back yet."""
    looks = int(hours * 3600 / LOOK_SECONDS)
    incident = np.zeros((looks, runs))
    for run in np.nonzero(rng.random(runs) < 0.2)[0]:
        first = int(rng.integers(0, looks))
        incident[first : first + 12, run] = 0.20
    shared = _waves(rng, (looks, runs, 1), seconds=60, size=0.5)
    bad = np.arange(looks) * LOOK_SECONDS >= 60 * scenario.from_minute
    share = scenario.canary
    ours = _pods(rng, scenario, runs=runs, pods=1, share=share, bad=bad, shared=shared)
    theirs = _pods(
        rng,
        scenario,
        runs=runs,
        pods=scenario.stable_pods,
        share=1 - share,
        bad=np.zeros(looks, dtype=bool),
        shared=shared,
    )
    arms = np.zeros((looks, runs, 2, 8))
    for arm, pods in enumerate((ours, theirs)):
        arms[:, :, arm, list(POD_ROWS)] = pods.sum(axis=2)
        requests = arms[:, :, arm, REQUESTS].astype(np.int64)
        rate = np.where(bad, scenario.candidate_errors, scenario.errors)[:, None]
        errors = np.maximum(incident, scenario.errors if arm else rate)
        pairs = np.diff(np.cumsum(requests, axis=0) // 2, axis=0, prepend=0)
        arms[:, :, arm, FAILED] = 2.0 * rng.binomial(pairs, errors)
        if not arm and scenario.candidate_refuses:
            arms[:, :, arm, REFUSED] = rng.binomial(requests, scenario.candidate_refuses)
    return Rollouts(arms, theirs, rng.random((looks, runs)) < scenario.lost)


def _waves(
    rng: np.random.Generator, shape: tuple[int, ...], *, seconds: float, size: float
) -> Array:
    """Factors around 1 that hang together for so many seconds along the first axis."""
    keep = np.exp(-LOOK_SECONDS / seconds)
    level = rng.standard_normal(shape)
    level[1:] *= np.sqrt(1 - keep**2)
    for look in range(1, shape[0]):
        level[look] += keep * level[look - 1]
    factor: Array = np.exp(size * level - size**2 / 2)
    return factor


def _pods(
    rng: np.random.Generator,
    scenario: Scenario,
    *,
    runs: int,
    pods: int,
    share: float,
    bad: NDArray[np.bool_],
    shared: Array,
) -> Array:
    """`POD_ROWS` of the pods of one arm, by look, run and pod."""
    looks = len(bad)
    now = np.arange(looks)[:, None, None] * LOOK_SECONDS
    load = 1 + 0.3 * np.sin(now / 300)
    drift = 1 + 0.05 * np.sin(now / 700)
    mean = scenario.requests_per_second * share * LOOK_SECONDS * load / pods
    requests = np.minimum(rng.poisson(np.broadcast_to(mean, (looks, runs, pods))), LONGEST_PICK)
    row = _row(scenario.acceptance, scenario.hot)
    first = rng.integers(0, ROW_REQUESTS - LONGEST_PICK, requests.shape)
    found = np.empty((*requests.shape, len(POD_ROWS)))
    found[..., 0] = requests
    # Stable's pooled ratio stays what it is; the candidate's is exactly `accepts` of it.
    halves = (row[first + requests] - row[first]) / 2
    halves[..., 0] *= drift * np.where(bad, scenario.accepts, 1.0)[:, None, None]
    halves[1:] += halves[:-1].copy()
    found[..., 1:3] = halves
    found[..., 5] = timed = requests * scenario.timed_per_request
    for index, counted, factor in (
        (3, requests, scenario.late_first),
        (4, timed, scenario.late_token),
    ):
        moment = _waves(rng, requests.shape, seconds=20, size=0.3)
        chance = SLOW * shared * moment * np.where(bad, factor, 1.0)[:, None, None]
        found[..., index] = rng.binomial(counted, np.minimum(chance, 1.0))
    return found
