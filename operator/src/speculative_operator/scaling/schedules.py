"""Bounds of the number of pods at a moment: the schedules in force, and when they change.

Comes in: the autoscaling block and now. Goes out: `Bounds`. Called by `desired`,
`rollout.status` and the checks of a spec.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from speculative_api.v1alpha1 import Autoscaling, Schedule


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most pods now; `schedule` names the one in force, empty for none."""

    minimum: int
    maximum: int
    schedule: str = ""
    until: datetime | None = None
    """When the schedule in force ends (UTC)."""


def bounds(autoscaling: Autoscaling, now: datetime) -> Bounds:
    """What holds now. A schedule that can't be read (see `findings`) is never in force."""
    plain = Bounds(autoscaling.min_replicas, autoscaling.max_replicas)
    in_force = [
        _bounds(schedule, plain, began)
        for schedule in autoscaling.schedules
        if (began := began_at(schedule, now)) is not None
    ]
    # The name last, so that the order of the list never matters.
    return max(in_force, key=lambda b: (b.minimum, b.maximum, b.schedule), default=plain)


def _bounds(schedule: Schedule, plain: Bounds, began: datetime) -> Bounds:
    """One bound alone moves the other one along where they would cross."""
    low, high = schedule.min_replicas, schedule.max_replicas
    minimum = low if low is not None else min(plain.minimum, high or plain.maximum)
    maximum = high if high is not None else max(plain.maximum, minimum)
    until = began + timedelta(seconds=schedule.duration_seconds)
    return Bounds(minimum, maximum, schedule.name, until)


def began_at(schedule: Schedule, now: datetime) -> datetime | None:
    """When the present turn of a schedule began (UTC); None while it is not in force.

    Where clocks go forward, a start that does not exist that day counts at the
    first moment after the gap; where they go back, at its first occurrence
    (Debian's cron, which cronsim follows).
    """
    try:
        zone = ZoneInfo(schedule.time_zone)
        # From the minute after now, since the search begins strictly before its start.
        after = (now.astimezone(UTC) + timedelta(minutes=1)).astimezone(zone)
        last = next(CronSim(schedule.start, after, reverse=True)).astimezone(UTC)
        while last > now:
            last = next(CronSim(schedule.start, last.astimezone(zone), reverse=True))
            last = last.astimezone(UTC)
    except (CronSimError, ZoneInfoNotFoundError, ValueError, StopIteration, OverflowError):
        return None
    return last if now < last + timedelta(seconds=schedule.duration_seconds) else None


def next_change(autoscaling: Autoscaling, now: datetime) -> datetime | None:
    """The next moment at which a schedule begins or ends (UTC); None without schedules."""
    return min((at for s in autoscaling.schedules for at in _changes(s, now)), default=None)


def seconds_to_change(autoscaling: Autoscaling | None, now: datetime) -> float:
    """Seconds until `next_change`; infinite where nothing ever changes."""
    at = next_change(autoscaling, now) if autoscaling is not None else None
    return (at - now).total_seconds() if at is not None else float("inf")


def _changes(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    began = began_at(schedule, now)
    if began is not None:
        yield began + timedelta(seconds=schedule.duration_seconds)
    try:
        zone = ZoneInfo(schedule.time_zone)
        yield next(CronSim(schedule.start, now.astimezone(zone))).astimezone(UTC)
    except (CronSimError, ZoneInfoNotFoundError, ValueError, StopIteration, OverflowError):
        return


def findings(autoscaling: Autoscaling) -> Iterator[str]:
    """What is wrong with the schedules, as far as the schema can't say it."""
    for schedule in autoscaling.schedules:
        field = f"spec.autoscaling.schedules[{schedule.name}]"
        try:
            zone: ZoneInfo | None = ZoneInfo(schedule.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            zone = None
        if zone is None:
            yield (
                f"{field}.timeZone {schedule.time_zone!r} is not in the time zone database: "
                "write it as in Europe/Berlin or UTC"
            )
        try:
            next(CronSim(schedule.start, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, ValueError, StopIteration, OverflowError) as error:
            why = str(error) or "no such moment"
            yield f"{field}.start {schedule.start!r} is not a cron expression: {why}"
