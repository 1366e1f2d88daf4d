"""What a download Job is told about models that nobody uses."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.golden import cases

from speculative_api.v1alpha1 import CleanUp
from speculative_operator.desired.preflight import preflight_jobs
from speculative_operator.settings import Settings

IN_USE = ("hf://org/other", "s3://models/llama")


def told(*, asked: CleanUp | None, in_use: tuple[str, ...] | None) -> Any:
    """The variable of the Job; None without one."""
    snapshot, decision = cases.world("download")
    rollout = snapshot.spec.rollout.model_copy(update={"clean_up": asked})
    spec = snapshot.spec.model_copy(update={"rollout": rollout})
    snapshot = replace(snapshot, spec=spec, models_in_use=in_use)
    (job,) = preflight_jobs(snapshot, decision, Settings(), metadata={})
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    said = {item["name"]: item.get("value", "") for item in variables}
    text = said.get("SPECULATIVE_CACHE_CLEAN_UP")
    return json.loads(text) if text is not None else None


def test_a_job_is_told_what_everybody_uses_and_for_how_long_to_wait() -> None:
    asked = CleanUp.model_validate({"mode": "Remove", "unusedHours": 24})
    assert told(asked=asked, in_use=IN_USE) == {
        "removes": True,
        "unusedHours": 24,
        "inUse": list(IN_USE),
    }
    assert told(asked=CleanUp(), in_use=IN_USE)["removes"] is False


@pytest.mark.parametrize(
    "asked,in_use",
    [(None, IN_USE), (CleanUp.model_validate({"mode": "Remove"}), None)],
    ids=["not asked", "not known who uses what"],
)
def test_a_job_that_is_told_nothing_removes_nothing(
    asked: CleanUp | None, in_use: tuple[str, ...] | None
) -> None:
    assert told(asked=asked, in_use=in_use) is None
