"""PURE: what is simulated, and what it is to come to (the targets of the recipe)."""

from dataclasses import replace
from typing import Final

from bench.analysis_model import Scenario

AT_LIMITS: Final = Scenario(
    "at every limit",
    10,
    accepts=0.9,
    candidate_errors=0.01,
    late_first=1.5,
    late_token=1.5,
    target_false_percent=1.0,
)
SAME: Final = Scenario("A/A", 10, target_false_percent=0.1, runs_factor=3)
WEAKER: Final = 0.55 / 0.70

SCENARIOS: Final = (
    replace(SAME, name="A/A, 2 req/s", requests_per_second=2),
    replace(SAME, name="A/A, 10 req/s"),
    replace(SAME, name="A/A, 50 req/s", requests_per_second=50),
    replace(SAME, name="A/A, 50 req/s, canary 1 %", requests_per_second=50, canary=0.01),
    replace(SAME, name="A/A, 50 req/s, canary 50 %", requests_per_second=50, canary=0.5),
    replace(AT_LIMITS, name="at every limit, 2 req/s", requests_per_second=2),
    replace(AT_LIMITS, name="at every limit, 10 req/s"),
    replace(AT_LIMITS, name="at every limit, 50 req/s", requests_per_second=50),
    replace(AT_LIMITS, name="at every limit, 10 req/s, one stable pod", stable_pods=1),
    replace(AT_LIMITS, name="at every limit, 10 req/s, a fifth of looks lost", lost=0.2),
    replace(
        AT_LIMITS,
        name="at every limit, 50 req/s, tokens timed by step",
        requests_per_second=50,
        timed_per_request=60,
    ),
    Scenario("at .90, one prompt in 50 copies, 2 req/s", 2, accepts=0.9, hot=0.02),
    Scenario("at .90, one prompt in 50 copies, 10 req/s", 10, accepts=0.9, hot=0.02),
    Scenario("acceptance halved, 2 req/s", 2, accepts=0.5),
    Scenario("acceptance halved, 10 req/s", 10, accepts=0.5, target_p95_seconds=120),
    Scenario("acceptance halved, 50 req/s", 50, accepts=0.5, target_p95_seconds=60),
    Scenario(
        "acceptance halved, 50 req/s, one stable pod",
        50,
        accepts=0.5,
        stable_pods=1,
        target_p95_seconds=60,
    ),
    Scenario("acceptance .70 -> .55, 10 req/s", 10, accepts=WEAKER, target_p95_seconds=600),
    Scenario("acceptance .70 -> .55, 50 req/s", 50, accepts=WEAKER, target_p95_seconds=180),
    Scenario("the same from minute 30, 50 req/s", 50, accepts=WEAKER, from_minute=30),
    Scenario(
        "errors .1 -> 2 %, limit .5 %, 50 req/s",
        50,
        candidate_errors=0.02,
        error_limit=0.005,
        target_p95_seconds=1300,
    ),
    Scenario("errors .1 -> 2 %, limit 1 %, 50 req/s", 50, candidate_errors=0.02),
    Scenario(
        "errors 20 %, limit .5 %, 10 req/s",
        10,
        candidate_errors=0.20,
        error_limit=0.005,
        target_p95_seconds=210,
    ),
    Scenario("errors 20 %, limit 1 %, 10 req/s", 10, candidate_errors=0.20, target_p95_seconds=210),
    Scenario(
        "errors 20 %, canary 50 %, 50 req/s",
        50,
        canary=0.5,
        candidate_errors=0.20,
        target_p95_seconds=40,
    ),
    Scenario("20 % answered 4xx, 10 req/s", 10, candidate_refuses=0.20),
    Scenario("slow tokens 5 -> 12 %, 10 req/s", 10, late_token=2.4),
    Scenario("slow tokens 5 -> 12 %, 50 req/s", 50, late_token=2.4),
    Scenario(
        "slow tokens 5 -> 12 %, timed by step, 50 req/s",
        50,
        late_token=2.4,
        timed_per_request=60,
        target_p95_seconds=600,
    ),
)
"""The recipe judges errors against .5 % (ours begins at 1 %) and times of steps (ours, of requests
where the engine knows them): both are shown."""
