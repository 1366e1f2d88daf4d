"""Bring images into the node's containerd, each layer once.

An image is written into one OCI layout that all images share; layers that it
already holds are not written again. The archive streamed to containerd leaves
out what containerd's content store has, so a change of the thin top layer does
not move the gigabytes under it.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .builder import buildah
from .commands import output_of, run_logged, say, waiting
from .node import PAUSE_IMAGE, containerctl
from .settings import ClusterError, Settings

_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True, slots=True)
class Layout:
    """One image in an OCI layout."""

    folder: Path
    image: str
    manifest: dict[str, Any]
    """The descriptor of its manifest, as index.json has it."""
    blobs: tuple[str, ...]
    """Digests of manifest, configuration and layers."""


def blob_path(folder: Path, digest: str) -> Path:
    """Return where a layout keeps a blob."""
    algorithm, value = digest.split(":", 1)
    return folder / "blobs" / algorithm / value


def read_layout(folder: Path, image: str) -> Layout:
    """Find an image in an OCI layout.

    Raises:
        ClusterError: the layout has no such image.
    """
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    for descriptor in index["manifests"]:
        if descriptor.get("annotations", {}).get(_NAME_KEYS[1]) == image:
            content = json.loads(blob_path(folder, descriptor["digest"]).read_bytes())
            parts = [content["config"], *content["layers"]]
            return Layout(
                folder=folder,
                image=image,
                manifest={**descriptor, "annotations": dict.fromkeys(_NAME_KEYS, image)},
                blobs=(descriptor["digest"], *(part["digest"] for part in parts)),
            )
    raise ClusterError(f"{folder} holds no image {image}")


def write_archive(output: IO[bytes], layout: Layout, *, left_out: Iterable[str]) -> int:
    """Write an OCI archive of one image; return the bytes of blobs in it."""
    known, written = set(left_out), 0
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [layout.manifest]}
    with tarfile.open(fileobj=output, mode="w|") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        for digest in dict.fromkeys(layout.blobs):
            # The manifest always goes: containerd needs it to name the image.
            if digest in known and digest != layout.manifest["digest"]:
                continue
            path = blob_path(layout.folder, digest)
            archive.add(path, arcname="blobs/" + digest.replace(":", "/"), recursive=False)
            written += path.stat().st_size
    return written


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def images_in_node(settings: Settings) -> dict[str, str]:
    """Return name and manifest digest of each image that containerd has."""
    lines = output_of(containerctl(settings, "images", "ls")).splitlines()[1:]
    return {fields[0]: fields[2] for line in lines if len(fields := line.split()) > 2}


def _import(settings: Settings, layout: Layout) -> None:
    present = output_of(containerctl(settings, "content", "ls", "-q")).split()
    with waiting(f"import {layout.image}") as shown:
        process = subprocess.Popen(
            containerctl(settings, "images", "import", "-"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdin is not None
        try:
            moved = write_archive(process.stdin, layout, left_out=present)
        except BrokenPipeError:
            moved = 0
        said, _ = process.communicate()
        if process.returncode != 0:
            raise ClusterError(f"import of {layout.image}: {said.decode(errors='replace')}")
        if moved > 2**20:
            shown.label += f" ({moved / 2**20:.0f} MiB moved)"


def _share_blobs(settings: Settings, layout: Layout) -> None:
    """Let layout and content store share the files of large blobs, by hard links."""
    store = settings.containerd_root / "io.containerd.content.v1.content" / "blobs"
    for digest in layout.blobs:
        ours, theirs = blob_path(layout.folder, digest), store / digest.replace(":", "/")
        if not theirs.exists() or ours.stat().st_size < 2**20 or ours.samefile(theirs):
            continue
        linked = ours.with_suffix(".link")
        linked.unlink(missing_ok=True)
        linked.hardlink_to(theirs)
        linked.replace(ours)


def load_image(settings: Settings, image: str) -> bool:
    """Bring an image from the builder's store into containerd; False if it was there.

    Raises:
        ClusterError: writing or importing failed.
    """
    folder = settings.images / "layout"
    # Uncompressed: a layer is then known by the digest that the builder's store has of it,
    # and neither side spends minutes on gzip.
    run_logged(
        [
            *buildah(settings),
            "push",
            "--quiet",
            "--disable-compression",
            image,
            f"oci:{folder}:{image}",
        ],
        label=f"write {image} to the layout",
        log=settings.logs / "push.log",
    )
    layout = read_layout(folder, image)
    if images_in_node(settings).get(image) == layout.manifest["digest"]:
        return False
    _import(settings, layout)
    _share_blobs(settings, layout)
    return True


def prune(settings: Settings) -> None:
    """Remove from containerd and layout what no named image uses any more."""
    present = images_in_node(settings)
    named = {digest for name, digest in present.items() if not name.startswith("sha256:")}
    stale = [name for name, digest in present.items() if digest not in named]
    if stale:
        output_of(containerctl(settings, "images", "rm", "--sync", *stale))
    folder = settings.images / "layout"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    used: set[str] = set()
    for entry in index["manifests"]:
        used.update(read_layout(folder, entry["annotations"][_NAME_KEYS[1]]).blobs)
    for path in (folder / "blobs" / "sha256").iterdir():
        if f"sha256:{path.name}" not in used:
            path.unlink()


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
