"""What a pass decided: the output of `rollout.decide`, the input of `desired` and `publish`.

Pure data. `status` is the whole next status; when `transition` is true it is
written, with a resourceVersion precondition, before any effect.
"""

from dataclasses import dataclass
from typing import Final, Literal

from speculative_api.conditions import Reason
from speculative_api.v1alpha1 import SpeculativeDeploymentStatus


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event about the resource, emitted once, after its transition was written."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Scale:
    """Pods wanted for one revision, and the track shown on its Deployment."""

    hash: str
    track: Literal["stable", "canary", "previous", "native", "retiring", "failed"]
    replicas: int


@dataclass(frozen=True, slots=True)
class Share:
    """One line of the route: a revision and its percent of the accelerated lane."""

    hash: str
    weight: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Percent of the accelerated lane's requests that are copied to a revision of weight 0."""

    hash: str
    percent: int
    most: int | None
    """Copies in flight over all gateways; None: as many as in the route before."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The next status and what follows from it.

    `scales` lists every revision that keeps a Deployment (native is added by
    `desired` from the stable words); `shares` lists stable first and sums to
    100, or is empty while there is no revision at all; `copies` are for one of
    them.
    """

    status: SpeculativeDeploymentStatus
    transition: bool
    scales: tuple[Scale, ...] = ()
    shares: tuple[Share, ...] = ()
    copies: Copies | None = None
    events: tuple[Event, ...] = ()
    next_look_seconds: float = 60.0
    judged: tuple[str, str] | None = None
    """(candidate hash, control hash) whose evidence is to be collected; None: nobody is judged."""


class Outcome:
    """The four outcomes of a metric; absent data is never a pass."""

    PASSED = "Passed"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"
    ERRORED = "Errored"


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """One metric's evidence so far.

    `worse` and `not_worse` are e-values (1 = no evidence); `measured` is false
    while no block has both arms. `outside_limit` says that the plain figures
    are beyond the limit, whatever they prove: few blocks prove nothing, but
    time alone must not advance a canary that looks like that.
    """

    name: str
    outcome: str
    reason: Reason
    worse: float
    not_worse: float
    needed_worse: float
    needed_not_worse: float
    measured: bool
    message: str
    outside_limit: bool = False
    dry_run: bool = False
    """Shown only: nothing is decided by it."""
    blocks: int = 0
    """What the evidence is made of; 0 for what is judged without blocks."""
    holds: bool = False
    """Time must not advance a canary while this is so: what was asked for is not known."""


BASELINE_BLOCKS: Final = 60
"""Blocks that make a baseline: `baselineSeconds` is so many times a block."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Accepted tokens and decoding steps of stable's first hours.

    `noise` is the variance of a block's rate, times its steps, as it showed
    from one block to the next.
    """

    accepted: int
    steps: int
    noise: float

    @property
    def rate(self) -> float:
        """Accepted tokens per step."""
        return self.accepted / self.steps


@dataclass(frozen=True, slots=True)
class DriftQuestion:
    """What is to be known of stable: its baseline, or whether it is still at it.

    Evidence belongs to one `identity`, and to nothing that differs in any field.
    """

    identity: str
    revision: str
    block_seconds: float
    least_share: float
    """Of the baseline's rate, from which on nothing is worse."""
    baseline: Baseline | None = None
    """None: it is to be measured."""


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """What the evidence for one question says now; `worse` and `not_worse` are e-values."""

    identity: str
    blocks: int = 0
    baseline: Baseline | None = None
    """Complete now, where that was the question."""
    percent: float | None = None
    """Of the baseline's rate, over the last blocks; None: not measured."""
    worse: float = 1.0
    not_worse: float = 1.0
    is_drifted: bool = False
    is_steady: bool = False
    """Shown to be within the limit."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """All metrics of a trial at one moment; between trials, how stable is."""

    metrics: tuple[MetricVerdict, ...] = ()
    candidate_requests: int = 0
    all_fail: str = ""
    """Why the candidate is a catastrophe: so many requests in a row failed; empty: it is none."""
    drift: DriftFinding | None = None

    @property
    def acted_on(self) -> tuple[MetricVerdict, ...]:
        """The metrics that decide something."""
        return tuple(metric for metric in self.metrics if not metric.dry_run)

    @property
    def failed(self) -> MetricVerdict | None:
        """The first metric with enough evidence of being worse."""
        return next((m for m in self.acted_on if m.outcome == Outcome.FAILED), None)

    @property
    def all_passed(self) -> bool:
        """Whether every metric that decides something showed 'not worse'."""
        deciding = self.acted_on
        return bool(deciding) and all(m.outcome == Outcome.PASSED for m in deciding)
