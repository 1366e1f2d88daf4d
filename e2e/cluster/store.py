"""Bring images into the node's containerd, each layer once.

An image is streamed straight from buildah's store: no archive on disk, no
compression. What containerd's content store already has is left out, so a
change of the thin top layer does not move the gigabytes under it. (Pushing
with buildah to an OCI layout takes minutes for the vLLM image, each time: it
compresses every layer again before it can tell that it is there.)
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .commands import output_of, say, succeeds, waiting
from .node import PAUSE_IMAGE, containerctl
from .settings import ClusterError, Settings

_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_PIECE = 2**20
_KEPT = "-before"
"""Ending of the name that holds an image while its successor is unpacked."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """One image in a store of containers/storage, as buildah writes it."""

    store: Path
    image: str
    manifest: bytes
    config: bytes
    layers: tuple[tuple[str, str], ...]
    """Digest of the uncompressed layer, and the layer's name in the store."""

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.manifest).hexdigest()


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_image(store: Path, image: str) -> StoredImage:
    """Find an image in a store of containers/storage with the overlay driver.

    Raises:
        ClusterError: the store has no such image.
    """
    entries = _read_json(store / "overlay-images" / "images.json")
    entry = next((entry for entry in entries if image in (entry.get("names") or ())), None)
    if entry is None:
        raise ClusterError(f"{store} holds no image {image}; build it first")
    folder = store / "overlay-images" / entry["id"]
    manifest = (folder / "manifest").read_bytes()
    content = json.loads(manifest)
    # Names that are no plain words are kept as base64 behind an equals sign.
    config = folder / ("=" + base64.b64encode(content["config"]["digest"].encode()).decode())
    known = {layer["id"]: layer for layer in _read_json(store / "overlay-layers" / "layers.json")}
    names, name = [], entry["layer"]
    while name:
        names.append(name)
        name = known[name].get("parent", "")
    layers = tuple((known[name]["diff-digest"], name) for name in reversed(names))
    if [digest for digest, _ in layers] != [layer["digest"] for layer in content["layers"]]:
        raise ClusterError(f"{image} in {store} is not made of uncompressed layers; build it again")
    return StoredImage(
        store=store, image=image, manifest=manifest, config=config.read_bytes(), layers=layers
    )


def layer_pieces(store: Path, name: str) -> Iterator[bytes]:
    """Return the bytes of a layer's archive, exactly as they were digested.

    The store keeps a layer as files, and beside them what the archive had
    between their contents (github.com/vbatts/tar-split, version 0.11).
    """
    files = store / "overlay" / name / "diff"
    with gzip.open(store / "overlay-layers" / f"{name}.tar-split.gz") as entries:
        for line in entries:
            entry = json.loads(line)
            if entry["type"] == 2:
                yield base64.b64decode(entry["payload"])
            elif entry.get("size"):
                raw = entry.get("name_raw")
                path = base64.b64decode(raw).decode(errors="surrogateescape") if raw else None
                with (files / (path or entry["name"])).open("rb") as file:
                    while piece := file.read(_PIECE):
                        yield piece


class _Pieces(io.RawIOBase):
    """A readable file over pieces of bytes, for tarfile."""

    def __init__(self, pieces: Iterator[bytes], shown: Callable[[int], None]) -> None:
        self._pieces, self._rest, self._read, self._shown = pieces, b"", 0, shown

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
        taken, self._rest = self._rest[:size], self._rest[size:]
        self._read += len(taken)
        self._shown(self._read)
        return taken


def write_archive(
    output: IO[bytes],
    image: StoredImage,
    *,
    left_out: Iterable[str],
    shown: Callable[[int], None] = lambda _: None,
) -> int:
    """Write an OCI archive of an image; return the bytes of layers in it."""
    known, written = set(left_out), 0
    descriptor = {
        "mediaType": _MANIFEST_TYPE,
        "digest": image.digest,
        "size": len(image.manifest),
        "annotations": dict.fromkeys(_NAME_KEYS, image.image),
    }
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [descriptor]}
    sizes = {part["digest"]: part["size"] for part in json.loads(image.manifest)["layers"]}
    config = "sha256:" + hashlib.sha256(image.config).hexdigest()
    with tarfile.open(fileobj=output, mode="w|", bufsize=_PIECE) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        _add(archive, _blob_name(image.digest), image.manifest)
        _add(archive, _blob_name(config), image.config)
        for digest, name in image.layers:
            if digest in known:
                continue
            known.add(digest)
            entry = tarfile.TarInfo(_blob_name(digest))
            entry.size = sizes[digest]
            archive.addfile(entry, _Pieces(layer_pieces(image.store, name), shown))
            written += entry.size
    return written


