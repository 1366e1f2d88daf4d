"""Tools that the recipes need and a fresh machine lacks: uv."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from .commands import output_of, succeeds
from .prerequisites import install_packages
from .settings import Settings

UV_VERSION = "0.13.9"


def uv_program(settings: Settings) -> Path:
    """Return uv: the one on PATH, else one in an environment of our own.

    Prints nothing, since its caller reads the path from standard output.

    Raises:
        ClusterError: it can neither be found nor installed.
    """
    installed = shutil.which("uv")
    if installed is not None:
        return Path(installed)
    folder = settings.home / "tools" / "uv"
    program = folder / "bin" / "uv"
    if program.exists():
        return program
    # Debian's Python comes without the parts that venv needs.
    if not succeeds([sys.executable, "-c", "import ensurepip, venv"]) and os.geteuid() == 0:
        install_packages(settings, ("python3-venv",))
    output_of([sys.executable, "-m", "venv", "--clear", str(folder)])
    output_of([str(folder / "bin" / "pip"), "install", "--quiet", f"uv=={UV_VERSION}"])
    return program
