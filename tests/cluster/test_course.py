"""The course of a trial's evidence: what is kept of it, and how little that is."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import a_snapshot
from tests.cluster.evidence_of import a_failed_trial

from speculative_api.assessment import COURSE_KEY, COURSE_POINTS, JudgedCourse
from speculative_operator.analysis import Evidence
from speculative_operator.cluster.evidence import config_map
from speculative_operator.snapshot import Snapshot


def later(snapshot: Snapshot, seconds: float) -> Snapshot:
    return replace(snapshot, now=snapshot.now + timedelta(seconds=seconds))


def course_of(body: dict[str, Any]) -> JudgedCourse:
    return JudgedCourse.model_validate_json(body["data"][COURSE_KEY])


def test_each_write_adds_a_look_and_the_same_moment_adds_none() -> None:
    snapshot, evidence = a_snapshot(), a_failed_trial()
    body = config_map(snapshot, evidence)
    for seconds in (30, 30, 60):
        body = config_map(later(snapshot, seconds), evidence, body)
    began = snapshot.now.timestamp()
    assert [point.at - began for point in course_of(body).points] == [0, 30, 60]
    assert course_of(body).metrics == ("AcceptanceLength", "ErrorRate")


def test_another_trial_begins_its_own() -> None:
    snapshot, evidence = a_snapshot(), a_failed_trial()
    body = config_map(snapshot, evidence)
    other = replace(evidence, trial=evidence.trial.replace("canary", "guard"))
    assert len(course_of(config_map(later(snapshot, 30), other, body)).points) == 1


@pytest.mark.parametrize("said", ["", "[]", '{"points": 1}', None])
def test_a_garbled_one_begins_anew(said: str | None) -> None:
    before: dict[str, Any] = {"data": {COURSE_KEY: said} if said is not None else None}
    body = config_map(a_snapshot(), a_failed_trial(), before)
    assert len(course_of(body).points) == 1


def test_a_day_of_looks_stays_small_and_keeps_first_and_last() -> None:
    snapshot = a_snapshot()
    evidence: Evidence = a_failed_trial()
    body = config_map(snapshot, evidence)
    for number in range(1, 300):
        body = config_map(later(snapshot, 300 * number), evidence, body)
        assert len(course_of(body).points) <= COURSE_POINTS
    points = course_of(body).points
    began = snapshot.now.timestamp()
    assert (points[0].at - began, points[-1].at - began) == (0, 300 * 299)
    assert len(points) > COURSE_POINTS // 2
    size = len(json.dumps(body["data"]))
    assert size < 10_000, f"{size} bytes"
