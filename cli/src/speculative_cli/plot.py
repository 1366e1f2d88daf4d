"""The course of a trial's evidence as a PNG. Needs the extra `plot` (matplotlib)."""

from typing import TYPE_CHECKING, Any

from speculative_api.assessment import JudgedCourse, JudgedMetric, JudgedShadow, JudgedTrial

from .errors import CliError
from .resource import Resource

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "--plot needs matplotlib: pip install 'speculative-cli[plot]'"
WIDTH_INCHES, HEIGHT_INCHES = 9.0, 2.6
"""Of one metric's panel."""


def draw(
    found: JudgedTrial,
    course: JudgedCourse,
    resource: Resource,
    file: str,
    *,
    shadow: JudgedShadow | None = None,
) -> None:
    """Writes the picture.

    Raises:
        CliError: matplotlib is not installed, or the file can't be written.
    """
    figure = picture(found, course, resource, shadow=shadow)
    try:
        figure.savefig(file, format="png", dpi=110)
    except OSError as error:
        raise CliError(f"{file} can't be written: {error}") from error


def picture(
    found: JudgedTrial,
    course: JudgedCourse,
    resource: Resource,
    *,
    shadow: JudgedShadow | None = None,
) -> "Figure":
    """One panel for each metric: evidence over time, and what each verdict needs; below them the
    percentage of requests. A shadow step before lies left of zero, on grey.

    Raises:
        CliError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CliError(MISSING) from error
    rows = max(len(found.metrics), 1) + 1
    figure = Figure(figsize=(WIDTH_INCHES, 1 + HEIGHT_INCHES * rows), layout="constrained")
    verdict = resource.status.verdict
    decided = verdict is not None and verdict.hash == found.candidate
    outcome = f": {verdict.outcome} ({verdict.reason})" if verdict and decided else ""
    where = f"{resource.namespace}/{resource.name}"
    stage = f"{found.candidate} as {found.stage}" + (f", {found.share}" if found.share else "")
    figure.suptitle(_plain(f"{where}  {stage}{outcome}"))
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for number, metric in enumerate(found.metrics):
        _panel(panels[number], metric, course, number)
        if shadow is not None:
            _shadow(panels[number], metric, shadow, course.began_at)
    _share(panels[-1], course, shadow)
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
    blocks = f", {metric.blocks} blocks" if metric.blocks else ""
    panel.set_title(_plain(f"{metric.name}: {outcome}{blocks}{dry}"), loc="left", fontsize="medium")
    panel.legend(loc="upper left", fontsize="small")


def _shadow(panel: Any, metric: JudgedMetric, shadow: JudgedShadow, zero: float) -> None:
    """The evidence by copies, which was another trial's."""
    course = shadow.course
    if metric.name not in course.metrics or not course.points:
        return
    number = course.metrics.index(metric.name)
    seconds = [point.at - zero for point in course.points]
    worse = [max(point.worse[number], 1.0) for point in course.points]
    not_worse = [max(point.not_worse[number], 1.0) for point in course.points]
    panel.plot(seconds, worse, color="tab:red", marker=".", linestyle=":")
    panel.plot(seconds, not_worse, color="tab:green", marker=".", linestyle=":")
    panel.axvspan(course.began_at - zero, seconds[-1], color="0.92", zorder=0)


def _share(panel: Any, course: JudgedCourse, shadow: JudgedShadow | None) -> None:
    """Percentages of requests, of copies with a dotted line."""
    before = [(shadow.course, ":", "copied")] if shadow is not None else []
    own = ":" if course.stage == "shadow" else "-"
    name = "copied" if course.stage == "shadow" else "of requests"
    for drawn, line, label in (*before, (course, own, name)):
        known = [(point.at - course.began_at, point.percent) for point in drawn.points]
        seconds = [at for at, percent in known if percent is not None]
        percents = [percent for _, percent in known if percent is not None]
        panel.plot(
            seconds,
            percents,
            drawstyle="steps-post",
            linestyle=line,
            color="tab:blue",
            marker=".",
            label=label,
        )
    panel.set_ylim(0, 105)
    panel.set_ylabel("percent")
    panel.set_title("share of requests", loc="left", fontsize="medium")
    panel.legend(loc="upper left", fontsize="small")


def _plain(text: str) -> str:
    """matplotlib reads what stands between dollar signs as mathematics."""
    return text.replace("$", r"\$")
