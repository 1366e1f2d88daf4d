"""What a person asks of a trial, by annotation."""

from speculative_operator.snapshot import Snapshot


def present(snapshot: Snapshot, annotation: str) -> str | None:
    """The value of an annotation as far as it is remembered; None if absent or empty."""
    return snapshot.annotations.get(annotation, "")[:256] or None


def asked_for(snapshot: Snapshot, annotation: str, *, before: str | None) -> str | None:
    """What a person asks of this trial; a value from before it began was for another one."""
    value = present(snapshot, annotation)
    return None if value is None or value == before else value.partition("@")[0]
