"""Edge: the files of a checkpoint that lies in a folder, and the memory of this pod's GPU."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from speculative_api.model_facts import Unreadable

_MEBIBYTE: Final = 2**20
_LOOK_SECONDS: Final = 20


class FolderFiles:
    """`model_facts.ModelFiles` over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file in the folder itself, links followed (a hub's cache is links)."""
        found = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_file():
                    found[entry.name] = entry.stat().st_size
        return found

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise Unreadable(f"{self._folder / name} does not exist") from None
        except (OSError, ValueError) as error:
            raise Unreadable(f"{self._folder / name} cannot be read: {error}") from error

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file. Raises `Unreadable`."""
        try:
            with (self._folder / name).open("rb") as file:
                return file.read(size)
        except OSError as error:
            raise Unreadable(f"{self._folder / name} cannot be read: {error}") from error


def gpu_bytes() -> int | None:
    """Memory of the smallest GPU of this pod; None where nobody can say (no NVIDIA tool).

    Asked of `nvidia-smi`, which the GPU runtime mounts: the worker's own
    environment has no CUDA.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        # Its path comes from PATH of the image, its arguments from here.
        done = subprocess.run(  # noqa: S603
            query, capture_output=True, text=True, timeout=_LOOK_SECONDS, check=True
        )
        found = [int(line) for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return min(found) * _MEBIBYTE if found else None
