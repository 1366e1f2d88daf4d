"""Which bounds hold when: time zones, midnight, clocks that change, overlaps."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative_api.v1alpha1 import Autoscaling
from speculative_operator.scaling.schedules import (
    bounds,
    findings,
    next_change,
    seconds_to_change,
)

HOUR = 3600


def an_autoscaling(*schedules: dict[str, Any], low: int = 2, high: int = 8) -> Autoscaling:
    return Autoscaling.model_validate(
        {
            "minReplicas": low,
            "maxReplicas": high,
            "metrics": [{"name": "RequestsWaiting", "targetPerPod": 4}],
            "schedules": list(schedules),
        }
    )


def a_schedule(
    start: str = "0 22 * * *",
    *,
    hours: float = 8,
    zone: str = "UTC",
    name: str = "s",
    **limits: int,
) -> dict[str, Any]:
    return {
        "name": name,
        "start": start,
        "timeZone": zone,
        "durationSeconds": int(hours * HOUR),
        **(limits or {"maxReplicas": 4}),
    }


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


NIGHT = an_autoscaling(a_schedule(zone="Asia/Shanghai", name="night"))
BERLIN = an_autoscaling(a_schedule("30 2 * * *", hours=1, zone="Europe/Berlin"))
WEEKDAYS = an_autoscaling(a_schedule("0 22 * * 1-5", hours=10))


@pytest.mark.parametrize(
    "autoscaling, moment, in_force",
    [
        pytest.param(NIGHT, "2026-01-02T21:59:59+08:00", False, id="a second before"),
        pytest.param(NIGHT, "2026-01-02T22:00:00+08:00", True, id="at its start"),
        pytest.param(NIGHT, "2026-01-03T05:59:59+08:00", True, id="across midnight"),
        pytest.param(NIGHT, "2026-01-03T06:00:00+08:00", False, id="at its end"),
        pytest.param(NIGHT, "2026-01-02T22:00:00+00:00", False, id="not in another zone's night"),
        pytest.param(WEEKDAYS, "2026-01-03T03:00:00Z", True, id="Friday's night on Saturday"),
        pytest.param(WEEKDAYS, "2026-01-03T23:00:00Z", False, id="not on Saturday"),
        # 2026-03-29: 02:00 to 03:00 does not exist in Berlin.
        pytest.param(BERLIN, "2026-03-29T00:59:59Z", False, id="before the gap"),
        pytest.param(BERLIN, "2026-03-29T01:00:00Z", True, id="a start in the gap: right after it"),
        pytest.param(BERLIN, "2026-03-29T01:59:59Z", True, id="as long as ever after the gap"),
        pytest.param(BERLIN, "2026-03-29T02:00:00Z", False, id="and no longer"),
        # 2026-10-25: 02:00 to 03:00 comes twice.
        pytest.param(BERLIN, "2026-10-25T00:30:00Z", True, id="the first 02:30"),
        pytest.param(BERLIN, "2026-10-25T01:30:00Z", False, id="not the second 02:30"),
    ],
)
def test_in_force(autoscaling: Autoscaling, moment: str, in_force: bool) -> None:
    found = bounds(autoscaling, at(moment))
    assert (found.maximum == 4) is in_force
    assert bool(found.schedule) is in_force


@pytest.mark.parametrize(
    "schedules, expected",
    [
        pytest.param([], (2, 8, ""), id="none"),
        pytest.param([{"maxReplicas": 4}], (2, 4, "0"), id="only a maximum"),
        pytest.param([{"maxReplicas": 1}], (1, 1, "0"), id="a maximum below the minimum"),
        pytest.param([{"minReplicas": 6}], (6, 8, "0"), id="only a minimum"),
        pytest.param([{"minReplicas": 9}], (9, 9, "0"), id="a minimum above the maximum"),
        pytest.param(
            [{"maxReplicas": 4}, {"minReplicas": 6}], (6, 8, "1"), id="the highest minimum holds"
        ),
        pytest.param(
            [{"minReplicas": 6}, {"maxReplicas": 4}], (6, 8, "0"), id="whatever the order"
        ),
        pytest.param(
            [{"minReplicas": 3, "maxReplicas": 4}, {"minReplicas": 3, "maxReplicas": 5}],
            (3, 5, "1"),
            id="of equal minima the highest maximum",
        ),
    ],
)
def test_overlaps(schedules: list[dict[str, int]], expected: tuple[int, int, str]) -> None:
    listed = [a_schedule(name=str(i), **limits) for i, limits in enumerate(schedules)]
    found = bounds(an_autoscaling(*listed), at("2026-01-02T23:00:00Z"))
    assert (found.minimum, found.maximum, found.schedule) == expected


LIMITS = st.fixed_dictionaries({"minReplicas": st.integers(1, 9)}) | st.fixed_dictionaries(
    {"maxReplicas": st.integers(1, 9)}
)
DAILY = st.builds(
    lambda minute, hour, hours, zone, limits: a_schedule(
        f"{minute} {hour} * * *", hours=hours, zone=zone, **limits
    ),
    st.integers(0, 59),
    st.integers(0, 23),
    st.integers(1, 30),
    st.sampled_from(["UTC", "Asia/Shanghai", "Europe/Berlin", "America/St_Johns"]),
    LIMITS,
)
MOMENTS = st.datetimes(datetime(2025, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))


@settings(deadline=None, max_examples=60)
@given(st.lists(DAILY, max_size=4), MOMENTS)
def test_bounds_never_cross_and_hold_until_the_next_change(
    schedules: list[dict[str, Any]], now: datetime
) -> None:
    named = [schedule | {"name": str(i)} for i, schedule in enumerate(schedules)]
    autoscaling = an_autoscaling(*named)
    found = bounds(autoscaling, now)
    assert 1 <= found.minimum <= found.maximum
    assert bounds(an_autoscaling(*reversed(named)), now) == found
    change = next_change(autoscaling, now)
    assert (change is None) == (not named)
    if change is not None:
        assert now < change <= now + timedelta(hours=26)
        middle = now + (change - now) / 2
        assert bounds(autoscaling, middle) == found
        assert seconds_to_change(autoscaling, now) > 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 59), st.integers(0, 23), st.integers(1, 24), MOMENTS)
def test_in_utc_a_day_is_a_day(minute: int, hour: int, hours: int, now: datetime) -> None:
    schedule = a_schedule(f"{minute} {hour} * * *", hours=hours)
    since = (now - now.replace(hour=hour, minute=minute, second=0, microsecond=0)) % timedelta(1)
    expected = since < timedelta(hours=hours)
    assert bool(bounds(an_autoscaling(schedule), now).schedule) is expected


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"timeZone": "Mars/Olympus"}, "timeZone 'Mars/Olympus' is not in the time zone database"),
        ({"timeZone": "/etc/passwd"}, "is not in the time zone database"),
        ({"start": "61 * * * *"}, "start '61 * * * *' is not a cron expression"),
        ({"start": "0 0 31 2 *"}, "is not a cron expression"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_refused_and_never_in_force(
    changes: dict[str, str], words: str
) -> None:
    autoscaling = an_autoscaling(a_schedule() | changes)
    (found,) = findings(autoscaling)
    assert words in found
    assert found.startswith("spec.autoscaling.schedules[s].")
    now = at("2026-01-02T23:00:00Z")
    assert bounds(autoscaling, now).schedule == ""
    assert next_change(autoscaling, now) is None


def test_good_schedules_have_no_findings() -> None:
    assert list(findings(NIGHT)) == []
