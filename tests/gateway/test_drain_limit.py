"""How long a stopping gateway waits: the route's drain, within the pod's grace period."""

from pathlib import Path

import pytest

from speculative_gateway.settings import Settings
from speculative_gateway.storage import APPLIED_FILE
from speculative_gateway.supervisor import Supervisor


@pytest.mark.parametrize(
    ("applied", "seconds"),
    [
        ('{"drainSeconds": 60}', 65),
        ('{"drainSeconds": 0}', 5),
        ('{"drainSeconds": 99999}', 610),
        ('{"drainSeconds": null}', 610),
        ("{}", 610),
        ("[]", 610),
        ("{", 610),
        (None, 610),
    ],
    ids=[
        "route",
        "none",
        "beyond grace",
        "older operator",
        "absent",
        "no map",
        "garbled",
        "no file",
    ],
)
def test_drain_limit(tmp_path: Path, applied: str | None, seconds: float) -> None:
    if applied is not None:
        (tmp_path / APPLIED_FILE).write_text(applied)
    supervisor = Supervisor(Settings(directory=tmp_path, drain_seconds=620))
    assert supervisor.drain_limit() == seconds
