"""The course of a trial's evidence as a PNG. Needs the extra `plot` (matplotlib)."""

from typing import TYPE_CHECKING, Any

from speculative_api.assessment import JudgedCourse, JudgedMetric, JudgedTrial

from .errors import CliError
from .resource import Resource

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "--plot needs matplotlib: pip install 'speculative-cli[plot]'"
WIDTH_INCHES, HEIGHT_INCHES = 9.0, 2.6
"""Of one metric's panel."""


def draw(found: JudgedTrial, course: JudgedCourse, resource: Resource, file: str) -> None:
    """Writes the picture.

    Raises:
        CliError: matplotlib is not installed, or the file can't be written.
    """
    figure = picture(found, course, resource)
    try:
        figure.savefig(file, format="png", dpi=110)
    except OSError as error:
        raise CliError(f"{file} can't be written: {error}") from error


def picture(found: JudgedTrial, course: JudgedCourse, resource: Resource) -> "Figure":
    """One panel for each metric: evidence over time, and what each verdict needs.

    Raises:
        CliError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CliError(MISSING) from error
    rows = max(len(found.metrics), 1)
    figure = Figure(figsize=(WIDTH_INCHES, 1 + HEIGHT_INCHES * rows), layout="constrained")
    verdict = resource.status.verdict
    decided = verdict is not None and verdict.hash == found.candidate
    outcome = f": {verdict.outcome} ({verdict.reason})" if verdict and decided else ""
    where = f"{resource.namespace}/{resource.name}"
    figure.suptitle(_plain(f"{where}  {found.candidate} as {found.stage}{outcome}"))
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for number, metric in enumerate(found.metrics):
        _panel(panels[number], metric, course, number)
    panels[-1].set_xlabel("seconds since the trial began")
    return figure


def _panel(panel: Any, metric: JudgedMetric, course: JudgedCourse, number: int) -> None:
    seconds = [point.at - course.began_at for point in course.points]
    # Less than none can't be drawn on a logarithmic scale, and says no more than none.
    worse = [max(point.worse[number], 1.0) for point in course.points]
    not_worse = [max(point.not_worse[number], 1.0) for point in course.points]
    panel.plot(seconds, worse, color="tab:red", marker=".", label="worse")
    panel.plot(seconds, not_worse, color="tab:green", marker=".", label="not worse")
    panel.axhline(metric.needed_worse, color="tab:red", linestyle="--", linewidth=1)
    panel.axhline(metric.needed_not_worse, color="tab:green", linestyle="--", linewidth=1)
    panel.set_yscale("log")
    panel.set_ylim(bottom=0.9)
    panel.set_ylabel("evidence (1 in)")
    dry = ", dry run" if metric.dry_run else ""
    outcome = metric.outcome if metric.measured else "not measured"
    panel.set_title(_plain(f"{metric.name}: {outcome}{dry}"), loc="left", fontsize="medium")
    panel.legend(loc="upper left", fontsize="small")


def _plain(text: str) -> str:
    """matplotlib reads what stands between dollar signs as mathematics."""
    return text.replace("$", r"\$")
