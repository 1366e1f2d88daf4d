"""Tables and a plot of the figures of `bench.analysis`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Figures(Protocol):
    """What a table needs of a scenario (`bench.analysis.Row`)."""

    @property
    def name(self) -> str: ...
    @property
    def runs(self) -> int: ...
    @property
    def rolled_back(self) -> int: ...
    @property
    def rolled_back_percent(self) -> float: ...
    @property
    def at_most_percent(self) -> float: ...
    @property
    def mean_seconds(self) -> float | None: ...
    @property
    def p95_seconds(self) -> float | None: ...
    @property
    def p95_interval(self) -> tuple[float | None, float | None]: ...
    @property
    def p95_requests(self) -> float | None: ...
    @property
    def target_p95_seconds(self) -> float | None: ...
    @property
    def target_false_percent(self) -> float | None: ...
    @property
    def seconds(self) -> tuple[float, ...]: ...


def tables(
    rows: Sequence[Figures], rules: Sequence[Mapping[str, Any]], cost: Mapping[str, float]
) -> str:
    """Markdown for the documents; what misses its target is bold."""
    lines = [
        "| not worse than its limits | runs | rolled back | at most (95 %) | target |",
        "| --- | --- | --- | --- | --- |",
    ]
    bad = [row for row in rows if not _is_within(row)]
    for row in rows:
        if _is_within(row):
            target, most = row.target_false_percent, f"{row.at_most_percent:.2g} %"
            if target is not None and row.at_most_percent > target:
                most = f"**{most}**"
            lines.append(
                f"| {row.name} | {row.runs} | {row.rolled_back} | {most} | "
                f"{'-' if target is None else f'{target:g} %'} |"
            )
    lines += [
        "",
        "| worse | runs | rolled back | mean s | p95 s (95 %) | target p95 | requests, p95 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in bad:
        lines.append(
            f"| {row.name} | {row.runs} | {row.rolled_back_percent:.3g} % | "
            f"{_number(row.mean_seconds)} | {_p95(row)} | {_number(row.target_p95_seconds, '-')} | "
            f"{_number(row.p95_requests)} |"
        )
    lines += [
        "",
        "| req/s | rule | A/A at .90 | limit | halved: mean / p95 s | .70 -> .55: mean / p95 s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for rule in rules:
        lines.append(
            f"| {rule['requests_per_second']:g} | {rule['rule']} | "
            f"{rule['false_at_90_percent']:.3g} % | {rule['tuned_limit']:.2f} | "
            f"{_detected(rule['halved'])} | {_detected(rule['.55'])} |"
        )
    lines += ["", *(f"{name}: {value:.3g}" for name, value in cost.items())]
    return "\n".join(lines) + "\n"


def _is_within(row: Figures) -> bool:
    return row.target_false_percent is not None or row.name.startswith("at ")


def _p95(row: Figures) -> str:
    low, high = row.p95_interval
    found = _number(row.p95_seconds)
    target = row.target_p95_seconds
    if target is not None and (row.p95_seconds is None or row.p95_seconds > target):
        found = f"**{found}**"
    return f"{found} ({_number(low)} - {_number(high)})"


def _number(value: float | None, absent: str = "> 1 h") -> str:
    return absent if value is None else f"{value:.0f}"


def _detected(times: Mapping[str, float | None]) -> str:
    found = times["found_percent"] or 0.0
    share = "" if found == 100 else f" ({found:.0f} %)"
    return f"{_number(times['mean_seconds'], '-')} / {_number(times['p95_seconds'], '-')}{share}"


def drawn(rows: Sequence[Figures], path: Path) -> None:
    """The share of runs rolled back by time, a line per scenario that is worse."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    for row in rows:
        if _is_within(row) or not row.seconds:
            continue
        times = np.sort(np.array(row.seconds))
        share = 100 * np.arange(1, len(times) + 1) / row.runs
        axes.step(times, share, where="post", label=row.name, linewidth=1)
    axes.set(xscale="log", xlabel="seconds", ylabel="rolled back, %", ylim=(0, 101))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=6)
    figure.savefig(path, dpi=120)
