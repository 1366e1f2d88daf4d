"""What a restarted operator knows: all that was written, and what pods counted since."""

import base64
import json
from typing import Any

import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, Engine, Trial
from tests.builders import NAME, NAMESPACE, a_snapshot

from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis import Evidence
from speculative_operator.cluster.evidence import (
    EVIDENCE_KEY,
    LARGEST,
    config_map,
    look,
    packed,
    unpacked,
)
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import CONFIG_MAP
from speculative_operator.settings import Settings

CANARY = f"{CANDIDATE}/canary/2026-01-02T03:00:00Z"
KEY = (NAMESPACE, NAME)


class Kept(Trial):
    """A trial that is looked at through the store, as the operator does it."""

    identity = CANARY

    def __init__(self, **settings: Any) -> None:
        self.store = Store(CONFIG_MAP)
        self.known: Evidence | None = None
        super().__init__(**settings)

    def look(self, seconds: float = 10.0) -> Evidence:
        self.at += seconds
        self.known = self.evidence = look(
            self.known,
            self.sample(),
            trial=self.identity,
            analysis=self.analysis,
            trials=1,
            store=self.store,
            key=KEY,
        )
        return self.evidence

    def serve(self, looks: int) -> None:
        for index in range(looks):
            self.new.serve(4, 60, 120 + index % 3)
            self.old.serve(6, 90, 180 + index % 4)
            self.proxies[0].answer(CANDIDATE, good=4)
            self.proxies[0].answer(CONTROL, good=6, bad=index % 2)
            self.look()

    def write(self) -> None:
        self.store.put(config_map(a_snapshot(), self.evidence))

    def restart(self) -> None:
        self.known = None


def test_a_restart_right_after_a_write_changes_nothing() -> None:
    plain, restarted = Kept(), Kept()
    for _ in range(20):
        plain.serve(1)
        restarted.serve(1)
        restarted.write()
        restarted.restart()
    assert restarted.evidence == plain.evidence


def test_what_happened_since_the_last_write_is_counted_all_the_same() -> None:
    """At most one write interval goes by unwritten; only its blocks' ends are lost."""
    plain, restarted = Kept(), Kept()
    for trial in (plain, restarted):
        trial.serve(10)
        trial.write()
        trial.serve(int(Settings().evidence_write_seconds / 10))
    restarted.restart()
    for trial in (plain, restarted):
        trial.serve(5)
    assert restarted.evidence.gateways.candidate == plain.evidence.gateways.candidate
    assert restarted.evidence.acceptance.total == plain.evidence.acceptance.total
    assert restarted.evidence.errors.total == plain.evidence.errors.total
    assert plain.evidence.errors.blocks - restarted.evidence.errors.blocks == 3


def test_evidence_goes_on_over_another_weight() -> None:
    trial = Kept()
    trial.serve(10)
    before = trial.evidence.errors
    trial.weight = 80
    trial.serve(10)
    assert trial.evidence.errors.blocks > before.blocks
    assert trial.evidence.gateways.dropped == 1


@pytest.mark.parametrize("stage", ["shadow", "guard"])
def test_another_stage_has_evidence_of_its_own(stage: str) -> None:
    trial = Kept()
    trial.identity = f"{CANDIDATE}/{stage}/2026-01-02T03:00:00Z"
    trial.serve(10)
    trial.write()
    trial.identity = CANARY
    trial.restart()
    trial.look()
    assert trial.evidence.trial == CANARY
    assert trial.evidence.errors.blocks == 0


def test_evidence_with_many_pods_is_small() -> None:
    engines = [Engine(CANDIDATE, f"{i:08x}-0000-4000-8000-{i * 7919:012x}") for i in range(4)]
    engines += [Engine(CONTROL, f"{i:08x}-0000-4000-8000-{i * 7919:012x}") for i in range(9, 45)]
    latency = {"thresholdMilliseconds": 500}
    analysis = Analysis.model_validate(
        {
            "metrics": [
                {"name": "AcceptanceLength"},
                {"name": "ErrorRate"},
                {"name": "TimeToFirstToken", **latency},
                {"name": "InterTokenLatency", **latency},
                {"name": "EndToEndLatency", **latency},
            ]
        }
    )
    trial = Kept(engines=engines, analysis=analysis)
    for index in range(60):
        for engine in engines:
            engine.serve(5, 70, 100 + index % 7)
        trial.proxies[0].answer(CANDIDATE, good=9)
        trial.proxies[0].answer(CONTROL, good=40, bad=index % 17 == 0)
        trial.look()
    body = config_map(a_snapshot(), trial.evidence)
    assert len(body["binaryData"][EVIDENCE_KEY]) < 10_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="empty"),
        pytest.param("no base64", id="no base64"),
        pytest.param(base64.b64encode(b"{}").decode(), id="not packed"),
        pytest.param(packed("{}"), id="another shape"),
        pytest.param(packed("[" * 100_000), id="deep"),
        pytest.param(packed(" " * (LARGEST + 1)), id="a bomb"),
        pytest.param(packed(json.dumps({"schema": 1}))[:-8], id="cut"),
        pytest.param(None, id="absent"),
    ],
)
def test_what_can_not_be_read_begins_anew(data: str | None) -> None:
    trial = Kept()
    trial.serve(10)
    body = config_map(a_snapshot(), trial.evidence)
    body["binaryData"] = {} if data is None else {EVIDENCE_KEY: data}
    trial.store.put(body)
    trial.restart()
    trial.look()
    assert trial.evidence.errors.blocks == 0


def test_packing_is_the_same_every_time() -> None:
    assert packed("abc") == packed("abc")
    assert unpacked(packed("abc")) == "abc"
