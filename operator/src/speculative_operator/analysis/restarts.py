"""Container restarts of the candidate's pods, against a number and against stable's.

A restart is a fact, not a sample: one more than allowed fails the candidate, no
statistics involved, unless stable's pods restart as well (a node or a hub in
trouble). A crash loop is caught by the rollout's own hard guard. Pure.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from speculative_api.conditions import WorkerReason
from speculative_operator.analysis.windows import CANDIDATE, CONTROL, Sample

STABLE_FACTOR: Final = 2.0
"""Restarts per pod are too many only above this many times stable's."""
LONG_ENOUGH: Final = 60.0
"""Seconds that both arms must have been watched before the count says anything."""


@dataclass(frozen=True, slots=True)
class RestartEvidence:
    """Restarts since the trial began; those before a pod was first seen do not count."""

    limit: int
    seen: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Pod uid to its arm and its count at the last look."""
    restarts: tuple[int, int] = (0, 0)
    """Candidate and control."""
    pods: tuple[int, int] = (0, 0)
    """The most pods of either arm that were seen at a time."""
    since: float | None = None
    """Unix seconds from which both arms had pods."""
    watched_seconds: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether both arms were watched long enough."""
        return self.watched_seconds >= LONG_ENOUGH

    @property
    def failed(self) -> bool:
        """Whether the candidate restarted more often than allowed and than stable."""
        ours, theirs = self.restarts
        pods, their_pods = (max(count, 1) for count in self.pods)
        return ours > self.limit and ours / pods > STABLE_FACTOR * theirs / their_pods

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal value."""
        return {
            "limit": self.limit,
            "seen": {uid: [arm, count] for uid, (arm, count) in self.seen.items()},
            "restarts": self.restarts,
            "pods": self.pods,
            "since": self.since,
            "watchedSeconds": self.watched_seconds,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "RestartEvidence":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        return cls(
            limit=data["limit"],
            seen={uid: (arm, count) for uid, (arm, count) in data["seen"].items()},
            restarts=(data["restarts"][0], data["restarts"][1]),
            pods=(data["pods"][0], data["pods"][1]),
            since=data["since"],
            watched_seconds=data["watchedSeconds"],
        )


def observe(evidence: RestartEvidence, sample: Sample) -> RestartEvidence:
    """The evidence after one more look."""
    seen: dict[str, tuple[str, int]] = {}
    gained = {CANDIDATE: evidence.restarts[0], CONTROL: evidence.restarts[1]}
    count = {CANDIDATE: 0, CONTROL: 0}
    for pod in sample.pods:
        arm = sample.arm(pod.revision)
        # A group that crashed is made anew: its last moments are the only ones to count it in.
        if arm is None or (pod.terminating and not pod.is_group):
            continue
        count[arm] += not pod.terminating
        known = evidence.seen.get(pod.uid, (arm, pod.restarts))
        seen[pod.uid] = (arm, pod.restarts)
        end = pod.termination
        if end is None or end.reason != WorkerReason.HUB_UNREACHABLE:
            gained[arm] += max(pod.restarts - known[1], 0)
    since = evidence.since
    if since is None and all(count[arm] for arm in sample.arms):
        since = sample.at
    return replace(
        evidence,
        seen=seen,
        restarts=(gained[CANDIDATE], gained[CONTROL]),
        pods=(
            max(evidence.pods[0], count[CANDIDATE]),
            max(evidence.pods[1], count[CONTROL]),
        ),
        since=since,
        watched_seconds=0.0 if since is None else max(sample.at - since, 0.0),
    )
