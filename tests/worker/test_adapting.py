"""Adaptive draft length from the spec to the engine's command line, and back into the digest."""

import json
import os
import subprocess
import sys
import tempfile

import pytest
from tests.worker.a_worker import a_config

from speculative_api.adaptive import (
    ONLINE_METHODS,
    ONLINE_REFUSED,
    SCHEDULE_KEY,
    adaptive_findings,
    schedule_of,
)
from speculative_api.engine_request import EngineRequest, request_of
from speculative_api.v1alpha1 import Method, SpeculativeDeploymentSpec
from speculative_api.validation import problems
from speculative_operator.desired.revision import parse, words_of
from speculative_operator.desired.workers import worker_config
from speculative_worker.adapting import Adapting, prepare, state_of
from speculative_worker.arguments import engine_command
from speculative_worker.exposition import exposition
from speculative_worker.probes import digest_of
from speculative_worker.settings import Settings
from speculative_worker.state import Phase, WorkerState

RANGES = [
    {"upToBatchSize": 8, "numSpeculativeTokens": 4},
    {"upToBatchSize": 64, "numSpeculativeTokens": 0},
]


def a_spec(adaptive=None, **speculation):
    words = {"method": "NGram", "numSpeculativeTokens": 4, **speculation}
    if adaptive is not None:
        words["adaptive"] = adaptive
    return {
        "target": {"model": "hf://example/target", "servedModelName": "chat"},
        "speculation": words,
    }


def manifest(spec):
    return {
        "apiVersion": "speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "chat"},
        "spec": spec,
    }


def command_of(spec, draft_path=None):
    part = parse(words_of(SpeculativeDeploymentSpec.model_validate(spec)).canonical)
    config = worker_config(part, default_model_name="chat")
    return engine_command(config, target_path="/m", draft_path=draft_path, port=8000)


def speculative_of(command):
    return json.loads(command[command.index("--speculative-config") + 1])


def test_a_schedule_reaches_the_engine_as_ranges_without_gaps():
    command = command_of(a_spec({"mode": "BatchSize", "schedule": RANGES}))
    assert speculative_of(command)[SCHEDULE_KEY] == [[1, 8, 4], [9, 64, 0]]
    assert "--scheduler-cls" not in command


@pytest.mark.parametrize(
    "method, draft, scheduler",
    [
        ("NGram", None, "speculative_adaptive.scheduler.Adaptive"),
        ("DraftModel", "hf://example/draft", "speculative_adaptive.scheduler.AdaptiveAsync"),
    ],
)
def test_online_brings_our_scheduler_and_a_schedule_with_every_length(method, draft, scheduler):
    extra = {"draft": {"model": draft}} if draft else {}
    spec = a_spec({"mode": "Online"}, method=method, **extra)
    command = command_of(spec, draft_path="/d" if draft else None)
    assert command[command.index("--scheduler-cls") + 1] == scheduler
    ranges = [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 4, 3], [5, 64, 4]]
    assert speculative_of(command)[SCHEDULE_KEY] == ranges


@pytest.mark.parametrize("adaptive", [None, {}, {"mode": "Off"}])
def test_off_is_as_before_and_has_the_same_hash(adaptive):
    assert SCHEDULE_KEY not in speculative_of(command_of(a_spec(adaptive)))
    plain, spec = (
        words_of(SpeculativeDeploymentSpec.model_validate(a_spec(each))).hash
        for each in (None, adaptive)
    )
    assert spec == plain


