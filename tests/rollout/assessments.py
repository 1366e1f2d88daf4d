"""Assessments that tests hand to `decide`."""

from speculative_api.conditions import Reason
from speculative_operator.decision import Assessment, MetricVerdict, Outcome


def a_metric(
    outcome: str,
    *,
    worse: float = 0.5,
    measured: bool = True,
    outside: bool = False,
    holds: bool = False,
) -> MetricVerdict:
    return MetricVerdict(
        name="AcceptanceLength",
        outcome=outcome,
        reason=Reason.ACCEPTANCE_WORSE,
        worse=worse,
        not_worse=1.0,
        needed_worse=200.0,
        needed_not_worse=20.0,
        measured=measured,
        message=f"acceptance: {outcome}",
        outside_limit=outside,
        holds=holds,
    )


WORSE = Assessment((a_metric(Outcome.FAILED, worse=900.0),), candidate_requests=30)
PROVEN = Assessment((a_metric(Outcome.PASSED),), candidate_requests=30)
QUIET = Assessment((a_metric(Outcome.INCONCLUSIVE),), candidate_requests=30)
SUSPICIOUS = Assessment((a_metric(Outcome.INCONCLUSIVE, worse=40.0),), candidate_requests=30)
LOOKS_BAD = Assessment((a_metric(Outcome.INCONCLUSIVE, outside=True),), candidate_requests=30)
FEW = Assessment((a_metric(Outcome.INCONCLUSIVE),), candidate_requests=2)
NOTHING = Assessment((a_metric(Outcome.INCONCLUSIVE, measured=False),))
UNKNOWN = Assessment(
    (
        a_metric(Outcome.INCONCLUSIVE),
        a_metric(Outcome.ERRORED, measured=False, holds=True),
    ),
    candidate_requests=30,
)
"""One metric is measured, the source of another is away."""
ALL_FAILED = Assessment(candidate_requests=10, all_fail="all of its last 10 requests failed")
