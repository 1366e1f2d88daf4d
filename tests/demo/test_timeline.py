"""From looks to a timeline, and what the demo takes as evidence."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.demo import documents
from e2e.demo.errors import DemoError
from e2e.demo.lanes import Counters, acceptance_length, counters_of
from e2e.demo.phases import _require_same
from e2e.demo.report import DemoReport
from e2e.demo.terminal import Display
from e2e.demo.timeline import Timeline
from e2e.demo.world import PodView, World, pod_view

from speculative_api.gateway import ClusterState, GatewayState
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec, SpeculativeDeploymentStatus
from speculative_api.worker import Digest

BAD = "a01c22bb33"
START = "2026-11-30T10:00:00Z"
CANARY = {"revision": 2, "hash": BAD, "startedAt": START, "stepStartedAt": START}
VERDICT = {"hash": BAD, "reason": "AcceptanceWorse", "message": "1.02 < 2.56", "at": START}


def pod(name: str = "p", *, uid: str = "u", restarts: int = 0, revision: str = BAD) -> PodView:
    return PodView(name, uid, revision, "worker", True, False, restarts)


def world(
    at: float, status: dict[str, Any], *, weight: int | None = None, pods: tuple[PodView, ...] = ()
) -> World:
    clusters = (
        () if weight is None else (ClusterState(hash=BAD, weight=weight, endpoints=1, active=0),)
    )
    gateway = GatewayState(envoy_started_at=1, sampled_at=2, ready=True, clusters=clusters)
    parsed = SpeculativeDeploymentStatus.model_validate(status)
    return World(at, 1, parsed, pods=pods, gateways=(gateway,))


def test_a_rollback_is_told_in_its_order_and_each_thing_once() -> None:
    timeline = Timeline()
    looks = [
        world(1, {"canary": CANARY}),
        world(2, {"canary": CANARY | {"step": 0}}, weight=0, pods=(pod(),)),
        world(3, {"canary": CANARY | {"step": 1, "observedWeight": 50}}, weight=50, pods=(pod(),)),
        world(4, {"verdict": VERDICT | {"outcome": "RolledBack"}}, weight=50, pods=(pod(),)),
        world(5, {"verdict": VERDICT | {"outcome": "RolledBack"}}, weight=0, pods=(pod(),)),
        world(6, {"verdict": VERDICT | {"outcome": "RolledBack"}}),
    ]
    for look in looks:
        timeline.observe(look, BAD)
    assert [(mark.at, mark.key) for mark in timeline.marks] == [
        (1, "started"),
        (2, "ready"),
        (3, "first weight"),
        (4, "verdict"),
        (5, "weight zero in Envoy"),
        (6, "canary gone"),
    ]
    assert "1.02 < 2.56" in timeline.lines()[3]


def test_nothing_is_told_of_a_revision_before_it_started() -> None:
    timeline = Timeline()
    assert timeline.observe(world(1, {}, weight=0), BAD) == []


def test_a_promotion_and_its_guard_are_told() -> None:
    timeline = Timeline()
    timeline.observe(world(1, {"canary": CANARY}), BAD)
    promoted = VERDICT | {"reason": "Promoted"}
    timeline.observe(world(2, {"verdict": promoted | {"outcome": "Promoted"}}, pods=(pod(),)), BAD)
    timeline.observe(world(3, {"verdict": promoted | {"outcome": "GuardPassed"}}), BAD)
    told = [mark.key for mark in timeline.marks]
    assert told == ["started", "promoted", "guard over", "canary gone"]


@pytest.mark.parametrize(
    "after",
    [(), (pod(uid="other"),), (pod(restarts=1),), (pod("q"),)],
    ids=["gone", "replaced", "restarted", "another name"],
)
def test_changed_pods_are_noticed(after: tuple[PodView, ...]) -> None:
    with pytest.raises(DemoError, match="changed"):
        _require_same((pod(),), after, "the pods")


def test_pods_that_joined_are_no_change() -> None:
    _require_same((pod(),), (pod(), pod("q")), "the pods")


def test_a_raw_pod_is_read() -> None:
    raw = {
        "metadata": {
            "name": "p",
            "uid": "u",
            "labels": {"speculative.dev/revision": BAD, "speculative.dev/component": "worker"},
            "deletionTimestamp": START,
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
            ],
        },
    }
    assert pod_view(raw) == PodView("p", "u", BAD, "worker", True, True, 2, "CrashLoopBackOff")


def digest(**counts: int | None) -> Digest:
    return Digest(ready=True, engine_started_at=1, sampled_at=2, method="NGram", **counts)


def test_acceptance_length_is_tokens_per_step_between_two_readings() -> None:
    before = counters_of([digest(generated_tokens=100, accepted_tokens=40, draft_tokens=80)])
    after = counters_of([digest(generated_tokens=400, accepted_tokens=240, draft_tokens=300)])
    assert acceptance_length(before, after) == 3.0


def test_plain_decoding_gives_one_token_per_step() -> None:
    after = counters_of([digest(generated_tokens=50)])
    assert acceptance_length(Counters(0, 0, 0), after) == 1.0


def test_absent_counts_are_no_figures() -> None:
    with pytest.raises(DemoError, match="no count of generated tokens"):
        counters_of([digest()])
    with pytest.raises(DemoError, match="no decoding step"):
        acceptance_length(Counters(5, 0, 0), Counters(5, 0, 0))


def example() -> dict[str, Any]:
    text = (Path(__file__).parents[2] / "examples" / "smollm2.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return documents.located(found, "/srv/models")


def test_the_example_is_moved_to_the_models_of_the_node() -> None:
    assert example()["spec"]["target"]["model"] == "file:///srv/models/SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("change", "method"),
    [
        (lambda d: d, "NGram"),
        (documents.without_native, "NGram"),
        (lambda d: documents.with_bad_draft(d, "/srv/models"), "DraftModel"),
        (documents.with_longer_drafts, "NGram"),
        (lambda d: documents.rehearsed(d, "image"), "NGram"),
    ],
)
def test_every_revision_of_the_demo_fits_the_types(change: Any, method: str) -> None:
    before = example()
    changed = change(before)
    parsed = SpeculativeDeploymentSpec.model_validate(changed["spec"])
    assert parsed.speculation.method == method
    assert before == example()


def test_a_rehearsed_bad_draft_is_a_simulated_one() -> None:
    bad = documents.with_bad_draft(documents.rehearsed(example(), "image"), "/srv/models")
    parsed = SpeculativeDeploymentSpec.model_validate(bad["spec"])
    assert parsed.engine.simulation is not None
    assert parsed.engine.simulation.acceptance_percent == 3
    assert parsed.speculation.method == "NGram"


def test_a_log_gets_plain_lines_and_the_phases_their_times() -> None:
    out = io.StringIO()
    display = Display(out)
    with display.phase("canary"):
        display.say("applied")
    assert "\r" not in out.getvalue()
    assert [title for title, _ in display.phases] == ["canary"]
    assert "== canary" in out.getvalue()


def test_the_report_is_json_whatever_was_reached(tmp_path: Path) -> None:
    report = DemoReport(failure="no cluster")
    report.timeline.add(61, "applied", "applied")
    report.write(tmp_path / "build" / "report.json")
    found = json.loads((tmp_path / "build" / "report.json").read_text())
    assert found["ok"] is False
    assert found["timeline"] == [{"seconds": 61, "event": "applied", "text": "applied"}]
    assert "  1:01" in "\n".join(report.lines())
