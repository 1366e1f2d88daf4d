"""Pre-flight over buckets: the Job's and `lint`'s reading by range, and never a weight."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_lint_models import a_checkpoint, a_pair
from tests.worker.a_store import Store, server, store
from tests.worker.test_bucket_downloads import model
from tests.worker.test_checking import refusal, settings_for

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_cli.models import model_problems
from speculative_worker.bucket_downloads import bucket_downloaded
from speculative_worker.checking import checked

__all__ = ["server", "store"]
pytestmark = pytest.mark.slow

TARGET, SAME, OTHER = "s3://models/target", "s3://models/same", "s3://models/other"


@pytest.fixture
def full(store: Store) -> Store:
    target = a_checkpoint("a", "b", "c", "d", weights=2_000_000)
    store.put("models", "target/", target)
    store.put("models", "same/", a_checkpoint("a", "b", "c", "d", weights=2_000))
    store.put("models", "other/", a_checkpoint("a", "b", "c", "X", weights=2_000))
    store.put("models", "empty/", {"config.json": b"{}"})
    return store


def test_models_are_compared_and_no_weight_is_fetched(full: Store) -> None:
    failure = refusal(settings_for(TARGET, OTHER))
    assert (failure.reason, failure.retryable) == ("VocabularyMismatch", False)
    assert "token 3 is 'X' in the draft" in failure.detail
    assert checked(settings_for(TARGET, SAME)).notes == ()
    assert full.faults.sent < 20_000


def test_lint_reads_the_same(full: Store) -> None:
    def asked(target: str, draft: str) -> list[str]:
        spec = SpeculativeDeploymentSpec.model_validate(a_pair(target, draft))
        found = model_problems(spec, gpu_gibibytes=None)
        return [f"{each.severity} {each.field} {each.message}" for each in found]

    (found,) = asked(TARGET, OTHER)
    assert found.startswith("error spec.speculation.draft.model token 3 is 'X' in the draft")
    (found,) = asked("s3://models/gone", OTHER)
    assert found.startswith("warning spec.target.model models are not compared: s3://models/gone")
    assert full.faults.sent < 20_000


@pytest.mark.parametrize(
    "source,status,reason,retryable",
    [
        ("s3://nowhere/x", None, "ModelNotFound", False),
        ("s3://models/empty", None, "ModelNotFound", False),
        (TARGET, 403, "ModelNotFound", False),
        (TARGET, 503, "HubUnreachable", True),
    ],
)
def test_what_can_t_be_read(
    full: Store, source: str, status: int | None, reason: str, retryable: bool
) -> None:
    full.faults.status = status
    failure = refusal(settings_for(source))
    assert (failure.reason, failure.retryable) == (reason, retryable)


def test_room_and_what_the_cache_has(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(TARGET, cacheDirectory=str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage(10**6))
    assert refusal(settings).reason == "DiskTooSmall"
    monkeypatch.undo()
    for name, value in full.environment().items():
        monkeypatch.setenv(name, value)
    found = bucket_downloaded(model(TARGET), str(tmp_path), lambda _: None)
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage(0))
    assert checked(settings).notes == ()
    full.faults.status = 503
    assert checked(settings).notes == ()
    pinned = settings_for(f"{TARGET}@{found.commit}", cacheDirectory=str(tmp_path))
    assert checked(pinned).notes == ()


class _Usage:
    def __init__(self, free: int) -> None:
        self.free: Any = free
