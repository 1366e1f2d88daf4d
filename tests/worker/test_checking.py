"""`speculative-worker preflight`: what a Job without a GPU says, from folders and from a hub."""

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_lint_models import Hub, a_checkpoint
from tests.worker import test_preflight
from tests.worker.test_preflight import a_model

from speculative_api.worker import CONFIG_VARIABLE, PreflightReport, Termination
from speculative_worker import checking, termination
from speculative_worker.checking import checked, run_check
from speculative_worker.errors import WorkerFailure
from speculative_worker.settings import Settings

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    target = a_checkpoint("a", "b", "c", "d", weights=2_000_000)
    server = Hub(
        {
            "org/target": target,
            "org/same": a_checkpoint("a", "b", "c", "d", weights=2_000),
            "org/other": a_checkpoint("a", "b", "c", "X", weights=2_000),
            "org/empty": {"config.json": b"{}"},
            "org/adapter": {"adapter_config.json": b"{}"},
        }
    )
    # What HF_ENDPOINT sets in a pod, where the library is imported after it.
    template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def settings_for(*models: str, **changes: Any) -> Settings:
    """Of a worker over a real engine, unless said otherwise."""
    settings = test_preflight.settings_for(*models, **changes)
    if "simulation" in changes:
        return settings
    return replace(settings, config=settings.config.model_copy(update={"simulation": None}))


def refusal(settings: Settings) -> WorkerFailure:
    with pytest.raises(WorkerFailure) as caught:
        checked(settings)
    return caught.value


@pytest.mark.slow
def test_a_hub_s_models_are_compared_and_no_weight_is_fetched(hub: Hub) -> None:
    failure = refusal(settings_for("hf://org/target@main", "hf://org/other"))
    assert (failure.reason, failure.retryable) == ("VocabularyMismatch", False)
    assert "token 3 is 'X' in the draft" in failure.detail
    assert checked(settings_for("hf://org/target", "hf://org/same")).notes == ()
    assert sum(hub.sent.values()) < 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "target,reason,retryable,words",
    [
        ("hf://org/gone", "ModelNotFound", False, "HF_TOKEN"),
        ("hf://org/empty", "ModelNotFound", False, "it has no weights"),
    ],
)
def test_what_a_hub_does_not_have(
    hub: Hub, target: str, reason: str, retryable: bool, words: str
) -> None:
    failure = refusal(settings_for(target))
    assert (failure.reason, failure.retryable) == (reason, retryable)
    assert words in failure.detail


@pytest.mark.slow
def test_a_hub_that_is_away_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    failure = refusal(settings_for("hf://org/target"))
    assert (failure.reason, failure.retryable) == ("HubUnreachable", True)


@pytest.mark.slow
def test_what_the_cache_has_is_read_there_while_the_hub_is_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    model, commit = tmp_path / "models--org--target", "c" * 40
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit)
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for name, content in a_checkpoint("a", "b", "c", "d").items():
        (snapshot / name).write_bytes(content)
    settings = settings_for("hf://org/target", cacheDirectory=str(tmp_path))
    assert checked(settings).notes == ()


@pytest.mark.slow
def test_room_for_what_is_to_be_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 10**6))
    settings = settings_for("hf://org/target", cacheDirectory=str(tmp_path))
    failure = refusal(settings)
    assert failure.reason == "DiskTooSmall"
    kept = tmp_path / "models--org--target" / "snapshots" / ("a" * 40)
    kept.mkdir(parents=True)
    (kept / "model.safetensors").write_bytes(b"here already")
    assert checked(settings).notes == ()


@pytest.mark.slow
def test_an_adapter_is_looked_at_too(hub: Hub) -> None:
    def with_adapter(source: str) -> Settings:
        lora = {"adapters": [{"name": "a", "model": source}]}
        return settings_for("hf://org/target", lora=lora)

    assert checked(with_adapter("hf://org/adapter")).notes == ()
    assert "no LoRA adapter" in refusal(with_adapter("hf://org/same")).detail


def test_folders_are_judged_as_in_the_pod(tmp_path: Path) -> None:
    target = a_model(tmp_path / "target")
    draft = a_model(tmp_path / "draft", tokens=["<s>", "a", "X", "c"])
    assert refusal(settings_for(target, draft)).reason == "VocabularyMismatch"
    gone = refusal(settings_for(f"file://{tmp_path}/gone"))
    assert (gone.reason, gone.retryable) == ("ModelNotFound", False)


def test_warn_lets_a_revision_begin_with_what_was_found(tmp_path: Path) -> None:
    target = a_model(tmp_path / "target")
    draft = a_model(tmp_path / "draft", tokens=["<s>", "a", "X", "c"])
    report = checked(settings_for(target, draft, preflight="Warn"))
    assert any("token 2" in note for note in report.notes)


def test_a_simulated_engine_loads_nothing() -> None:
    assert checked(settings_for("file:///nowhere", simulation={})).notes == ()


def test_a_folder_that_is_hidden_from_the_check_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod may run as another user: what only root reads is judged there."""
    target = a_model(tmp_path / "target")

    def hidden(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "scandir", hidden)
    (note,) = checked(settings_for(target)).notes
    assert "not compared before pods are made" in note
    assert f"user {os.getuid()}" in note


def test_a_check_that_takes_too_long_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_: Settings) -> PreflightReport:
        checking._too_long()

    monkeypatch.setattr(checking, "checked", slow)
    path = tmp_path / "end"
    settings = replace(settings_for("file:///x"), termination_path=str(path))
    assert run_check(settings) == checking.EXIT_RETRYABLE
    assert Termination.model_validate_json(path.read_text()).retryable


def test_a_long_report_fits_and_says_what_is_left_out() -> None:
    notes = [f"{number}: " + "é" * 700 for number in range(9)]
    text = termination.report(notes)
    assert len(text.encode()) <= termination.MAX_BYTES
    said = PreflightReport.model_validate_json(text).notes
    assert said[0].startswith("0: ")
    assert said[-1] == f"{9 - (len(said) - 1)} more in the log of the check"


def test_secrets_are_not_repeated() -> None:
    text = termination.report(["asked with hf_abcdefgh12 and hunter2-secret"], secrets=["hunter2"])
    assert "hf_abcdefgh12" not in text
    assert "hunter2" not in text


@pytest.mark.slow
@pytest.mark.parametrize("fits", [True, False])
def test_the_process_ends_with_its_words_and_a_code_for_kubernetes(
    tmp_path: Path, fits: bool
) -> None:
    target = a_model(tmp_path / "target")
    draft = a_model(tmp_path / "draft", tokens=["<s>", "a", "b" if fits else "X", "c"])
    settings, end = settings_for(target, draft), tmp_path / "end"
    environment = {
        CONFIG_VARIABLE: settings.config.model_dump_json(by_alias=True, exclude_none=True),
        "TERMINATION_PATH": str(end),
        "PATH": os.environ["PATH"],
    }
    argv = [sys.executable, "-m", "speculative_worker", "preflight"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    said = json.loads(end.read_text())
    if fits:
        assert (done.returncode, len(said["notes"])) == (0, 1)
        assert "smaller draft" in said["notes"][0]
    else:
        assert (done.returncode, said["reason"]) == (checking.EXIT_REFUSED, "VocabularyMismatch")
    assert not stat.S_ISDIR(end.stat().st_mode)
