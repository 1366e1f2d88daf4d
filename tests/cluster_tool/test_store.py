"""An image leaves buildah's store byte for byte, without what the node has already."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster.settings import ClusterError, settings_from
from e2e.cluster.store import (
    layer_pieces,
    load_image,
    pause_archive,
    prune,
    read_image,
    write_archive,
)

IMAGE = "localhost/one:dev"


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def a_layer(store: Path, name: str, files: dict[str, bytes]) -> bytes:
    """Store a layer as containers/storage does; return its archive."""
    buffer, entries, end = io.BytesIO(), [], 0
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
            on_disk = store / "overlay" / name / "diff" / path
            on_disk.parent.mkdir(parents=True, exist_ok=True)
            on_disk.write_bytes(content)
    whole, position = buffer.getvalue(), 0
    for path, content in files.items():
        header = whole[position : position + 512]
        padding = -len(content) % 512
        entries.append({"type": 2, "payload": base64.b64encode(whole[end:position] + header)})
        entries.append({"type": 1, "name": path, "size": len(content)})
        end = position + 512 + len(content)
        position = end + padding
    entries.append({"type": 2, "payload": base64.b64encode(whole[end:])})
    lines = [
        json.dumps({k: v.decode() if isinstance(v, bytes) else v for k, v in entry.items()})
        for entry in entries
    ]
    (store / "overlay-layers").mkdir(parents=True, exist_ok=True)
    with gzip.open(store / "overlay-layers" / f"{name}.tar-split.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return whole


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one image of two layers."""
    base = a_layer(tmp_path, "base", {"heavy.bin": b"h" * 3000, "empty": b""})
    top = a_layer(tmp_path, "top", {"code.py": b"one = 1\n"})
    config = b'{"os": "linux"}'
    manifest = json.dumps(
        {
            "config": {"digest": digest(config), "size": len(config)},
            "layers": [{"digest": digest(part), "size": len(part)} for part in (base, top)],
        }
    )
    folder = tmp_path / "overlay-images" / "image"
    folder.mkdir(parents=True)
    (folder / "manifest").write_text(manifest)
    (folder / ("=" + base64.b64encode(digest(config).encode()).decode())).write_bytes(config)
    images = [{"id": "other"}, {"id": "image", "names": [IMAGE], "layer": "top"}]
    layers = [
        {"id": "base", "diff-digest": digest(base)},
        {"id": "top", "parent": "base", "diff-digest": digest(top)},
    ]
    (tmp_path / "overlay-images" / "images.json").write_text(json.dumps(images))
    (tmp_path / "overlay-layers" / "layers.json").write_text(json.dumps(layers))
    return tmp_path


def test_layers_come_out_as_they_were_digested(store: Path) -> None:
    image = read_image(store, IMAGE)
    for layer, name in image.layers:
        assert digest(b"".join(layer_pieces(store, name))) == layer


def test_the_archive_holds_every_blob_under_its_digest(store: Path) -> None:
    image, output = read_image(store, IMAGE), io.BytesIO()
    write_archive(output, image, left_out=())
    output.seek(0)
    with tarfile.open(fileobj=output) as archive:
        names = archive.getnames()
        assert names[:2] == ["oci-layout", "index.json"]
        for name in names[2:]:
            member = archive.extractfile(name)
            assert member is not None
            assert "blobs/" + digest(member.read()).replace(":", "/") == name
    assert len(names) == 6


def test_a_layer_that_the_node_has_is_not_moved(store: Path) -> None:
    image, output = read_image(store, IMAGE), io.BytesIO()
    heavy, thin = (layer for layer, _ in image.layers)
    moved = write_archive(output, image, left_out=[heavy])
    output.seek(0)
    with tarfile.open(fileobj=output) as archive:
        names = archive.getnames()
    assert "blobs/" + heavy.replace(":", "/") not in names
    assert "blobs/" + thin.replace(":", "/") in names
    assert "blobs/" + image.digest.replace(":", "/") in names
    assert moved < 11000


def test_an_image_that_was_not_built_is_named(store: Path) -> None:
    with pytest.raises(ClusterError, match="holds no image localhost/two:dev; build it first"):
        read_image(store, "localhost/two:dev")


def test_the_pause_image_runs_its_program_without_rights() -> None:
    with tarfile.open(fileobj=io.BytesIO(pause_archive(b"program"))) as archive:
        read = {name: archive.extractfile(name) for name in archive.getnames()}
        content = {name: file.read() for name, file in read.items() if file is not None}
    (manifest,) = json.loads(content["manifest.json"])
    config = json.loads(content[manifest["Config"]])
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    assert config["config"] == {"Entrypoint": ["/pause"], "User": "65535:65535"}
    assert config["rootfs"]["diff_ids"] == [digest(content["layer.tar"])]


@pytest.fixture
def home() -> Iterator[Path]:
    """A short folder: the node's sockets lie below it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


CTR = """#!/bin/sh
shift 4
echo "$@" >> "$CTR_LOG"
case "$1 $2" in
"images ls") printf 'REF TYPE DIGEST\\n%s' "$CTR_IMAGES" ;;
"images import") cat > /dev/null; exit "$CTR_EXIT" ;;
esac
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A containerd that only writes down what it is told."""
    program = tmp_path / "programs" / "ctr"
    program.parent.mkdir()
    program.write_text(CTR)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CTR_LOG", str(tmp_path / "ctr.log"))
    monkeypatch.setenv("CTR_IMAGES", "")
    monkeypatch.setenv("CTR_EXIT", "0")
    return tmp_path / "ctr.log"


def changes(said: Path) -> list[str]:
    return [line for line in said.read_text().splitlines() if not line.endswith(("ls", "ls -q"))]


HELD = f"images tag --force {IMAGE} {IMAGE}-before"
LET_GO = f"images rm {IMAGE}-before"


@pytest.mark.parametrize(
    ("before", "code", "expected"),
    [
        ("", 0, ["images import -"]),
        ("", 1, ["images import -", f"images rm {IMAGE}"]),
        ("old", 0, [HELD, "images import -", LET_GO]),
        (
            "old",
            1,
            [HELD, "images import -", f"images tag --force {IMAGE}-before {IMAGE}", LET_GO],
        ),
    ],
    ids=["first", "first fails", "another", "another fails"],
)
def test_the_image_before_is_held_until_the_next_is_whole(
    home: Path,
    store: Path,
    said: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    code: int,
    expected: list[str],
) -> None:
    settings = settings_from({"SPECULATIVE_HOME": str(home)})
    (home / "images").mkdir()
    (home / "images" / "store").symlink_to(store)
    monkeypatch.setenv("CTR_EXIT", str(code))
    if before:
        monkeypatch.setenv("CTR_IMAGES", f"{IMAGE} type sha256:{before}")
    if code:
        with pytest.raises(ClusterError, match="import of"):
            load_image(settings, IMAGE)
    else:
        assert load_image(settings, IMAGE)
    assert changes(said) == expected


def test_pruning_lets_go_what_a_killed_import_held(
    home: Path, said: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{IMAGE} t sha256:a", f"{IMAGE}-before t sha256:b", "sha256:b t sha256:b"]
    monkeypatch.setenv("CTR_IMAGES", "\n".join(lines))
    prune(settings_from({"SPECULATIVE_HOME": str(home)}))
    assert changes(said) == [f"images rm {IMAGE}-before sha256:b"]
