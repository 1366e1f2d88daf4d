"""The images of the project: what each is made of, and when it is built again.

An image is built when the hash of its inputs differs from the one recorded at
its last build, or when the builder's store has lost it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .builder import Build, buildah, image_exists, run_build
from .commands import run_logged, say
from .prerequisites import IMAGE_PACKAGES, IMAGES_GIBIBYTES, install_packages, require_space
from .settings import Settings

BASE_IMAGE = "localhost/speculative-base:bookworm"
VLLM_BASE_IMAGE = "localhost/vllm-cpu-base:0.32.0"
OPERATOR_IMAGE = "localhost/speculative-operator:dev"
GATEWAY_IMAGE = "localhost/speculative-gateway:dev"
WORKER_IMAGE = "localhost/speculative-worker:dev"
SIMULATE_IMAGE = "localhost/speculative-worker-simulate:dev"
CLUSTER_IMAGES = (OPERATOR_IMAGE, GATEWAY_IMAGE, SIMULATE_IMAGE, WORKER_IMAGE)
"""What a node needs."""

_HERE = Path(__file__).parent
_BASE_PACKAGES = "python3,python3-pip,python3-venv,ca-certificates,libnuma1"
_NOT_INPUTS = {"__pycache__", ".venv", "build", "dist", ".pytest_cache", ".mypy_cache"}


@dataclass(frozen=True, slots=True)
class Image:
    """A build, and the files and images that it is made from."""

    build: Build
    inputs: tuple[Path, ...]
    made_from: str = ""
    """Another image of ours under it; rebuilt when that one was."""


def base_image() -> Image:
    """Return the slim Python image; its context is filled by debootstrap."""
    folder = _HERE / "bases" / "base"
    return Image(
        build=Build(
            image=BASE_IMAGE,
            dockerfile=folder / "Dockerfile",
            context=folder,
            use_registries=False,
        ),
        inputs=(folder,),
    )


def vllm_base_image(base: str) -> Image:
    """Return vLLM without a GPU, on a slim Python image."""
    folder = _HERE / "bases" / "vllm-cpu"
    return Image(
        build=Build(
            image=VLLM_BASE_IMAGE,
            dockerfile=folder / "Dockerfile",
            context=folder,
            arguments=(("BASE_IMAGE", base),),
        ),
        inputs=(folder / "Dockerfile", folder / "requirements.txt"),
        made_from=base if base == BASE_IMAGE else "",
    )


def project_images(repository: Path, *, base: str) -> tuple[Image, ...]:
    """Return the images that carry our own code."""
    shared = tuple(
        repository / name
        for name in ("pyproject.toml", "uv.lock", "cli/pyproject.toml", ".dockerignore", "crds")
    )
    packages = {"operator": repository / "operator", "gateway": repository / "gateway"}
    manifests = tuple(repository / name / "pyproject.toml" for name in (*packages, "worker"))

    def image(name: str, dockerfile: str, folder: Path, under: str, target: str = "") -> Image:
        path = repository / dockerfile
        ours = under.startswith("localhost/")
        return Image(
            build=Build(
                image=name,
                dockerfile=path,
                context=repository,
                target=target,
                arguments=(("BASE_IMAGE", under),),
            ),
            inputs=(path, *shared, *manifests, folder),
            made_from=under if ours else "",
        )

    worker = repository / "worker"
    return (
        image(OPERATOR_IMAGE, "Dockerfile.operator", packages["operator"], base, "operator"),
        image(GATEWAY_IMAGE, "Dockerfile.operator", packages["gateway"], base, "gateway"),
        image(SIMULATE_IMAGE, "Dockerfile.worker", worker, base),
        image(WORKER_IMAGE, "Dockerfile.worker", worker, VLLM_BASE_IMAGE),
    )


def input_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files among and under some paths, caches left out, sorted."""
    found: set[Path] = set()
    for path in paths:
        if path.is_file():
            found.add(path)
            continue
        for file in path.rglob("*"):
            if file.is_file() and not _NOT_INPUTS.intersection(file.parts[len(path.parts) :]):
                found.add(file)
    return sorted(found)


def input_hash(image: Image, *, root: Path, under: str) -> str:
    """Return the hash of an image's inputs, its arguments, and the hash of what is under it."""
    digest = hashlib.sha256()
    digest.update(json.dumps([image.build.target, image.build.arguments, under]).encode())
    for file in input_files(image.inputs):
        content = file.read_bytes()
        name = str(file.relative_to(root))
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _record(settings: Settings) -> Path:
    return settings.images / "built.json"


def built_hashes(settings: Settings) -> dict[str, str]:
    """Return the input hash of each image at its last build."""
    try:
        read: dict[str, str] = json.loads(_record(settings).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read


def _remember(settings: Settings, image: str, digest: str) -> None:
    record = built_hashes(settings) | {image: digest}
    temporary = _record(settings).with_suffix(".new")
    temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
    temporary.replace(_record(settings))


def build_where_needed(
    settings: Settings, images: Sequence[Image], *, prefix: Sequence[str]
) -> list[str]:
    """Build, in order, the images whose inputs changed; return their names.

    Raises:
        ClusterError: a build failed.
    """
    settings.images.mkdir(parents=True, exist_ok=True)
    rebuilt: list[str] = []
    for image in images:
        name = image.build.image
        under = built_hashes(settings).get(image.made_from, "")
        digest = input_hash(image, root=settings.repository, under=under)
        if built_hashes(settings).get(name) == digest and image_exists(name, prefix=prefix):
            continue
        build = image.build
        if name == BASE_IMAGE:
            build = replace(build, context=_base_context(settings, build.dockerfile))
        if name == VLLM_BASE_IMAGE:
            require_space(settings, gibibytes=IMAGES_GIBIBYTES, purpose="the vLLM image")
        run_build(build, settings, prefix=prefix)
        _remember(settings, name, digest)
        rebuilt.append(name)
    return rebuilt


def _base_context(settings: Settings, dockerfile: Path) -> Path:
    """Make the slim image's files with debootstrap; return the folder to build in."""
    folder = settings.images / "base"
    archive = folder / "rootfs.tar"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(dockerfile, folder / "Dockerfile")
    if archive.exists():
        return folder
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    run_logged(
        ["debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}", "bookworm", str(tree)],
        label="debootstrap a slim Debian with Python",
        log=settings.logs / "debootstrap.log",
    )
    partial = archive.with_suffix(".part")
    excluded = ["./var/cache/apt/*", "./var/lib/apt/lists/*", "./usr/share/doc/*", "./dev/*"]
    run_logged(
        [
            "tar",
            "-C",
            str(tree),
            *(f"--exclude={name}" for name in excluded),
            "-cf",
            str(partial),
            ".",
        ],
        label="pack the slim Debian",
        log=settings.logs / "debootstrap-tar.log",
    )
    shutil.rmtree(tree)
    partial.replace(archive)
    return folder


def local_images(settings: Settings) -> tuple[Image, ...]:
    """Return every image of the local cluster, in the order of building."""
    return (
        base_image(),
        *project_images(settings.repository, base=BASE_IMAGE)[:3],
        vllm_base_image(BASE_IMAGE),
        *project_images(settings.repository, base=BASE_IMAGE)[3:],
    )


def build_local_images(settings: Settings) -> list[str]:
    """Build the images of the local cluster with buildah; return what was rebuilt."""
    install_packages(settings, IMAGE_PACKAGES)
    rebuilt = build_where_needed(settings, local_images(settings), prefix=buildah(settings))
    say(f"images rebuilt: {', '.join(rebuilt) or 'none, inputs unchanged'}")
    return rebuilt
