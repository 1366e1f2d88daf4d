"""What is removed from a shared cache, and what never is."""

import os
import time
from pathlib import Path

import pytest
from tests.worker.test_checking import Usage, settings_for

from speculative_api.model_buckets import bucket_of
from speculative_api.v1alpha1 import CleanUp
from speculative_api.worker import CacheCleanUp
from speculative_worker import uses
from speculative_worker.cleaning import clean, unused

OLD, NEW = "a" * 40, "b" * 40
HOUR = 3600.0
LONG_AGO = 400 * HOUR
REMOVE = CacheCleanUp(removes=True, unused_hours=24)


def a_model(
    cache: Path, source: str, commit: str, *, age: float = LONG_AGO, stamped: bool = True
) -> Path:
    """A model of 1000 bytes, laid out as the hub's library does, used so many seconds ago."""
    folder = cache / (uses.folder_of(source) or "")
    blob = folder / "blobs" / f"blob-{commit}"
    link = folder / "snapshots" / commit / "model.safetensors"
    for place in (blob, link, folder / "refs" / "main"):
        place.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(bytes(1000))
    link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs" / "main").write_text(commit)
    if stamped:
        uses.begin(cache, source)
        uses.stamp(cache, source, commit)
    then = time.time() - age
    for place in (blob, *(cache / ".uses").glob(f"{folder.name}/*")):
        os.utime(place, (then, then))
    return link


@pytest.mark.parametrize("source", ["hf://org/model", "s3://models/llama"])
def test_what_nobody_uses_goes_and_is_said_with_its_size(tmp_path: Path, source: str) -> None:
    link = a_model(tmp_path, source, OLD)
    (said,) = clean(tmp_path, REMOVE)
    assert not link.parents[2].exists()
    assert f"at {OLD}: removed from the cache, 0.0 GiB, last used 16.7 days ago" in said
    assert clean(tmp_path, REMOVE) == []


def test_a_report_touches_nothing(tmp_path: Path) -> None:
    link = a_model(tmp_path, "hf://org/model", OLD)
    (said,) = clean(tmp_path, CacheCleanUp(unused_hours=24))
    assert "unused in the cache (not removed)" in said
    assert link.read_bytes() == bytes(1000)


def test_no_commit_goes_with_another(tmp_path: Path) -> None:
    old = a_model(tmp_path, "hf://org/model", OLD)
    new = a_model(tmp_path, "hf://org/model", NEW)
    shared = old.parent / "config.json"
    shared.symlink_to(os.readlink(new))
    (found,) = unused(tmp_path, REMOVE.model_copy(update={"in_use": ("hf://org/model",)}))
    assert (found.commit, found.bytes) == (OLD, 1000)
    clean(tmp_path, REMOVE.model_copy(update={"in_use": (f"hf://org/model@{NEW}",)}))
    assert not old.exists()
    assert new.read_bytes() == bytes(1000)


def test_two_models_with_one_commit_are_two(tmp_path: Path) -> None:
    a_model(tmp_path, "hf://org/gone", OLD)
    fork = a_model(tmp_path, "hf://org/fork", OLD)
    clean(tmp_path, REMOVE.model_copy(update={"in_use": ("hf://org/fork",)}))
    assert fork.exists()
    assert not (tmp_path / "models--org--gone").exists()


KEPT = [
    ("named", {}, ("hf://org/model",)),
    ("named at its commit", {}, (f"hf://org/model@{OLD}",)),
    ("nobody's of ours", {"stamped": False}, ()),
    ("used within the time", {"age": 23 * HOUR}, ()),
]


@pytest.mark.parametrize("how,in_use", [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_what_stays(tmp_path: Path, how: dict[str, float | bool], in_use: tuple[str, ...]) -> None:
    link = a_model(tmp_path, "hf://org/model", OLD, **how)  # type: ignore[arg-type]
    assert clean(tmp_path, REMOVE.model_copy(update={"in_use": in_use})) == []
    assert link.exists()


@pytest.mark.parametrize("source", ["s3://models/llama", f"s3://models/llama@{OLD}"])
def test_a_bucket_s_model_that_is_named_stays(tmp_path: Path, source: str) -> None:
    link = a_model(tmp_path, "s3://models/llama", OLD)
    clean(tmp_path, REMOVE.model_copy(update={"in_use": (source,)}))
    assert link.exists()


@pytest.mark.parametrize("what", ["read", "stamped", "begun"])
def test_any_sign_of_use_keeps_it(tmp_path: Path, what: str) -> None:
    link = a_model(tmp_path, "hf://org/model", OLD)
    if what == "read":
        os.utime(link, (time.time(), time.time() - LONG_AGO))
    elif what == "stamped":
        uses.stamp(tmp_path, "hf://org/model", OLD)
    else:
        uses.begin(tmp_path, "hf://org/model")
    assert clean(tmp_path, REMOVE) == []
    assert link.exists()


def test_who_comes_back_at_the_last_moment_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the list and the removal somebody may begin: the lock orders the two."""
    link = a_model(tmp_path, "hf://org/model", OLD)
    held = uses.held

    def begun_before(cache: Path, folder: str):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(uses, "held", held)
        uses.begin(tmp_path, "hf://org/model")
        return held(cache, folder)

    monkeypatch.setattr(uses, "held", begun_before)
    assert clean(tmp_path, REMOVE) == []
    assert link.exists()


def test_a_cache_that_is_not_there_or_holds_something_else(tmp_path: Path) -> None:
    assert clean(tmp_path / "gone", REMOVE) == []
    (tmp_path / "models--half").mkdir()
    (tmp_path / "a file").write_text("x")
    assert clean(tmp_path, REMOVE) == []
    assert (tmp_path / "models--half").exists()


def test_a_worker_that_serves_stamps_oftener_than_anything_is_removed() -> None:
    shortest = CleanUp.model_json_schema()["properties"]["unusedHours"]["minimum"]
    assert shortest * HOUR > 2 * uses.STAMP_SECONDS


def test_a_stamp_that_can_t_be_written_ends_nobody(tmp_path: Path) -> None:
    (tmp_path / ".uses").write_text("in the way")
    uses.stamp(tmp_path, "hf://org/model", OLD)
    assert uses.last_used(tmp_path, "models--org--model", OLD) is None


def test_a_model_that_is_mounted_has_no_stamp(tmp_path: Path) -> None:
    uses.begin(tmp_path, "pvc://models/x")
    assert list(tmp_path.iterdir()) == []
    bucket = bucket_of("s3://models/llama")
    assert bucket is not None
    assert uses.folder_of("s3://models/llama") == bucket.folder_name


@pytest.mark.parametrize("removes", [True, False])
def test_the_check_counts_what_the_download_will_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removes: bool
) -> None:
    from dataclasses import replace

    from speculative_worker.checking import _Models
    from speculative_worker.errors import WorkerFailure

    class Remote:
        def missing_bytes(self, _: Path) -> int:
            return 1500

    a_model(tmp_path, "hf://org/model", OLD)
    settings = replace(
        settings_for("hf://org/new", cacheDirectory=str(tmp_path)),
        clean_up=REMOVE.model_copy(update={"removes": removes}),
    )
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(0, 0, 600))
    models = _Models(settings)
    models._remote = {"hf://org/new": Remote()}  # type: ignore[dict-item]
    if removes:
        models.require_room()
    else:
        with pytest.raises(WorkerFailure, match="are to be fetched"):
            models.require_room()
