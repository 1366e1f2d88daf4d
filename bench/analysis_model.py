"""PURE: made-up rollouts, and how the shipped evidence judges them.

Model: a look each 5 s for an hour; requests of 120 tokens on average with an
acceptance of their own (Beta, concentration 6), half of whose tokens fall into
the next look; load moves by 30 %, acceptance by 5 %; errors come in pairs; 5 %
of first tokens and of tokens are slow, together for a minute on both arms and
for 20 s on each; one run in five has a minute in which 20 % fail on both arms.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from speculative_api.v1alpha1 import Analysis, MetricCheck
from speculative_operator.analysis.latency import BLOCK_SECONDS as LATENCY_BLOCK_SECONDS
from speculative_operator.analysis.sequential import Contrast
from speculative_operator.analysis.verdict import begin, error_sides
from speculative_operator.analysis.windows import BLOCK_REQUESTS, BLOCK_SECONDS

Array = NDArray[np.float64]
LOOK_SECONDS = 5.0
TOKENS_PER_STEP_DRAFTED = 4
SLOW = 0.05
REQUESTS, ACCEPTED, STEPS, FAILED, REFUSED, LATE_FIRST, LATE_TOKEN = range(7)

FIVE_TESTS = Analysis(
    metrics=[
        MetricCheck.model_validate(check)
        for check in (
            {"name": "AcceptanceLength"},
            {"name": "ErrorRate"},
            {"name": "TimeToFirstToken", "thresholdMilliseconds": 500},
            {"name": "InterTokenLatency", "thresholdMilliseconds": 50},
            {"name": "EndToEndLatency", "thresholdMilliseconds": 9000},
        )
    ]
)
"""What the recipe judges; whole requests are advisory and only share the chance."""


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


@dataclass(frozen=True, slots=True)
class Run:
    """One rollout: seconds and candidate requests to the rollback, or None."""

    seconds: float | None
    requests: int
    metric: str


def simulated(rng: np.random.Generator, scenario: Scenario, *, hours: float = 1.0) -> Array:
    """Candidate and stable, by the rows above, per look."""
    looks = int(hours * 3600 / LOOK_SECONDS)
    incident = np.zeros(looks)
    if rng.random() < 0.2:
        first = int(rng.integers(0, looks))
        incident[first : first + 12] = 0.20
    shared = _wave(rng, looks, seconds=60, size=0.5)
    share = scenario.canary
    ours = _arm(rng, scenario, share=share, bad=True, incident=incident, shared=shared)
    begins = int(60 * scenario.from_minute / LOOK_SECONDS)
    if begins:
        before = _arm(rng, scenario, share=share, bad=False, incident=incident, shared=shared)
        ours[:, :begins] = before[:, :begins]
    theirs = _arm(rng, scenario, share=1 - share, bad=False, incident=incident, shared=shared)
    return np.array([ours, theirs])


def _wave(rng: np.random.Generator, looks: int, *, seconds: float, size: float) -> Array:
    """A factor around 1 that hangs together for so many seconds."""
    keep = np.exp(-LOOK_SECONDS / seconds)
    noise = rng.standard_normal(looks) * np.sqrt(1 - keep**2)
    level = np.empty(looks)
    value = rng.standard_normal()
    for look in range(looks):
        value = keep * value + noise[look]
        level[look] = value
    factor: Array = np.exp(size * level - size**2 / 2)
    return factor


def _arm(
    rng: np.random.Generator,
    scenario: Scenario,
    *,
    share: float,
    bad: bool,
    incident: Array,
    shared: Array,
) -> Array:
    looks = len(incident)
    now = np.arange(looks) * LOOK_SECONDS
    load = 1 + 0.3 * np.sin(now / 300)
    drift = 1 + 0.05 * np.sin(now / 700)
    mean = scenario.requests_per_second * share * LOOK_SECONDS * load
    requests = rng.poisson(mean)
    which = np.repeat(np.arange(looks), requests)
    tokens = np.maximum(8.0, rng.gamma(2, 60, len(which)))
    p = scenario.acceptance
    per_step = TOKENS_PER_STEP_DRAFTED * rng.beta(6 * p, 6 * (1 - p), len(which))
    # Stable's pooled ratio stays what it is; the candidate's is exactly `accepts` of it.
    steps = tokens / (1 + per_step)
    accepted = per_step * steps * (scenario.accepts if bad else 1.0) * drift[which]
    halves = [np.bincount(which, weights, looks) / 2 for weights in (accepted, steps)]
    accepted_sum, steps_sum = (half + np.concatenate(([0.0], half[:-1])) for half in halves)
    errors = np.maximum(incident, scenario.candidate_errors if bad else scenario.errors)
    refused = rng.binomial(requests, scenario.candidate_refuses if bad else 0.0)
    late = [
        rng.binomial(
            requests,
            np.minimum(SLOW * shared * _wave(rng, looks, seconds=20, size=0.3) * factor, 1.0),
        )
        for factor in ((scenario.late_first, scenario.late_token) if bad else (1.0, 1.0))
    ]
    failed = 2.0 * rng.binomial(requests // 2, errors)
    return np.array([requests, accepted_sum, steps_sum, failed, refused, *late], dtype=np.float64)


def judged(sums: Array, *, analysis: Analysis = FIVE_TESTS) -> Run:
    """When the shipped evidence rolls back; `sums` are running totals of `simulated`."""
    evidence = begin("bench", analysis, at=0.0)
    looks = sums.shape[2]
    began = long_began = 0.0
    before = long_before = np.zeros(sums.shape[:2])
    for look in range(looks):
        at, total = (look + 1) * LOOK_SECONDS, sums[:, :, look]
        gained = total - before
        if at - began >= BLOCK_SECONDS and min(gained[:, REQUESTS]) >= BLOCK_REQUESTS:
            began, before = at, total
            evidence = replace(
                evidence,
                acceptance=evidence.acceptance.add(_contrast(gained, ACCEPTED, STEPS)),
                errors=evidence.errors.add(_contrast(gained, FAILED, REQUESTS)),
                client_errors=evidence.client_errors.add(_contrast(gained, REFUSED, REQUESTS)),
            )
        gained = total - long_before
        long_enough = at - long_began >= LATENCY_BLOCK_SECONDS
        if long_enough and min(gained[:, REQUESTS]) >= BLOCK_REQUESTS:
            long_began, long_before = at, total
            latencies = list(evidence.latencies)
            for index, row in enumerate((LATE_FIRST, LATE_TOKEN)):
                contrast = _contrast(gained, row, REQUESTS)
                (test,) = latencies[index].tests
                # The side of 'not worse' does not roll back.
                test = replace(test, worse_side=test.worse_side.add(contrast))
                latencies[index] = replace(latencies[index], tests=(test,))
            evidence = replace(evidence, latencies=tuple(latencies))
        values = {
            "acceptance": evidence.acceptance.worse,
            "errors": error_sides(evidence)[0],
            "first token": evidence.latencies[0].worse,
            "tokens": evidence.latencies[1].worse,
        }
        metric = max(values, key=lambda name: values[name])
        if values[metric] >= evidence.needed_worse:
            return Run(at, int(total[0, REQUESTS]), metric)
    return Run(None, int(sums[0, REQUESTS, -1]), "")


def _contrast(gained: Array, hits: int, exposure: int) -> Contrast:
    return Contrast(
        float(gained[0, hits]),
        float(gained[0, exposure]),
        float(gained[1, hits]),
        float(gained[1, exposure]),
    )


def rolled_out(rng: np.random.Generator, scenario: Scenario) -> Run:
    """One rollout of an hour, until it is rolled back or its time is over."""
    return judged(np.cumsum(simulated(rng, scenario), axis=2))
