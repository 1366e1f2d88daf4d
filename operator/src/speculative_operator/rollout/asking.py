"""What a person asks of a trial, by annotation."""

from collections.abc import Mapping

from speculative_api.labels import ABORT
from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.snapshot import Snapshot


def present(snapshot: Snapshot, annotation: str) -> str | None:
    """The value of an annotation as far as it is remembered; None if absent or empty."""
    return _value(snapshot.annotations, annotation)


def asked_for(snapshot: Snapshot, annotation: str, *, before: str | None) -> str | None:
    """What a person asks of this trial; a value from before it began was for another one."""
    return _asked(snapshot.annotations, annotation, before=before)


def is_abort_waiting(status: SpeculativeDeploymentStatus, annotations: Mapping[str, str]) -> bool:
    """Whether a person asks for this canary to be taken out, and it is still there."""
    asked = _asked(annotations, ABORT, before=status.observed_abort)
    return status.canary is not None and asked == status.canary.hash


def _asked(annotations: Mapping[str, str], annotation: str, *, before: str | None) -> str | None:
    value = _value(annotations, annotation)
    return None if value is None or value == before else value.partition("@")[0]


def _value(annotations: Mapping[str, str], annotation: str) -> str | None:
    return annotations.get(annotation, "")[:256] or None
