"""Files are replaced whole, and only when they differ."""

from pathlib import Path

from speculative_gateway import storage
from speculative_gateway.configuration import files
from speculative_gateway.render import empty
from speculative_gateway.settings import Settings
from speculative_gateway.supervisor import prepare


def test_an_equal_text_is_not_written(tmp_path: Path) -> None:
    assert storage.write(tmp_path / "a.json", "1")
    before = (tmp_path / "a.json").stat()
    assert not storage.write(tmp_path / "a.json", "1")
    after = (tmp_path / "a.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_changed_text_is_a_new_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    storage.write(tmp_path / "a.json", "1")
    with (tmp_path / "a.json").open() as reader:
        storage.write(tmp_path / "a.json", "2")
        assert reader.read() == "1"
    assert storage.read(tmp_path) == {"a.json": "2"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_only_the_owner_may_read_what_is_written(tmp_path: Path) -> None:
    storage.write(tmp_path / "a.json", "1")
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600


def test_a_secret_is_read_as_the_kubelet_mounts_it(tmp_path: Path) -> None:
    assert storage.read_secret(tmp_path / "nowhere") == {}
    for version, key in (("..1", "old"), ("..2", "new")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "alice").write_text(key)
    (tmp_path / "..data").symlink_to("..2")
    (tmp_path / "alice").symlink_to("..data/alice")
    assert storage.read_secret(tmp_path) == {"alice": b"new"}


def test_a_plain_folder_is_read_as_a_secret_too(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text("key")
    assert storage.read_secret(tmp_path) == {"alice": b"key"}


def test_only_files_of_the_prefix_are_removed(tmp_path: Path) -> None:
    storage.write_all(tmp_path, {"eds-a.json": "1", "eds-b.json": "1", "lds.json": "1"})
    assert storage.remove_others(tmp_path, {"eds-a.json": "1"}, "eds-") == ["eds-b.json"]
    assert set(storage.read(tmp_path)) == {"eds-a.json", "lds.json"}


def test_a_new_supervisor_leaves_the_agents_files_alone(tmp_path: Path) -> None:
    settings = Settings(directory=tmp_path)
    prepare(settings)
    assert storage.read(settings.xds).keys() == {*files(empty()), "lds.json"}
    storage.write(settings.xds / "rds.json", "the agent's")
    prepare(settings)
    assert storage.read(settings.xds)["rds.json"] == "the agent's"
