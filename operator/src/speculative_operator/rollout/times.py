"""Timestamps in status: RFC 3339 in UTC with milliseconds, written once per transition."""

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """The text form of a moment."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """The moment that a stamp names.

    Raises:
        ValueError: when somebody else wrote something that is no timestamp.
    """
    return datetime.fromisoformat(text)


def seconds_since(text: str | None, now: datetime) -> float:
    """Seconds from a stamp to now; 0 without one and never negative (clocks differ)."""
    return max(0.0, (now - moment(text)).total_seconds()) if text else 0.0
