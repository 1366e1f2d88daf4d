"""What the operator writes about the evidence of a trial, for people to look at.

It stands in ConfigMap `<name>-evidence` under `ASSESSMENT_KEY`, as JSON, next to
the operator's own memory of the trial, and stays until the next trial begins.
Unknown fields are ignored on reading, so that either side may be the older.
"""

import math
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

ASSESSMENT_KEY: Final = "assessment.json"
COURSE_KEY: Final = "course.json"
SHADOW_KEY: Final = "shadow.json"
"""What the shadow step of the candidate that now has users came to."""
COURSE_POINTS: Final = 64
"""Points kept of a trial's course: some kilobytes, whatever its length."""
SHOWN_AT_MOST: Final = 1_000_000
"""Beyond this a model's assumptions, not chance, are the weakest link."""

Evidence = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""An e-value: 1 is none; a candidate within its limit reaches E in at most 1 of E rollouts."""


class _Lenient(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )


class JudgedMetric(_Lenient):
    """One metric's evidence at that moment."""

    name: str
    outcome: Literal["Passed", "Failed", "Inconclusive", "Errored"]
    reason: str
    worse: Evidence
    not_worse: Evidence
    needed_worse: Evidence
    needed_not_worse: Evidence
    measured: bool
    blocks: int = Field(default=0, ge=0)
    """Blocks that the evidence is made of; 0: none, or a metric that is judged without."""
    outside_limit: bool = False
    """The plain figures are beyond the limit, whatever they prove."""
    dry_run: bool = False
    """Shown only: nothing is decided by it."""
    message: str
    """With the arithmetic."""


class JudgedTrial(_Lenient):
    """A trial's evidence at one moment."""

    schema_version: Literal[1] = 1
    candidate: str
    """Hash of the revision that is judged."""
    stage: str
    """`shadow` while only copies of requests are answered, `canary` until promotion, then
    `guard`. Each has evidence of its own."""
    began_at: Evidence
    """Unix seconds."""
    at: Evidence
    """Unix seconds of the last look."""
    candidate_requests: int = Field(ge=0)
    percent: int | None = Field(default=None, ge=0, le=100)
    """Of users' requests, or with stage `shadow` of those that were copied, as the gateways used
    it at the last look; None: an older operator did not say."""
    metrics: tuple[JudgedMetric, ...]

    @property
    def share(self) -> str:
        """`5 % of requests`, or `10 % copied`; empty where it is not known."""
        return share(self.percent, self.stage)


class CoursePoint(_Lenient):
    """One look at a trial, of those that were written."""

    at: Evidence
    """Unix seconds."""
    candidate_requests: int = Field(ge=0)
    """Answered since the trial began."""
    percent: int | None = Field(default=None, ge=0, le=100)
    """As of the trial, at that look."""
    worse: tuple[Evidence, ...]
    """By metric, in the order of the course's names."""
    not_worse: tuple[Evidence, ...]


class JudgedCourse(_Lenient):
    """How a trial's evidence came about; points far back are fewer, the last one is the newest."""

    schema_version: Literal[1] = 1
    candidate: str
    stage: str
    began_at: Evidence
    metrics: tuple[str, ...]
    points: tuple[CoursePoint, ...]

    def followed_by(self, point: CoursePoint) -> "JudgedCourse":
        """With one more point; a point of the same time takes the place of the last."""
        before = [known for known in self.points if known.at < point.at]
        if len(before) >= COURSE_POINTS:
            before = before[::2]
        return self.model_copy(update={"points": (*before, point)})


class JudgedShadow(_Lenient):
    """A shadow step's evidence when it ended, which decides nothing any more."""

    schema_version: Literal[1] = 1
    trial: JudgedTrial
    course: JudgedCourse


def share(percent: int | None, stage: str) -> str:
    """What percentage of what a candidate had; empty where it is not known."""
    if percent is None:
        return ""
    return f"{percent} % copied" if stage == "shadow" else f"{percent} % of requests"


def one_in(evidence: float) -> str:
    """`1 in 4,000`: two leading digits, rounded down, between 1 and 1,000,000."""
    whole = math.floor(min(max(evidence, 1.0), SHOWN_AT_MOST))
    unit = 10 ** max(len(str(whole)) - 2, 0)
    return f"1 in {whole // unit * unit:,}"
