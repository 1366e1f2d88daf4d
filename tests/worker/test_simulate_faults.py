"""Faults of the simulated engine: commanded at start or at run time."""

import asyncio
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError
from tests.worker.a_worker import a_worker
from tests.worker.an_engine import an_engine

from speculative_api.cel import holds
from speculative_api.v1alpha1 import Fault as WrittenFault
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_api.v1alpha1.simulation import CrashSample, FaultKind
from speculative_api.validation import problems
from speculative_operator.desired.revision import parse, words_of
from speculative_operator.desired.workers import worker_config
from speculative_worker.classify import engine_failure
from speculative_worker.http_server import Request
from speculative_worker.simulate.faults import (
    CRASH_SAMPLES,
    KINDS,
    BadFault,
    Fault,
    Faults,
    fault_from,
)
from speculative_worker.simulate.plan import Plan, plan_from
from speculative_worker.simulate.server import SimulatedEngine


def test_the_resource_and_the_engine_know_the_same_faults():
    assert [kind.value for kind in FaultKind] == list(KINDS)
    assert [sample.value for sample in CrashSample] == list(CRASH_SAMPLES)


@pytest.mark.parametrize(
    "content, message",
    [
        pytest.param({"kind": "Flood"}, "kind must be one of Crash", id="unknown kind"),
        pytest.param([], "kind must be one of", id="no object"),
        pytest.param({"kind": "Errors"}, "Errors needs percent", id="without its percent"),
        pytest.param({"kind": "RefuseParameter"}, "needs parameter", id="without its parameter"),
        pytest.param({"kind": "Crash", "sample": "Fire"}, "sample must be", id="unknown sample"),
        pytest.param({"kind": "Slow", "percent": "9"}, "percent must be", id="text for a number"),
        pytest.param({"kind": "Stall", "afterSeconds": -1}, "afterSeconds", id="the past"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(content, message):
    with pytest.raises(BadFault, match=message):
        fault_from(content)


@pytest.mark.parametrize(
    "fault, good",
    [
        ({"kind": "Errors", "percent": 5}, True),
        ({"kind": "Errors"}, False),
        ({"kind": "RefuseParameter"}, False),
        ({"kind": "RefuseParameter", "parameter": "seed"}, True),
        ({"kind": "Stall", "text": "x"}, False),
        ({"kind": "Crash", "sample": "Draft"}, True),
    ],
)
def test_the_resource_refuses_the_same(fault, good):
    WrittenFault.model_validate(fault)
    rules = WrittenFault.model_config["json_schema_extra"]["x-kubernetes-validations"]
    assert all(holds(rule["rule"], fault) for rule in rules) == good


def test_a_kind_that_is_unknown_is_no_fault_of_the_resource():
    with pytest.raises(ValidationError):
        WrittenFault.model_validate({"kind": "Flood"})


@pytest.mark.parametrize(
    "sample, reason",
    [
        ("Vocabulary", "VocabularyMismatch"),
        ("Arguments", "InvalidArguments"),
        ("GpuMemory", "GpuMemory"),
        ("CacheMemory", "GpuMemory"),
        ("Gated", "ModelNotFound"),
        ("NoWeights", "ModelNotFound"),
        ("HubAway", "HubUnreachable"),
        ("Draft", "EngineCrashed"),
    ],
)
def test_every_crash_sample_is_classified(sample, reason):
    fault = fault_from({"kind": "Crash", "sample": sample})
    found = engine_failure(
        fault.text, exit_code=fault.exit_code, served=False, out_of_memory_kill=False
    )
    assert found.reason == reason


def test_acceptance_declines_over_its_time_and_never_rises():
    faults = Faults([fault_from({"kind": "AcceptanceDecline", "percent": 20, "overSeconds": 10,
                                 "afterSeconds": 5})], now=100)  # fmt: skip
    found = [faults.acceptance(70, now) for now in (100, 105, 110, 115, 200)]
    assert found == [70, 70, 45, 20, 20]
    assert faults.acceptance(10, 200) == 10


def test_the_next_end_is_the_earliest_of_those_that_end_the_process():
    faults = Faults([Fault("Stall"), Fault("Crash", after_seconds=9)], now=0)
    faults.add(Fault("GpuOutOfMemory", after_seconds=3), now=1)
    begins, fault = faults.next_end()
    assert (begins, fault.kind) == (4, "GpuOutOfMemory")
    faults.clear()
    assert faults.next_end() is None


async def test_a_stall_keeps_health_good_and_shows_requests_waiting_until_it_is_taken_back():
    async with an_engine() as engine, asyncio.TaskGroup() as group:
        await engine.fault("Stall")
        stalled = group.create_task(engine.complete(max_tokens=4))
        found = await engine.reading()
        while not found.waiting:
            found = await engine.reading()
        assert (found.running, found.waiting, found.generated_tokens) == (0, 1, 0)
        async with engine.client.get("/health") as answer:
            assert answer.status == 200
        assert not stalled.done()
        async with engine.client.delete("/simulation/faults"):
            pass
        assert (await stalled)[0] == 200


async def test_counters_that_reset_begin_at_zero_once():
    async with an_engine() as engine:
        await engine.complete(max_tokens=50)
        await engine.fault("CounterReset")
        assert (await engine.reading()).generated_tokens == 0
        await engine.complete(max_tokens=7)
        assert (await engine.reading()).generated_tokens == 7


@pytest.mark.parametrize("kind, begins", [("EmptyMetrics", ""), ("HtmlMetrics", "<!DOCTYPE html>")])
async def test_metrics_that_say_nothing(kind, begins):
    async with an_engine({"faults": [{"kind": kind}]}) as engine:
        await engine.complete(max_tokens=5)
        assert (await engine.metrics()).startswith(begins)
        found = await engine.reading()
        assert (found.generated_tokens, found.running, found.loads) == (None, None, {})


@pytest.mark.slow
async def test_wrong_tokens_come_at_their_rate():
    ask = {"prompt": [1, 2, 3], "max_tokens": 2000, "return_token_ids": True}
    async with an_engine({"faults": [{"kind": "WrongTokens", "percent": 10}]}) as engine:
        _, found = await engine.complete(**ask)
        answer = found["choices"][0]["token_ids"]
        _, scored = await engine.complete(
            prompt=[1, 2, 3, *answer], max_tokens=1, prompt_logprobs=0
        )
        entries = scored["choices"][0]["prompt_logprobs"][3:]
        wrong = sum(e[str(t)]["rank"] != 1 for e, t in zip(entries, answer, strict=True))
        assert 140 <= wrong <= 260


async def test_a_refused_parameter_is_answered_with_400_and_only_that_one():
    faults = [{"kind": "RefuseParameter", "parameter": "logit_bias"}]
    async with an_engine({"faults": faults}) as engine:
        status, body = await engine.complete(logit_bias={"1": 1})
        assert status == 400
        assert body["error"]["message"] == "Unsupported parameter: 'logit_bias'."
        assert (await engine.complete(seed=1))[0] == 200


async def test_slowness_makes_steps_longer():
    async with an_engine({"faults": [{"kind": "Slow", "percent": 10_000}]}) as engine:
        await engine.complete(max_tokens=50)
        # 50 tokens at 100000 a second, a hundred times as slow.
        assert (await engine.reading()).request_seconds.sum >= 0.05


async def test_errors_can_be_commanded_and_taken_back():
    async with an_engine() as engine:
        await engine.fault("Errors", percent=100)
        assert (await engine.complete(max_tokens=1))[0] == 500
        async with engine.client.delete("/simulation/faults") as answer:
            assert await answer.json() == {"faults": []}
        assert (await engine.complete(max_tokens=1))[0] == 200


async def test_a_command_that_cannot_be_read_is_refused_with_the_reason():
    async with an_engine() as engine:
        for body in (b"{", b'{"kind": "Flood"}', b'[{"kind": "Slow"}]'):
            async with engine.client.post("/simulation/faults", data=body) as answer:
                assert answer.status == 400
                assert (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    "peer, status", [("127.0.0.1", 200), ("::1", 200), ("10.244.0.7", 404), ("", 404)]
)
async def test_faults_are_commanded_from_this_machine_only(peer, status):
    plan = Plan(served_model_name="chat", max_num_seqs=1)
    engine = SimulatedEngine(plan, chance=random.Random(1))
    request = Request("POST", "/simulation/faults", b'{"kind": "Stall"}', peer)
    assert (await engine.answer(request)).status == status
    assert len(engine.faults.all) == (status == 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, reason",
    [
        ({"kind": "Crash", "sample": "Vocabulary"}, "VocabularyMismatch"),
        ({"kind": "GpuOutOfMemory"}, "GpuMemory"),
    ],
)
async def test_a_fault_at_start_ends_the_worker_with_its_reason(tmp_path, fault, reason):
    async with a_worker(tmp_path, simulation={"faults": [fault]}) as worker:
        assert await worker.exit_code() == 1
        assert worker.termination()["reason"] == reason


@pytest.mark.slow
async def test_a_fault_at_run_time_ends_a_serving_worker(tmp_path):
    async with a_worker(tmp_path) as worker:
        await worker.until("/readyz", 200)
        url = worker.engine_url + "/simulation/faults"
        fault = {"kind": "GpuOutOfMemory"}
        async with worker.session.post(url, json=fault) as answer:
            assert answer.status == 200
        assert await worker.exit_code() == 1
        assert worker.termination()["reason"] == "GpuMemory"
        assert worker.termination()["retryable"] is True


@pytest.mark.slow
def test_running_out_of_host_memory_is_a_kill():
    done = subprocess.run(
        [sys.executable, "-m", "speculative_worker", "simulate"],
        env=os.environ
        | {
            "SPECULATIVE_WORKER_CONFIG": '{"servedModelName": "a", "maxNumSeqs": 1, "speculation":'
            ' {"method": "None"}, "simulation": {"faults": [{"kind": "HostOutOfMemory"}]}}'
        },
        check=False,
        timeout=60,
    )
    assert done.returncode == -9


@pytest.mark.slow
def test_the_simulated_engine_imports_none_of_the_heavy_libraries():
    program = (
        "import sys, speculative_worker.__main__, speculative_worker.simulate.server\n"
        "print(sorted({'pydantic', 'aiohttp', 'kubernetes'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("example", ["simulated.yaml", "simulated-faults.yaml"])
def test_an_example_is_valid_and_reaches_the_engine_as_it_was_written(example):
    manifest = yaml.safe_load((Path("examples") / example).read_text())
    assert problems(manifest) == []
    spec = SpeculativeDeploymentSpec.model_validate(manifest["spec"])
    part = parse(words_of(spec).canonical)
    config = worker_config(part, default_model_name="rehearsal")
    plan = plan_from(config.model_dump_json(by_alias=True, exclude_none=True))
    written = manifest["spec"]["engine"]["simulation"]
    kinds = [fault["kind"] for fault in written.get("faults", [])]
    assert [fault.kind for fault in plan.faults] == kinds
    assert plan.acceptance_by_position == tuple(written.get("acceptancePercentByPosition", ()))
    step = {name: value / 1e6 for name, value in written.get("stepMicroseconds", {}).items()}
    assert (asdict(plan.step) if plan.step else {}) == step
    assert plan.draft_tokens == 4


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["walk"], ["run", "twice"]])
def test_another_command_is_explained(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "speculative_worker", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "usage: speculative-worker" in done.stderr