@pytest.mark.parametrize(
    "adaptive, speculation, message",
    [
        pytest.param({"mode": "BatchSize"}, {}, "go together", id="no schedule"),
        pytest.param({"mode": "Online", "schedule": RANGES}, {}, "go together", id="a schedule"),
        pytest.param(
            {"mode": "BatchSize", "schedule": RANGES, "minAcceptancePercent": 5},
            {},
            "belongs to mode Online",
            id="a threshold without Online",
        ),
        pytest.param(
            {"mode": "Online"},
            {"method": "None", "numSpeculativeTokens": None},
            "drafts nothing",
            id="no method",
        ),
        pytest.param(
            {"mode": "BatchSize", "schedule": RANGES[:1]}, {}, "ends at batch size 8", id="short"
        ),
        pytest.param(
            {"mode": "BatchSize", "schedule": [RANGES[1], RANGES[0]]},
            {},
            "must be above 64",
            id="falling",
        ),
        pytest.param(
            {
                "mode": "BatchSize",
                "schedule": [{"upToBatchSize": 64, "numSpeculativeTokens": 5}],
            },
            {},
            "is above speculation.numSpeculativeTokens 4",
            id="longer than prepared for",
        ),
        pytest.param(
            {"mode": "Online"},
            {"extra": {SCHEDULE_KEY: [[1, 64, 4]]}},
            "says this already",
            id="said twice",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(adaptive, speculation, message):
    found = problems(manifest(a_spec(adaptive, **speculation)))
    assert any(message in problem.message for problem in found if problem.severity == "error")


@pytest.mark.parametrize(
    "changes, message",
    [
        pytest.param({"data_parallel_size": 2}, "drops the schedule", id="data parallel"),
        pytest.param({"pipeline_parallel_size": 2}, "several steps", id="pipeline parallel"),
        pytest.param({"version": "0.31.0"}, "engine.version 0.32.0", id="another version"),
        pytest.param({"version": "0.18.0"}, "use 0.24 or newer", id="before schedules"),
        pytest.param({"extra": {"parallel_drafting": True}}, "does not go with", id="one pass"),
        pytest.param(
            {"extra_args": ("--no-async-scheduling",)}, "sets the scheduler", id="scheduling"
        ),
        pytest.param({"extra_args": ("--scheduler_cls=x.Y",)}, "sets the scheduler", id="another"),
    ],
)
def test_online_is_refused_where_it_cannot_work(changes, message):
    good = {"method": "DraftModel", "num_speculative_tokens": 4, "adaptive_mode": "Online"}
    assert adaptive_findings(EngineRequest(**good)) == []
    found = adaptive_findings(EngineRequest(**good | changes))
    assert any(message in each for each in found)


def test_every_method_either_works_online_or_is_refused_with_a_reason():
    drafting = {method.value for method in Method} - {"None"}
    assert {*ONLINE_METHODS, *ONLINE_REFUSED} == drafting
    for method, reason in ONLINE_REFUSED.items():
        found = adaptive_findings(
            EngineRequest(method=method, num_speculative_tokens=4, adaptive_mode="Online")
        )
        assert any(reason in each for each in found)


@pytest.mark.parametrize("method", ["DFlash", "DSpark", "Custom"])
def test_a_schedule_is_refused_for_methods_that_do_not_follow_one(method):
    request = EngineRequest(
        method=method,
        num_speculative_tokens=4,
        adaptive_mode="BatchSize",
        adaptive_schedule=((64, 2),),
    )
    assert any(method in each for each in adaptive_findings(request))


@pytest.mark.parametrize(
    "tokens, batch, expected",
    [
        (2, 4, [[1, 1, 0], [2, 2, 1], [3, 4, 2]]),
        (4, 3, [[1, 1, 2], [2, 2, 3], [3, 3, 4]]),
        (4, 1, [[1, 1, 4]]),
    ],
)
def test_the_beginning_of_online_covers_the_largest_batch(tokens, batch, expected):
    request = EngineRequest(
        num_speculative_tokens=tokens, max_num_seqs=batch, adaptive_mode="Online"
    )
    assert schedule_of(request) == expected


def test_the_request_of_a_spec_and_of_a_worker_are_the_same():
    spec = SpeculativeDeploymentSpec.model_validate(
        a_spec({"mode": "BatchSize", "schedule": RANGES})
    )
    assert request_of(spec).adaptive_schedule == ((8, 4), (64, 0))
    assert request_of(spec).adaptive_mode == "BatchSize"


def online(**changes):
    adaptive = {"mode": "Online", "minAcceptancePercent": 30}
    speculation = {"method": "NGram", "numSpeculativeTokens": 4, "adaptive": adaptive}
    return a_config(speculation=speculation, **changes)


def test_the_engine_finds_our_package_and_nothing_else_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    adapting = prepare(online())
    environment = adapting.environment(online(), {**os.environ, "PYTHONPATH": "/elsewhere"})
    assert environment["PYTHONPATH"] == f"{adapting.folder}{os.pathsep}/elsewhere"
    assert json.loads(environment["SPECULATIVE_ADAPTIVE"])["minAcceptancePercent"] == 30
    program = (
        "import sys; import speculative_adaptive.hook; "
        "print(sorted(name for name in sys.modules if name.startswith('speculative_worker')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_other_modes_need_no_folder():
    assert prepare(a_config()) is None


@pytest.mark.parametrize(
    "text, tokens, gain",
    [
        pytest.param('{"tokens": 3, "gainPercent": 41, "zeroSeconds": 0}', 3, 41, id="good"),
        pytest.param("", None, None, id="half written"),
        pytest.param("[1]", None, None, id="another shape"),
        pytest.param('{"tokens": -1}', None, None, id="impossible"),
        pytest.param('{"gainPercent": NaN}', None, None, id="no number"),
    ],
)
def test_the_state_becomes_part_of_the_digest(tmp_path, text, tokens, gain):
    adapting = Adapting(tmp_path)
    adapting.state_path.write_text(text)
    found = state_of(online(), adapting)
    assert (found.mode, found.tokens, found.gain_percent) == ("Online", tokens, gain)
    state = WorkerState(engine_started_at=1.0, phase=Phase.SERVING, adapting=adapting)
    digest = digest_of(Settings(config=online()), state, None, sampled_at=2.0)
    assert digest.adaptive == found
    assert ("adaptive_draft_tokens 3" in exposition(digest, None)) == (tokens == 3)
    assert ("adaptive_gain_ratio 1.41" in exposition(digest, None)) == (gain == 41)


def test_a_fixed_length_has_no_such_part():
    assert state_of(a_config(), None) is None
