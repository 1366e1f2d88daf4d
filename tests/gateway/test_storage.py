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