def _blob_name(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def images_in_node(settings: Settings) -> dict[str, str]:
    """Return name and manifest digest of each image that containerd has."""
    lines = output_of(containerctl(settings, "images", "ls")).splitlines()[1:]
    return {fields[0]: fields[2] for line in lines if len(fields := line.split()) > 2}


@contextmanager
def _held(settings: Settings, name: str) -> Iterator[None]:
    """Keeps the image that has the name now until another one is whole.

    The new one's base is the old one's, and nothing else holds that between the new name and
    its last layer: containerd's garbage collection took 5.9 GB away in the middle (1.6.20).
    After a failure the old image has its name back, so that the next run tries again.
    """
    if name not in images_in_node(settings):
        try:
            yield
        except BaseException:
            succeeds(containerctl(settings, "images", "rm", name))
            raise
        return
    kept = f"{name}{_KEPT}"
    output_of(containerctl(settings, "images", "tag", "--force", name, kept))
    try:
        yield
    except BaseException:
        succeeds(containerctl(settings, "images", "tag", "--force", kept, name))
        raise
    finally:
        succeeds(containerctl(settings, "images", "rm", kept))


def _import(settings: Settings, image: StoredImage) -> None:
    present = output_of(containerctl(settings, "content", "ls", "-q")).split()
    with waiting(f"import {image.image}") as shown:
        process = subprocess.Popen(
            containerctl(settings, "images", "import", "-"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdin is not None
        try:
            moved = write_archive(
                process.stdin,
                image,
                left_out=present,
                shown=lambda size: shown.tick(f"{size / 2**20:.0f} MiB of a layer moved"),
            )
        except BrokenPipeError:
            # ctr gave up; what it says is the error.
            moved = 0
        said, _ = process.communicate()
        if process.returncode != 0:
            raise ClusterError(f"import of {image.image}: {said.decode(errors='replace')}")
        shown.label += f" ({moved / 2**20:.0f} MiB moved)"


def load_image(settings: Settings, name: str) -> bool:
    """Bring an image from the builder's store into containerd; False if it was there.

    Raises:
        ClusterError: there is no such image, or containerd refused it.
    """
    image = read_image(settings.images / "store", name)
    if images_in_node(settings).get(name) == image.digest:
        return False
    with _held(settings, name):
        _import(settings, image)
    return True


def prune(settings: Settings) -> None:
    """Remove from containerd the images that no name but their own digest holds.

    And what an import that was killed in the middle had held.
    """
    present = images_in_node(settings)
    passing = {n for n in present if n.startswith("sha256:") or n.endswith(_KEPT)}
    named = {digest for name, digest in present.items() if name not in passing}
    stale = [n for n, digest in present.items() if digest not in named or n.endswith(_KEPT)]
    if stale:
        output_of(containerctl(settings, "images", "rm", *stale))


def pause_archive(program: bytes) -> bytes:
    """Return an archive, in docker's format, of an image with one static program."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        entry = tarfile.TarInfo("pause")
        entry.size, entry.mode = len(program), 0o755
        archive.addfile(entry, io.BytesIO(program))
    difference = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [difference]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        _add(archive, name, config)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        _add(archive, "layer.tar", layer.getvalue())
    return whole.getvalue()


def load_pause(settings: Settings) -> None:
    """Bring the pause image into containerd where it is missing."""
    if PAUSE_IMAGE in images_in_node(settings):
        return
    archive = pause_archive((settings.binaries / "pause").read_bytes())
    done = subprocess.run(
        containerctl(settings, "images", "import", "-"),
        input=archive,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"import of {PAUSE_IMAGE}: {done.stderr.decode(errors='replace')}")


def load_images(settings: Settings, images: Iterable[str]) -> None:
    """Bring images into the node, and drop what they replaced."""
    loaded = [image for image in images if load_image(settings, image)]
    prune(settings)
    say(f"images loaded into the node: {', '.join(loaded) or 'none, all there'}")
