"""Times in status that somebody garbled: replaced by now, so that they count anew.

Status is the operator's memory, and anybody with the right may edit it. A time
that can't be read, or lies ahead, would break every pass or stop a clock for
ever. Counting anew is the careful answer: a pause begins again, a deadline too.
"""

from datetime import datetime, timedelta
from typing import Final, TypeVar

from pydantic import BaseModel

from speculative_api.v1alpha1 import SpeculativeDeploymentStatus
from speculative_operator.rollout.times import moment, stamp

AHEAD: Final = timedelta(minutes=5)
"""Further ahead than clocks differ: no time at all."""
_TIMES: Final = frozenset({"at", "since", "last_transition_time"})

_M = TypeVar("_M", bound=BaseModel)


def healed(status: SpeculativeDeploymentStatus, now: datetime) -> SpeculativeDeploymentStatus:
    """The status with every time readable and not in the future; the same object if it is."""
    return _healed(status, now)


def _healed(part: _M, now: datetime) -> _M:
    changes: dict[str, object] = {}
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            better: object = _healed(value, now)
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            items = [_healed(item, now) for item in value]
            same = all(a is b for a, b in zip(items, value, strict=True))
            better = value if same else items
        elif isinstance(value, str) and _is_time(name) and not _makes_sense(value, now):
            better = stamp(now)
        else:
            continue
        if better is not value:
            changes[name] = better
    return part.model_copy(update=changes) if changes else part


def _is_time(name: str) -> bool:
    return name in _TIMES or name.endswith(("_at", "_since"))


def _makes_sense(text: str, now: datetime) -> bool:
    try:
        return moment(text) <= now + AHEAD
    except (ValueError, TypeError, OverflowError):
        # TypeError: without a zone, which can't be compared.
        return False
